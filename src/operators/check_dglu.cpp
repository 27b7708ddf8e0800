#include "operators/checks.hpp"

namespace gemmule::operators {
namespace {

constexpr float bf16_geglu_alpha = 1.702f, bf16_clamp_max = 7.0f, bf16_clamp_min = -7.0f;

void check_activation(const DgluOptions& o) {
  if (o.act_func > ActFunc::dsituglu)
    reject("act_func", std::to_string(static_cast<int>(o.act_func)), "dswiglu, dgeglu or dsituglu");
  if (o.act_func == ActFunc::dsituglu) {
    check_finite("situ_beta1", o.situ_beta1, true);
    check_finite("situ_beta2", o.situ_beta2, true);
  }
}

/// Of a block-scaled call; BF16 allows the documents' constants only.
void check_geglu_constants(const DgluOptions& o) {
  if (o.geglu_filter > GegluFilter::value)
    reject("geglu_filter", std::to_string(static_cast<int>(o.geglu_filter)), "automatic, mask or value");
  if (o.act_func != ActFunc::dgeglu) return;
  if (o.linear_offset) check_finite("linear_offset", *o.linear_offset, false);
  check_finite("geglu_alpha", o.geglu_alpha, false);
  if (!(o.glu_clamp_min <= o.glu_clamp_max))  // also refuses NaN; infinities mean no clamp
    reject("glu_clamp_min, glu_clamp_max", number_text(o.glu_clamp_min) + ", " + number_text(o.glu_clamp_max),
           "min <= max");
}

void check_epilogue_op(const DgluOptions& o) {
  if (o.epilogue_op > EpilogueOp::srelu)
    reject("epilogue_op", std::to_string(static_cast<int>(o.epilogue_op)), "none, relu or srelu");
}

void check_neutral_scale_controls(const Arguments& args, const DgluOptions& o) {
  check_no_scale_controls(args, {Role::sfa, Role::sfb, Role::sfb_ptrs, Role::d_col, Role::sfd_row,
                                 Role::sfd_col, Role::amax, Role::norm_const});
  if (o.sf_vec_size != 16) reject_scale_control("sf_vec_size", std::to_string(o.sf_vec_size), "16");
  if (o.discrete_col_sfd) reject_scale_control("discrete_col_sfd", "True", "False");
  if (o.geglu_alpha != bf16_geglu_alpha)
    reject_scale_control("geglu_alpha", number_text(o.geglu_alpha), "1.702");
  if (o.glu_clamp_max != bf16_clamp_max)
    reject_scale_control("glu_clamp_max", number_text(o.glu_clamp_max), "7");
  if (o.glu_clamp_min != bf16_clamp_min)
    reject_scale_control("glu_clamp_min", number_text(o.glu_clamp_min), "-7");
  if (o.epilogue_op != EpilogueOp::none)
    reject_scale_control("epilogue_op", o.epilogue_op == EpilogueOp::relu ? "relu" : "srelu", "None");
}

/// True: block-scaled. False: BF16, whose scale controls must be neutral.
bool check_dispatch(const Arguments& args, const DgluOptions& o, bool discrete) {
  const DType a = args[Role::a].dtype;
  const DType b = discrete ? o.b_dtype : args[Role::b].dtype;
  const std::string names = args.name(Role::a) + ", " + (discrete ? "b_dtype" : args.name(Role::b));
  const std::string values = std::string(gemmule::name(a)) + ", " + gemmule::name(b);
  if ((a == DType::bfloat16) != (b == DType::bfloat16))
    reject(names, values + " (mixed dtype families)", "both BF16 or both the same FP4 or FP8 dtype");
  if (a == DType::bfloat16) {
    check_neutral_scale_controls(args, o);
    return false;
  }
  if (a != b || !(is_fp4(a) || is_fp8(a)))
    reject(names, values + " (unsupported dtype pair)", "both BF16 or both the same FP4 or FP8 dtype");
  return true;
}

void check_single_group(const Arguments& args, const DgluOptions& o, bool block_scaled) {
  if (!o.use_single_group_runtime_offsets) return;
  if (!block_scaled)
    reject("use_single_group_runtime_offsets", "True",
           "False with BF16: it is supported only by the block-scaled kernel");
  const Tensor& offsets = args[Role::padded_offsets];
  if (offsets.rank != 1 || offsets.shape[0] != 1)
    reject("use_single_group_runtime_offsets", "True",
           "exactly one expert: " + args.name(Role::padded_offsets) + " of shape (1,)");
}

void check_layouts(const Arguments& args, const Extents& e) {
  static constexpr std::array roles = {
      Role::a,     Role::b,       Role::c,       Role::d,          Role::d_col,         Role::sfa,
      Role::sfb,   Role::sfd_row, Role::sfd_col, Role::alpha,      Role::beta,          Role::prob,
      Role::dprob, Role::dbias,   Role::amax,    Role::norm_const, Role::padded_offsets};
  for (const Role role : roles) check_shape(args, role, e);
  for (const Role role : roles) check_strides(args, role, e);
}

void check_dtypes(const Arguments& args, const DgluOptions& o, bool discrete, bool block_scaled) {
  using enum DType;
  check_b_dtype(args, o, discrete);
  check_dtype(args, Role::sfa, {float8_e8m0fnu, float8_e4m3fn});
  for (const Role role : {Role::sfb, Role::sfd_row, Role::sfd_col}) check_same_dtype(args, role, Role::sfa);
  check_dtype(args, Role::padded_offsets, {int32});
  for (const Role role : {Role::alpha, Role::beta, Role::prob, Role::dprob, Role::amax, Role::norm_const})
    check_dtype(args, role, {float32});
  check_dtype(args, Role::dbias, {bfloat16});
  if (block_scaled) check_sf_vec_size(args, o.sf_vec_size);
  check_acc_dtype(o.acc_dtype);
  if (!block_scaled) {
    check_dtype(args, Role::c, {bfloat16, float16, float32}, " with BF16 input");
    check_dtype(args, Role::d, {bfloat16, float16, float32}, " with BF16 input");
    return;
  }
  check_dtype(args, Role::c, {float32, float16, bfloat16, float8_e4m3fn, float8_e5m2});
  if (is_fp4(args[Role::a].dtype))
    check_dtype(args, Role::d, {float16, bfloat16, float32}, " with FP4 input");
  else
    check_dtype(args, Role::d, {float8_e4m3fn, float8_e5m2}, " with FP8 input");
  check_same_dtype(args, Role::d_col, Role::d);
}

/// Only what the activation uses, so that the rest does not make two problems differ.
void set_activation(Problem& p, const DgluOptions& o) {
  p.act = o.act_func;
  if (o.act_func == ActFunc::dgeglu) {
    p.linear_offset = o.linear_offset.value_or(1.0f);
    p.geglu_alpha = o.geglu_alpha;
    p.glu_clamp_max = o.glu_clamp_max;
    p.glu_clamp_min = o.glu_clamp_min;
    p.geglu_value_filter = o.geglu_filter == GegluFilter::value ||
                           (o.geglu_filter == GegluFilter::automatic && !p.block_scaled());
  } else if (o.act_func == ActFunc::dsituglu) {
    p.situ_beta1 = o.situ_beta1;
    p.situ_beta2 = o.situ_beta2;
  }
}

}  // namespace

void check_call(const Arguments& args, const DgluOptions& o, const DgluCall& call) {
  check_activation(o);
  const bool discrete = check_weight_mode(args, o);
  require(args, Role::a);
  require(args, Role::padded_offsets);
  const std::int64_t experts = args[Role::padded_offsets].shape[0];
  if (discrete) check_pointer_array(args, Role::b_ptrs, experts);
  const bool block_scaled = check_dispatch(args, o, discrete);
  check_single_group(args, o, block_scaled);
  if (!block_scaled) {
    require(args, Role::prob, "a tensor with BF16");
    require(args, Role::dprob, "a tensor with BF16");
  }
  check_cd_major(call.cd_major);
  if (block_scaled && discrete) {
    check_scale_source(args, discrete);
    check_pointer_array(args, Role::sfb_ptrs, experts);
  }
  if (generates_scales(args[Role::a].dtype, call.d_dtype))
    require(args, Role::norm_const, "a tensor, required for FP8 input/FP8 output");
}

PlanKey check_configuration(const Arguments& args, const DgluOptions& o, int margin) {
  check_activation(o);
  const bool discrete = check_weight_mode(args, o);
  require(args, Role::a);
  const bool block_scaled = check_dispatch(args, o, discrete);
  for (const Role role : {Role::c, Role::d, Role::padded_offsets, Role::alpha, Role::beta})
    require(args, role);
  check_single_group(args, o, block_scaled);
  if (block_scaled) {
    require(args, Role::sfa);
    check_scale_source(args, discrete);
  } else {
    require(args, Role::prob, "a tensor with BF16");
    require(args, Role::dprob, "a tensor with BF16");
    if (o.act_func == ActFunc::dsituglu)
      reject("act_func", "dsituglu", "dswiglu or dgeglu with BF16 (dsituglu is block-scaled only)");
  }
  const bool scales_given = check_all_scales_or_none(args);
  Extents e = resolve_extents(args, o, discrete);
  check_num_experts(args, o, e.experts);
  check_pointer_arrays(args, e.experts);
  if (e.n % 32 != 0)
    reject(discrete ? "b_shape" : args.name(Role::b), "N = " + std::to_string(e.n), "a multiple of 32");
  check_layouts(args, e);
  check_dtypes(args, o, discrete, block_scaled);
  check_scale_outputs(args, scales_given);
  check_geglu_constants(o);
  check_epilogue_op(o);

  if (discrete) e.b_n_major = check_b_major(o, !is_fp4(args[Role::a].dtype), "FP4 input");
  check_operand_row_bytes(args, e, discrete);
  const ClusterShape cluster = check_tile_and_cluster(Op::dglu, block_scaled, o);
  check_m_aligned(o.m_aligned);
  check_expert_count(args, e.experts);
  check_sm_limit(o.sm_limit);
  check_devices(args);

  PlanKey key = plan_key(args, o, e, discrete, margin);
  Problem& p = key.problem;
  p.cluster = cluster;
  p.epilogue_op = o.epilogue_op;
  p.single_group_runtime_offsets = o.use_single_group_runtime_offsets;
  set_activation(p, o);
  check_rows(args, p, e.m);
  key.backend = check_backend(args, o.backend);
  return key;
}

}  // namespace gemmule::operators
