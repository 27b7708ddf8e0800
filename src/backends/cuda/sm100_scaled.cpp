// Host parts of kernels/sm100/dglu.hpp and srelu.hpp for block-scaled operands.
#include "backends/cuda/sm100_host.hpp"

namespace gemmule::cuda {
namespace {

Specialization specialize_dglu(const Problem& p, Arch) {
  return sm100::specialize(p, "sm100_scaled_dglu");
}
Specialization specialize_srelu(const Problem& p, Arch) {
  return sm100::specialize(p, "sm100_scaled_srelu");
}

}  // namespace

extern const Kernel sm100_scaled_dglu;
const Kernel sm100_scaled_dglu = {
    "sm100_scaled_dglu",
    "grouped_gemm_dglu with MXFP8, MXFP4 and NVFP4 operands (dswiglu, dgeglu, dsituglu), compute capability "
    "10.x; compiled, proven on the model, not yet run on hardware",
    host::on_blackwell,
    host::refuse_scaled_dglu,
    specialize_dglu,
    sm100::workspace_size,
    sm100::launch,
    host::common_scaled_dglu,
};

extern const Kernel sm100_scaled_srelu;
const Kernel sm100_scaled_srelu = {
    "sm100_scaled_srelu",
    "grouped_gemm_srelu with MXFP8, MXFP4 and NVFP4 operands, compute capability 10.x; compiled, proven on "
    "the "
    "model, not yet run on hardware",
    host::on_blackwell,
    host::refuse_scaled_srelu,
    specialize_srelu,
    sm100::workspace_size,
    sm100::launch,
    host::common_scaled_srelu,
};

}  // namespace gemmule::cuda
