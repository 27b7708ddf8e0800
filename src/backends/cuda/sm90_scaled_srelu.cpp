// Host part of kernels/sm90/scaled_srelu.hpp: which problems it takes, how it is specialized and launched.
#include <string>

#include "backends/cuda/sm90_scaled.hpp"
#include "sm90/scaled_layout.hpp"

namespace gemmule::cuda {
namespace {

using kernels::ScaledSreluOptions;
using sm90::literal;

std::string refuse(const Problem& p) {
  if (p.op != Op::srelu) return "operator: only grouped_gemm_srelu is supported";
  return sm90::refuse_scaled(p);
}

std::string options_text(const ScaledSreluOptions& o) {
  return "{.common = " + literal(o.common) + ", .has_bias = " + literal(o.has_bias) +
         ", .bias = " + literal(o.bias) + ", .clamp = " + literal(o.clamp) +
         ", .clamp_scale = " + literal(o.clamp_scale) + ", .clamp_scale_rcp = " + literal(o.clamp_scale_rcp) +
         "}";
}

Specialization specialize(const Problem& p, Arch) {
  const ScaledSreluOptions options = sm90::scaled_srelu_options(p);
  Specialization s;
  s.tolerated_spill_bytes = sm90::scaled_spill_bytes;
  s.source =
      "#include \"sm90/scaled_srelu.hpp\"\n"
      "#include \"sm90/dglu_side.hpp\"\n"
      "using namespace gemmule::kernels;\n"
      "extern \"C\" __global__ void __launch_bounds__(scaled::threads, 1)\n"
      "sm90_scaled_srelu(const __grid_constant__ ScaledSreluParams params) {\n"
      "  constexpr ScaledSreluOptions options = " +
      options_text(options) +
      ";\n"
      "  ScaledSrelu::run(options, params);\n"
      "}\n";
  s.entries.push_back(
      {"sm90_scaled_srelu", kernels::scaled::threads, kernels::scaled_layout(options.common).bytes, 1});
  if (sm90::scaled_needs_prepare(p)) sm90::add_prepare(s);
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

/// Every operand format with BF16 D, FP8 operands with quantized D in both layouts of the column scales; dense and
/// discrete; then the clamp.
std::vector<Problem> common_problems() {
  using enum DType;
  std::vector<Problem> all = {
      sm90::usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, bfloat16),
      sm90::usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn),
      sm90::usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn),
      sm90::usual_problem(Op::srelu, float4_e2m1fn_x2, float8_e4m3fn, 16, bfloat16),
      sm90::usual_problem(Op::srelu, float4_e2m1fn_x2, float8_e8m0fnu, 32, bfloat16),
  };
  all[2].discrete_col_sfd = true;
  const std::size_t dense = all.size();
  for (std::size_t i = 0; i < dense; ++i) {
    Problem p = all[i];
    p.discrete = true;
    all.push_back(p);
  }
  for (const std::size_t i : {1, 3}) {
    Problem p = all[i];
    p.tanh_clamp_scale = 8;
    all.push_back(p);
  }
  return all;
}

}  // namespace

extern const Kernel sm90_scaled_srelu;
const Kernel sm90_scaled_srelu = {
    "sm90_scaled_srelu",
    "grouped_gemm_srelu with MXFP8, MXFP4 and NVFP4 operands, compute capability 9.0",
    sm90::runs_on,
    refuse,
    specialize,
    workspace_size,
    run,
    common_problems,
};

}  // namespace gemmule::cuda
