#include "backends/cuda/scaled_host.hpp"

#include "sm90/scaled_layout.hpp"

namespace gemmule::cuda::host {
namespace {

bool is_fp8(DType type) {
  return type == DType::float8_e4m3fn || type == DType::float8_e5m2;
}
bool is_wide(DType type) {
  return type == DType::bfloat16 || type == DType::float16 || type == DType::float32;
}

/// Whatever the operator.
std::string refuse_scaled(const Problem& p) {
  const bool fp4 = p.ab == DType::float4_e2m1fn_x2;
  if (!fp4 && !is_fp8(p.ab))
    return std::string("A and B of ") + name(p.ab) +
           ": float8_e4m3fn, float8_e5m2 and float4_e2m1fn_x2 are supported";
  const bool e8m0 = p.scale == DType::float8_e8m0fnu;
  if (fp4 ? !(e8m0 && (p.vec == 16 || p.vec == 32)) && !(p.scale == DType::float8_e4m3fn && p.vec == 16)
          : !e8m0 || p.vec != 32)
    return std::string("scales of ") + name(p.scale) + " per " + std::to_string(p.vec) + " values of " +
           name(p.ab) +
           ": e8m0 per 32 values of FP8, e8m0 per 16 or 32 and e4m3 per 16 values of FP4 are supported";
  if (p.b_n_major && fp4) return "b_major n of FP4: only 8-bit B may be n-major";
  if (p.m_aligned % 128 != 0) return "m_aligned " + std::to_string(p.m_aligned) + ": must be 128 or 256";
  if (p.quantize != (!fp4 && !is_wide(p.d)))
    return std::string("D of ") + name(p.d) + (p.quantize ? " with" : " without") +
           " output scales: they exist exactly for FP8 operands and an 8- or 4-bit D";
  if (p.quantize && !p.has_d_col) return "no D_col: quantized outputs come in both directions";
  return {};
}

/// FP8 and FP4 operands with the outputs the one-call forms choose.
Problem usual_problem(Op op, DType ab, DType scale, int vec, DType d) {
  Problem p;
  p.op = op;
  p.n = p.k = 1024;
  p.experts = 8;
  p.ab = ab;
  p.scale = scale;
  p.vec = vec;
  p.c = DType::bfloat16;
  p.d = d;
  p.quantize = p.has_d_col = is_fp8(ab) && !is_wide(d);
  p.has_amax = d == DType::bfloat16 || d == DType::float16;
  p.has_prob = true;
  p.has_dprob = op == Op::dglu;
  return p;
}

std::string activation_text(const kernels::ScaledDgluOptions& o) {
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

}  // namespace

std::string refuse_scaled_srelu(const Problem& p) {
  if (p.op != Op::srelu) return "operator: only grouped_gemm_srelu is supported";
  return refuse_scaled(p);
}

std::string refuse_scaled_dglu(const Problem& p) {
  if (p.op != Op::dglu) return "operator: only grouped_gemm_dglu is supported";
  if (std::string why = refuse_scaled(p); !why.empty()) return why;
  if (p.c == DType::float4_e2m1fn_x2 || p.d == DType::float4_e2m1fn_x2)
    return "C or D of float4_e2m1fn_x2: dGLU has neither";
  return {};
}

kernels::ScaledOptions scaled_options(const Problem& p) {
  kernels::ScaledOptions o;
  o.ab = format_of(p.ab);
  o.scale = p.scale == DType::float8_e4m3fn ? kernels::ScaleFormat::e4m3 : kernels::ScaleFormat::e8m0;
  o.vec = static_cast<std::uint32_t>(p.vec);
  o.discrete = p.discrete;
  o.b_n_major = p.b_n_major;
  o.dynamic = p.use_dynamic_sched;
  o.half_tiles = p.m_aligned % kernels::scaled::tile_rows != 0;
  o.c = format_of(p.c);
  o.d = format_of(p.d);
  o.quantize = p.quantize;
  o.discrete_col_sfd = p.discrete_col_sfd;
  o.has_d_col = p.has_d_col;
  o.has_amax = p.has_amax;
  return o;
}

kernels::ScaledSreluOptions scaled_srelu_options(const Problem& p) {
  kernels::ScaledSreluOptions o;
  o.common = scaled_options(p);
  o.has_bias = p.bias != DType::none;
  if (o.has_bias) o.bias = format_of(p.bias);
  o.clamp = p.tanh_clamp_scale != 0;
  o.clamp_scale = p.tanh_clamp_scale;
  if (o.clamp) o.clamp_scale_rcp = numerics::finite_reciprocal(p.tanh_clamp_scale);
  return o;
}

kernels::ScaledDgluOptions scaled_dglu_options(const Problem& p) {
  kernels::ScaledDgluOptions o;
  o.common = scaled_options(p);
  if (p.act == ActFunc::dgeglu) {
    o.activation = kernels::ScaledActivation::dgeglu;
    o.geglu = {p.linear_offset, p.geglu_alpha, p.glu_clamp_max, p.glu_clamp_min, p.geglu_value_filter};
  } else if (p.act == ActFunc::dsituglu) {
    o.activation = kernels::ScaledActivation::dsituglu;
    o.situ = {p.situ_beta1, p.situ_beta2, numerics::finite_reciprocal(p.situ_beta1),
              numerics::finite_reciprocal(p.situ_beta2)};
  }
  o.post = p.epilogue_op == EpilogueOp::relu    ? kernels::PostOperation::relu
           : p.epilogue_op == EpilogueOp::srelu ? kernels::PostOperation::srelu
                                                : kernels::PostOperation::none;
  o.has_dprob = p.has_dprob;
  o.has_dbias = p.has_dbias;
  o.deterministic = p.has_dprob && p.deterministic;
  return o;
}

std::string literal(const kernels::ScaledOptions& o) {
  return "{.ab = " + literal(o.ab) +
         ", .scale = ScaleFormat::" + (o.scale == kernels::ScaleFormat::e4m3 ? "e4m3" : "e8m0") +
         ", .vec = " + std::to_string(o.vec) + ", .discrete = " + literal(o.discrete) +
         ", .b_n_major = " + literal(o.b_n_major) + ", .dynamic = " + literal(o.dynamic) +
         ", .half_tiles = " + literal(o.half_tiles) + ", .c = " + literal(o.c) + ", .d = " + literal(o.d) +
         ", .quantize = " + literal(o.quantize) + ", .discrete_col_sfd = " + literal(o.discrete_col_sfd) +
         ", .has_d_col = " + literal(o.has_d_col) + ", .has_amax = " + literal(o.has_amax) + "}";
}

std::string literal(const kernels::ScaledSreluOptions& o) {
  return "{.common = " + literal(o.common) + ", .has_bias = " + literal(o.has_bias) +
         ", .bias = " + literal(o.bias) + ", .clamp = " + literal(o.clamp) +
         ", .clamp_scale = " + literal(o.clamp_scale) + ", .clamp_scale_rcp = " + literal(o.clamp_scale_rcp) +
         "}";
}

std::string literal(const kernels::ScaledDgluOptions& o) {
  static constexpr const char* post[] = {"none", "relu", "srelu"};
  return "{.common = " + literal(o.common) + ", " + activation_text(o) +
         ", .post = PostOperation::" + post[static_cast<int>(o.post)] +
         ", .has_dprob = " + literal(o.has_dprob) + ", .has_dbias = " + literal(o.has_dbias) +
         ", .deterministic = " + literal(o.deterministic) + "}";
}

kernels::ScaledParams common_params(const Problem& p, const Operands& o, std::byte* workspace,
                                    const Scratch& s) {
  kernels::ScaledParams params;
  params.b_maps = block_at<const ptx::TensorMap>(workspace, p.discrete, s.maps);
  params.sfa = static_cast<const std::uint8_t*>(o.sfa);
  params.sfb = static_cast<const std::uint8_t*>(o.sfb);
  params.sfb_ptrs = o.sfb_ptrs;
  params.offsets = offsets_of(p, o, workspace, s);
  params.alpha = o.alpha;
  params.prob = p.has_prob ? o.prob : nullptr;
  params.prob_stride = o.prob_stride;
  params.norm_const = o.norm_const;
  params.sfd_row = o.sfd_row;
  params.sfd_col = o.sfd_col;
  params.amax = o.amax;
  params.next_tile = block_at<std::uint32_t>(workspace, p.use_dynamic_sched, s.next_tile);
  params.m = o.m;
  params.n = static_cast<std::uint32_t>(p.n);
  params.k = static_cast<std::uint32_t>(p.k);
  params.experts = static_cast<std::uint32_t>(p.experts);
  return params;
}

std::vector<Problem> common_scaled_srelu() {
  using enum DType;
  std::vector<Problem> all = {
      usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, bfloat16),
      usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn),
      usual_problem(Op::srelu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn),
      usual_problem(Op::srelu, float4_e2m1fn_x2, float8_e4m3fn, 16, bfloat16),
      usual_problem(Op::srelu, float4_e2m1fn_x2, float8_e8m0fnu, 32, bfloat16),
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

std::vector<Problem> common_scaled_dglu() {
  using enum DType;
  const Problem mxfp8 = usual_problem(Op::dglu, float8_e4m3fn, float8_e8m0fnu, 32, float8_e4m3fn);
  const Problem nvfp4 = usual_problem(Op::dglu, float4_e2m1fn_x2, float8_e4m3fn, 16, bfloat16);
  std::vector<Problem> all = {mxfp8, nvfp4,
                              usual_problem(Op::dglu, float4_e2m1fn_x2, float8_e8m0fnu, 32, bfloat16)};
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

}  // namespace gemmule::cuda::host
