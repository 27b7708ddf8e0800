// Host part of kernels/sm90/scaled_dglu.hpp: which problems it takes, how it is specialized and launched.
#include <string>

#include "backends/cuda/sm90_scaled.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::cuda {
namespace {

using kernels::ScaledDgluOptions;
using sm90::literal;

std::string refuse(const Problem& p) {
  if (p.op != Op::dglu) return "operator: only grouped_gemm_dglu is supported";
  if (std::string why = sm90::refuse_scaled(p); !why.empty()) return why;
  if (p.c == DType::float4_e2m1fn_x2 || p.d == DType::float4_e2m1fn_x2)
    return "C or D of float4_e2m1fn_x2: dGLU has neither";
  return {};
}

std::string activation_text(const ScaledDgluOptions& o) {
  switch (o.activation) {
    case kernels::ScaledActivation::dgeglu:
      return ".activation = ScaledActivation::dgeglu, .geglu = {" + literal(o.geglu.linear_offset) + ", " +
             literal(o.geglu.alpha) + ", " + literal(o.geglu.clamp_max) + ", " + literal(o.geglu.clamp_min) +
             ", " + literal(o.geglu.value_filter) + "}";
    case kernels::ScaledActivation::dsituglu:
      return ".activation = ScaledActivation::dsituglu, .situ = {" + literal(o.situ.beta1) + ", " +
             literal(o.situ.beta2) + ", " + literal(o.situ.rcp_beta1) + ", " + literal(o.situ.rcp_beta2) +
             "}";
    case kernels::ScaledActivation::dswiglu:
      break;
  }
  return ".activation = ScaledActivation::dswiglu";
}

std::string options_text(const ScaledDgluOptions& o) {
  static constexpr const char* post[] = {"none", "relu", "srelu"};
  return "{.common = " + literal(o.common) + ", " + activation_text(o) +
         ", .post = PostOperation::" + post[static_cast<int>(o.post)] +
         ", .has_dprob = " + literal(o.has_dprob) + ", .has_dbias = " + literal(o.has_dbias) +
         ", .deterministic = " + literal(o.deterministic) + "}";
}

Specialization specialize(const Problem& p, Arch) {
  const ScaledDgluOptions options = sm90::scaled_dglu_options(p);
  Specialization s;
  s.tolerated_spill_bytes = sm90::scaled_spill_bytes;
  s.source =
      "#include \"sm90/scaled_dglu.hpp\"\n"
      "#include \"sm90/dglu_side.hpp\"\n"
      "using namespace gemmule::kernels;\n"
      "extern \"C\" __global__ void __launch_bounds__(scaled::threads, 1)\n"
      "sm90_scaled_dglu(const __grid_constant__ ScaledDgluParams params) {\n"
      "  constexpr ScaledDgluOptions options = " +
      options_text(options) +
      ";\n"
      "  ScaledDglu::run(options, params);\n"
      "}\n";
  s.entries.push_back(
      {"sm90_scaled_dglu", kernels::scaled::threads, kernels::scaled_dglu_layout(options).bytes, 1});
  if (sm90::scaled_needs_prepare(p)) sm90::add_prepare(s);
  if (sm90::scaled_needs_finish(p)) sm90::add_finish(s);
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

/// dSwiGLU in every operand format, dense and discrete, then with dbias; the other activations in MXFP8 and NVFP4;
/// deterministic sums.
std::vector<Problem> common_problems() {
  using enum DType;
  const Problem mxfp8 = sm90::usual_problem(Op::dglu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn);
  const Problem nvfp4 = sm90::usual_problem(Op::dglu, float4_e2m1fn_x2, float8_e4m3fn, 16, bfloat16);
  std::vector<Problem> all = {mxfp8, nvfp4,
                              sm90::usual_problem(Op::dglu, float4_e2m1fn_x2, float8_e8m0fnu, 32, bfloat16)};
  const std::size_t dense = all.size();
  for (std::size_t i = 0; i < dense; ++i) {
    Problem p = all[i];
    p.discrete = true;
    all.push_back(p);
  }
  for (Problem p : {mxfp8, nvfp4}) {
    p.has_dbias = true;
    all.push_back(p);
    p.has_dbias = false;
    p.deterministic = true;
    all.push_back(p);
    p.deterministic = false;
    p.act = ActFunc::dgeglu;
    p.linear_offset = 1;
    p.geglu_alpha = 1.702f;
    p.glu_clamp_max = 7;
    p.glu_clamp_min = -7;
    all.push_back(p);
    p.act = ActFunc::dsituglu;
    p.situ_beta1 = 4;
    p.situ_beta2 = 25;
    all.push_back(p);
  }
  Problem columns = mxfp8;
  columns.discrete_col_sfd = true;
  all.push_back(columns);
  return all;
}

}  // namespace

extern const Kernel sm90_scaled_dglu;
const Kernel sm90_scaled_dglu = {
    "sm90_scaled_dglu",
    "grouped_gemm_dglu with MXFP8, MXFP4 and NVFP4 operands (dswiglu, dgeglu, dsituglu), compute capability "
    "9.0",
    sm90::runs_on,
    refuse,
    specialize,
    workspace_size,
    run,
    common_problems,
};

}  // namespace gemmule::cuda
