// Host part of kernels/sm100/dglu.hpp for BF16 operands.
#include "backends/cuda/sm100_host.hpp"

namespace gemmule::cuda {

extern const Kernel sm90_bf16_dglu;

namespace {

/// The same problems as on Hopper.
std::string refuse(const Problem& p) {
  return sm90_bf16_dglu.refuse(p);
}

Specialization specialize(const Problem& p, Arch) {
  return sm100::specialize(p, "sm100_bf16_dglu");
}

std::vector<Problem> common_problems() {
  return sm90_bf16_dglu.common_problems();
}

}  // namespace

extern const Kernel sm100_bf16_dglu;
const Kernel sm100_bf16_dglu = {
    "sm100_bf16_dglu",
    "grouped_gemm_dglu with BF16 operands (dswiglu, dgeglu), compute capability 10.x; compiled, proven on "
    "the "
    "model, not yet run on hardware",
    host::on_blackwell,
    refuse,
    specialize,
    sm100::workspace_size,
    sm100::launch,
    common_problems,
};

}  // namespace gemmule::cuda
