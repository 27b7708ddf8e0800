// The block-scaled dGLU kernel, for the host.
#include "sm90/scaled_dglu.hpp"

#include "model/scaled_on_model.hpp"

namespace gemmule::test {

void run_scaled_dglu(const kernels::ScaledDgluOptions& options, const kernels::ScaledDgluParams& params) {
  kernels::ScaledDglu::run(options, params);
}

}  // namespace gemmule::test
