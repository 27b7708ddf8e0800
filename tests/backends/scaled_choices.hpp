// Option values of the block-scaled operators (and of BF16 dGLU), as choices to cover, and the problems they make.
#pragma once

#include "backends/specialization_cover.hpp"
#include "operators/problem.hpp"

namespace gemmule::cuda {

/// Values of: operands, C, D, weights, dynamic, m_aligned, amax, column scales or a copy in D_col, two of the operator
/// (srelu: bias, clamp; dglu: activation, sums and epilogue_op), and width of the cluster.
inline constexpr std::array<int, 11> scaled_extents = {6, 6, 6, 3, 2, 2, 2, 2, 4, 6, 3};
using ScaledChoice = Choice<scaled_extents.size()>;

struct ScaledOperand {
  DType ab, scale;
  int vec;
};
inline constexpr ScaledOperand scaled_operands[] = {
    {DType::bfloat16, DType::none, 0},
    {DType::float8_e4m3fn, DType::float8_e8m0fnu, 32},
    {DType::float8_e5m2, DType::float8_e8m0fnu, 32},
    {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 32},
    {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 16},
    {DType::float4_e2m1fn_x2, DType::float8_e4m3fn, 16},
};
inline constexpr DType scaled_outputs[] = {DType::bfloat16,      DType::float16,     DType::float32,
                                           DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2};
inline constexpr DType bias_types[] = {DType::none, DType::bfloat16, DType::float16, DType::float32};

inline bool is_wide(DType type) {
  return type == DType::bfloat16 || type == DType::float16 || type == DType::float32;
}

/// The outputs: false where the operators would refuse them.
inline bool choose_outputs(const ScaledChoice& x, Problem& p) {
  const bool fp4 = p.ab == DType::float4_e2m1fn_x2;
  p.c = scaled_outputs[x[1]];
  p.d = scaled_outputs[x[2]];
  p.has_amax = x[6] != 0;
  p.has_d_col = x[7] != 0;
  if (!p.block_scaled()) return is_wide(p.c) && is_wide(p.d) && !p.has_amax && !p.has_d_col;
  if (p.op == Op::dglu && (p.c == DType::float4_e2m1fn_x2 || p.d == DType::float4_e2m1fn_x2)) return false;
  if (fp4 ? !is_wide(p.d) : p.op == Op::srelu ? p.d == DType::float32 : is_wide(p.d)) return false;
  p.quantize = !fp4 && !is_wide(p.d);
  p.discrete_col_sfd = p.quantize && x[7] != 0;
  p.has_d_col = p.quantize || x[7] != 0;
  return true;
}

inline bool choose_operator(const ScaledChoice& x, Problem& p) {
  p.has_prob = true;
  if (p.op == Op::srelu) {
    p.bias = bias_types[x[8]];
    p.tanh_clamp_scale = x[9] % 2 != 0 ? 8.0f : 0.0f;
    return x[9] < 2;
  }
  p.has_dprob = x[9] != 0;
  p.has_dbias = x[9] == 2 || x[9] == 4;
  p.deterministic = x[9] == 3 || x[9] == 4;
  if (x[9] == 5) p.epilogue_op = EpilogueOp::srelu;
  if (x[8] == 1) {
    p.act = ActFunc::dgeglu;
    p.linear_offset = 1;
    p.geglu_alpha = 1.702f;
    p.glu_clamp_max = 7;
    p.glu_clamp_min = -7;
  } else if (x[8] >= 2) {
    p.act = ActFunc::dsituglu;
    p.situ_beta1 = x[8] == 2 ? 4.0f : 2.0f;
    p.situ_beta2 = 25;
  }
  return p.block_scaled() || (x[8] < 2 && x[9] != 5);
}

/// False where the operators would refuse the choice.
inline bool make_scaled_problem(Op op, const ScaledChoice& x, Problem& p) {
  p.op = op;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = scaled_operands[x[0]].ab;
  p.scale = scaled_operands[x[0]].scale;
  p.vec = scaled_operands[x[0]].vec;
  if (op == Op::srelu && !p.block_scaled()) return false;
  p.discrete = x[3] != 0;
  p.b_n_major = x[3] == 2;
  if (p.b_n_major && p.ab == DType::float4_e2m1fn_x2) return false;
  p.use_dynamic_sched = x[4] != 0;
  p.m_aligned = x[5] != 0 ? 128 : 256;
  p.cluster = {2, x[10] == 0 ? 1 : x[10] == 1 ? 2 : p.block_scaled() ? 4 : 8};
  return choose_outputs(x, p) && choose_operator(x, p);
}

/// Every choice that `op` would accept. `hopper`: block-scaled operands, and no clusters, which make no difference there.
inline std::vector<ScaledChoice> legal_scaled_choices(Op op, bool hopper) {
  return legal_choices<scaled_extents.size()>(scaled_extents, [=](const ScaledChoice& x) {
    Problem p;
    return make_scaled_problem(op, x, p) && (!hopper || (p.block_scaled() && x[10] == 0));
  });
}

}  // namespace gemmule::cuda
