#include "operators/checks.hpp"

namespace gemmule::operators {
namespace {

void check_layouts(const Arguments& args, const Extents& e) {
  for (const Role role : {Role::a, Role::b, Role::c, Role::d, Role::d_col, Role::sfa, Role::sfb,
                          Role::sfd_row, Role::sfd_col, Role::alpha})
    check_shape(args, role, e);
  require(args, Role::prob);
  for (const Role role : {Role::prob, Role::bias, Role::amax, Role::norm_const, Role::padded_offsets})
    check_shape(args, role, e);
  for (const Role role :
       {Role::a, Role::b, Role::c, Role::d, Role::d_col, Role::bias, Role::sfa, Role::sfb, Role::sfd_row,
        Role::sfd_col, Role::alpha, Role::prob, Role::amax, Role::padded_offsets})
    check_strides(args, role, e);
}

void check_dtypes(const Arguments& args, const SreluOptions& o, bool discrete) {
  using enum DType;
  check_dtype(args, Role::a, {float4_e2m1fn_x2, uint8, float8_e4m3fn, float8_e5m2});
  check_b_dtype(args, o, discrete);
  check_dtype(args, Role::bias, {bfloat16, float16, float32});
  check_dtype(args, Role::sfa, {float8_e8m0fnu, float8_e4m3fn});
  for (const Role role : {Role::sfb, Role::sfd_row, Role::sfd_col}) check_same_dtype(args, role, Role::sfa);
  check_dtype(args, Role::padded_offsets, {int32});
  for (const Role role : {Role::alpha, Role::prob, Role::amax, Role::norm_const})
    check_dtype(args, role, {float32});
  check_sf_vec_size(args, o.sf_vec_size);
  check_acc_dtype(o.acc_dtype);
  check_dtype(args, Role::c, {float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2});
  if (is_fp4(args[Role::a].dtype))
    check_dtype(args, Role::d, {float16, bfloat16, float32}, " with FP4 input");
  else
    check_dtype(args, Role::d, {float16, bfloat16, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2},
                " with FP8 input");
  check_same_dtype(args, Role::d_col, Role::d);
}

}  // namespace

bool check_construction(const Arguments& args, const SreluOptions& o) {
  if (o.tanh_clamp_scale) check_finite("tanh_clamp_scale", *o.tanh_clamp_scale, true);
  return check_weight_mode(args, o);
}

void check_call(const Arguments& args, const SreluOptions& o, const SreluCall& call) {
  const bool discrete = check_weight_mode(args, o);
  if (discrete) {
    require(args, Role::padded_offsets);
    check_scale_source(args, discrete);
    check_pointer_arrays(args, args[Role::padded_offsets].shape[0]);
  }
  check_cd_major(call.cd_major);
  if (generates_scales(args[Role::a].dtype, call.d_dtype))
    require(args, Role::norm_const, "a tensor, required for FP8 input/FP8 output");
  require(args, Role::prob);
}

PlanKey check_configuration(const Arguments& args, const SreluOptions& o, int margin) {
  const bool discrete = check_construction(args, o);
  for (const Role role : {Role::a, Role::sfa, Role::padded_offsets, Role::alpha, Role::c, Role::d})
    require(args, role);
  check_scale_source(args, discrete);
  const bool scales_given = check_all_scales_or_none(args);
  Extents e = resolve_extents(args, o, discrete);
  check_num_experts(args, o, e.experts);
  check_pointer_arrays(args, e.experts);
  check_layouts(args, e);
  check_dtypes(args, o, discrete);
  check_scale_outputs(args, scales_given);
  if (discrete) e.b_n_major = check_b_major(o, is_fp8(args[Role::a].dtype), "FP4 input");
  const ClusterShape cluster = check_tile_and_cluster(Op::srelu, true, o);
  check_m_aligned(o.m_aligned);
  check_operand_row_bytes(args, e, discrete);
  check_expert_count(args, e.experts);
  check_sm_limit(o.sm_limit);
  check_devices(args);

  PlanKey key = plan_key(args, o, e, discrete, margin);
  Problem& p = key.problem;
  p.cluster = cluster;
  if (o.tanh_clamp_scale) p.tanh_clamp_scale = static_cast<float>(*o.tanh_clamp_scale);
  key.backend = check_backend(args, o.backend);
  return key;
}

}  // namespace gemmule::operators
