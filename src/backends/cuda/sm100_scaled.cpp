// Host parts of kernels/sm100/dglu.hpp and srelu.hpp for block-scaled operands.
#include "backends/cuda/sm100_host.hpp"

namespace gemmule::cuda {
namespace {

std::string refuse_dglu(const Problem& p) {
  if (p.op != Op::dglu) return "operator: only grouped_gemm_dglu is supported";
  if (std::string why = sm90::refuse_scaled(p); !why.empty()) return why;
  if (p.c == DType::float4_e2m1fn_x2 || p.d == DType::float4_e2m1fn_x2)
    return "C or D of float4_e2m1fn_x2: dGLU has neither";
  return {};
}
std::string refuse_srelu(const Problem& p) {
  if (p.op != Op::srelu) return "operator: only grouped_gemm_srelu is supported";
  return sm90::refuse_scaled(p);
}

Specialization specialize_dglu(const Problem& p, Arch) {
  return sm100::specialize(p, "sm100_scaled_dglu");
}
Specialization specialize_srelu(const Problem& p, Arch) {
  return sm100::specialize(p, "sm100_scaled_srelu");
}

/// Every operand format with the outputs the one-call forms choose, dense and discrete.
std::vector<Problem> usual_problems(Op op) {
  using enum DType;
  std::vector<Problem> all = {
      sm90::usual_problem(op, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn),
      sm90::usual_problem(op, float4_e2m1fn_x2, float8_e4m3fn, 16, bfloat16),
      sm90::usual_problem(op, float4_e2m1fn_x2, float8_e8m0fnu, 32, bfloat16),
  };
  const std::size_t dense = all.size();
  for (std::size_t i = 0; i < dense; ++i) {
    Problem p = all[i];
    p.discrete = true;
    all.push_back(p);
  }
  return all;
}

/// Then the other activations and dbias in MXFP8 and NVFP4.
std::vector<Problem> common_dglu() {
  std::vector<Problem> all = usual_problems(Op::dglu);
  for (Problem p : {all[0], all[1]}) {
    p.has_dbias = true;
    all.push_back(p);
    p.has_dbias = false;
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
  return all;
}

/// Then BF16 D from MXFP8, and the clamp.
std::vector<Problem> common_srelu() {
  using enum DType;
  std::vector<Problem> all = usual_problems(Op::srelu);
  all.push_back(sm90::usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, bfloat16));
  for (Problem p : {all[0], all[1]}) {
    p.tanh_clamp_scale = 8;
    all.push_back(p);
  }
  return all;
}

}  // namespace

extern const Kernel sm100_scaled_dglu;
const Kernel sm100_scaled_dglu = {
    "sm100_scaled_dglu",
    "grouped_gemm_dglu with MXFP8, MXFP4 and NVFP4 operands (dswiglu, dgeglu, dsituglu), compute capability "
    "10.x; compiled, proven on the model, not yet run on hardware",
    sm100::runs_on,
    refuse_dglu,
    specialize_dglu,
    sm100::workspace_size,
    sm100::launch,
    common_dglu,
};

extern const Kernel sm100_scaled_srelu;
const Kernel sm100_scaled_srelu = {
    "sm100_scaled_srelu",
    "grouped_gemm_srelu with MXFP8, MXFP4 and NVFP4 operands, compute capability 10.x; compiled, proven on "
    "the "
    "model, not yet run on hardware",
    sm100::runs_on,
    refuse_srelu,
    specialize_srelu,
    sm100::workspace_size,
    sm100::launch,
    common_srelu,
};

}  // namespace gemmule::cuda
