// The block-scaled sReLU kernel, for the host.
#include "sm90/scaled_srelu.hpp"

#include "model/scaled_on_model.hpp"

namespace gemmule::test {

void run_scaled_srelu(const kernels::ScaledSreluOptions& options, const kernels::ScaledSreluParams& params) {
  kernels::ScaledSrelu::run(options, params);
}

}  // namespace gemmule::test
