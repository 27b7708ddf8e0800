// Host part of kernels/sm90/scaled_dglu.hpp: which problems it takes, how it is specialized and launched.
#include <string>

#include "backends/cuda/sm90_scaled.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::cuda {
namespace {

using host::literal;
using kernels::ScaledDgluOptions;

Specialization specialize(const Problem& p, Arch) {
  const ScaledDgluOptions options = host::scaled_dglu_options(p);
  Specialization s;
  s.tolerated_spill_bytes = sm90::scaled_spill_bytes;
  s.source =
      "#include \"sm90/scaled_dglu.hpp\"\n"
      "#include \"sm90/dglu_side.hpp\"\n"
      "using namespace gemmule::kernels;\n"
      "extern \"C\" __global__ void __launch_bounds__(scaled::threads, 1)\n"
      "sm90_scaled_dglu(const __grid_constant__ ScaledDgluParams params) {\n"
      "  constexpr ScaledDgluOptions options = " +
      literal(options) +
      ";\n"
      "  ScaledDglu::run(options, params);\n"
      "}\n";
  s.entries.push_back(
      {"sm90_scaled_dglu", kernels::scaled::threads, kernels::scaled_dglu_layout(options).bytes, 1});
  if (host::needs_prepare(p)) host::add_prepare(s);
  if (host::needs_finish(p)) host::add_finish(s);
  return s;
}

std::size_t workspace_size(const Problem& p, const DeviceLimits&, std::int64_t m) {
  return sm90::scaled_scratch(p, m).bytes;
}

void run(const Launch& launch) {
  kernels::ScaledDgluParams params =
      sm90::scaled_dglu_params(launch.problem, launch.operands, launch.workspace);
  sm90::launch_scaled(launch, &params, params.common);
}

}  // namespace

extern const Kernel sm90_scaled_dglu;
const Kernel sm90_scaled_dglu = {
    "sm90_scaled_dglu",
    "grouped_gemm_dglu with MXFP8, MXFP4 and NVFP4 operands (dswiglu, dgeglu, dsituglu), compute capability "
    "9.0",
    host::on_hopper,
    host::refuse_scaled_dglu,
    specialize,
    workspace_size,
    run,
    host::common_scaled_dglu,
};

}  // namespace gemmule::cuda
