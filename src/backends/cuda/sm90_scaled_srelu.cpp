// Host part of kernels/sm90/scaled_srelu.hpp: which problems it takes, how it is specialized and launched.
#include <string>

#include "backends/cuda/sm90_scaled.hpp"
#include "sm90/scaled_layout.hpp"

namespace gemmule::cuda {
namespace {

using host::literal;
using kernels::ScaledSreluOptions;

Specialization specialize(const Problem& p, Arch) {
  const ScaledSreluOptions options = host::scaled_srelu_options(p);
  Specialization s;
  s.tolerated_spill_bytes = sm90::scaled_spill_bytes;
  s.source =
      "#include \"sm90/scaled_srelu.hpp\"\n"
      "#include \"sm90/dglu_side.hpp\"\n"
      "using namespace gemmule::kernels;\n"
      "extern \"C\" __global__ void __launch_bounds__(scaled::threads, 1)\n"
      "sm90_scaled_srelu(const __grid_constant__ ScaledSreluParams params) {\n"
      "  constexpr ScaledSreluOptions options = " +
      literal(options) +
      ";\n"
      "  ScaledSrelu::run(options, params);\n"
      "}\n";
  s.entries.push_back(
      {"sm90_scaled_srelu", kernels::scaled::threads, kernels::scaled_layout(options.common).bytes, 1});
  if (host::needs_prepare(p)) host::add_prepare(s);
  return s;
}

std::size_t workspace_size(const Problem& p, const DeviceLimits&, std::int64_t m) {
  return sm90::scaled_scratch(p, m).bytes;
}

void run(const Launch& launch) {
  kernels::ScaledSreluParams params =
      sm90::scaled_srelu_params(launch.problem, launch.operands, launch.workspace);
  sm90::launch_scaled(launch, &params, params.common);
}

}  // namespace

extern const Kernel sm90_scaled_srelu;
const Kernel sm90_scaled_srelu = {
    "sm90_scaled_srelu",
    "grouped_gemm_srelu with MXFP8, MXFP4 and NVFP4 operands, compute capability 9.0",
    host::on_hopper,
    host::refuse_scaled_srelu,
    specialize,
    workspace_size,
    run,
    host::common_scaled_srelu,
};

}  // namespace gemmule::cuda
