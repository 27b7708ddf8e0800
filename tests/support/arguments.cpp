#include "support/arguments.hpp"

namespace gemmule::test {
namespace {

/// Tensors point to mutable memory, inputs included.
void* mutable_data(const void* data) {
  return const_cast<void*>(data);
}

Tensor tensor(const void* data, DType type, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> strides = {}) {
  return Tensor(mutable_data(data), type, shape, strides);
}

Tensor weights(const TestProblem& t) {
  const Problem& p = t.problem;
  if (!p.b_n_major) return matrix(t.b[0].data(), p.ab, p.n, p.k, p.experts);
  return tensor(t.b[0].data(), p.ab, {p.n, p.k, p.experts}, {1, p.n, p.n * p.k});
}

/// The arguments that both operators have.
template <class Tensors>
void set_common(const TestProblem& t, const Outputs& out, Tensors& x) {
  const Problem& p = t.problem;
  const std::int64_t experts = p.experts, width = p.width();
  x.a = matrix(t.a.data(), p.ab, t.m, p.k);
  if (p.block_scaled()) x.sfa = scales(t.sfa.data(), p.scale, t.m, p.k, p.vec);
  if (p.discrete) {
    x.b_ptrs = tensor(t.b_ptrs.data(), DType::int64, {experts});
    if (p.block_scaled()) x.sfb_ptrs = tensor(t.sfb_ptrs.data(), DType::int64, {experts});
  } else {
    x.b = weights(t);
    if (p.block_scaled()) x.sfb = scales(t.sfb[0].data(), p.scale, p.n, p.k, p.vec, experts);
  }
  x.padded_offsets = tensor(t.padded_offsets.data(), DType::int32, {experts});
  x.alpha = tensor(t.alpha.data(), DType::float32, {experts});
  if (p.has_prob) x.prob = tensor(t.prob.data(), DType::float32, {t.m, 1, 1}, {1, 1, 1});
  if (p.quantize) {
    x.norm_const = tensor(t.norm_const.data(), DType::float32, {1});
    x.sfd_row = scales(out.sfd_row.data(), p.scale, t.m, width, 32);
    x.sfd_col = scales(out.sfd_col.data(), p.scale, width, t.m, 32);
  }
  if (p.has_d_col) x.d_col = matrix(out.d_col.data(), p.d, t.m, width);
}

void set_common(const TestProblem& t, CommonOptions& options) {
  const Problem& p = t.problem;
  options.mma_tiler_mn = p.tile;
  options.cluster_shape_mn = p.cluster;
  options.sf_vec_size = p.block_scaled() ? p.vec : 16;
  options.vector_f32 = p.vector_f32;
  options.m_aligned = p.m_aligned;
  options.discrete_col_sfd = p.discrete_col_sfd;
  options.use_dynamic_sched = p.use_dynamic_sched;
  options.deterministic = p.deterministic;
  options.sm_limit = p.sm_limit;
  options.programmatic_launch = p.programmatic_launch;
  if (!p.discrete) return;
  options.num_experts = p.experts;
  options.b_shape = {p.n, p.k};
  options.b_dtype = p.ab;
  options.b_major = p.b_n_major ? Major::n : Major::k;
}

}  // namespace

Tensor matrix(const void* data, DType type, std::int64_t rows, std::int64_t cols, std::int64_t slabs) {
  const std::int64_t pitch = type == DType::float4_e2m1fn_x2 ? cols / 2 : cols;
  return tensor(data, type, {rows, pitch, slabs}, {pitch, 1, rows * pitch});
}

Tensor scales(const void* data, DType type, std::int64_t rows, std::int64_t length, int vec,
              std::int64_t slabs) {
  const std::int64_t row_atoms = (rows + 127) / 128, blocks = (length + vec - 1) / vec,
                     atoms = (blocks + 3) / 4;
  return tensor(data, type, {32, 4, row_atoms, 4, atoms, slabs},
                {16, 4, 512 * atoms, 1, 512, 512 * atoms * row_atoms});
}

SreluTensors srelu_tensors(const TestProblem& t, const Outputs& out) {
  const Problem& p = t.problem;
  SreluTensors x;
  set_common(t, out, x);
  if (p.bias != DType::none) x.bias = tensor(t.bias.data(), p.bias, {p.n, p.experts}, {1, p.n});
  x.c = matrix(out.c.data(), p.c, t.m, p.n);
  x.d = matrix(out.d.data(), p.d, t.m, p.n);
  if (p.has_amax) x.amax = tensor(out.amax.data(), DType::float32, {p.experts, 1});
  return x;
}

DgluTensors dglu_tensors(const TestProblem& t, const Outputs& out) {
  const Problem& p = t.problem;
  DgluTensors x;
  set_common(t, out, x);
  x.c = matrix(t.c_in.data(), p.c, t.m, p.width());
  x.beta = tensor(t.beta.data(), DType::float32, {p.experts});
  if (p.has_dprob) x.dprob = tensor(out.dprob.data(), DType::float32, {t.m, 1, 1}, {1, 1, 1});
  x.d_row = matrix(out.d.data(), p.d, t.m, p.width());
  if (p.has_dbias) x.dbias = tensor(out.dbias.data(), DType::bfloat16, {p.experts, p.width(), 1});
  if (p.has_amax) x.amax = tensor(out.amax.data(), DType::float32, {p.experts, 2, 1});
  return x;
}

SreluOptions srelu_options(const TestProblem& t) {
  SreluOptions options;
  set_common(t, options);
  if (t.problem.tanh_clamp_scale != 0) options.tanh_clamp_scale = t.problem.tanh_clamp_scale;
  return options;
}

DgluOptions dglu_options(const TestProblem& t) {
  const Problem& p = t.problem;
  DgluOptions options;
  set_common(t, options);
  options.act_func = p.act;
  options.linear_offset = p.linear_offset;
  options.geglu_alpha = p.geglu_alpha;
  options.glu_clamp_max = p.glu_clamp_max;
  options.glu_clamp_min = p.glu_clamp_min;
  options.geglu_filter = p.geglu_value_filter ? GegluFilter::value : GegluFilter::mask;
  options.situ_beta1 = p.situ_beta1;
  options.situ_beta2 = p.situ_beta2;
  options.epilogue_op = p.epilogue_op;
  options.use_single_group_runtime_offsets = p.single_group_runtime_offsets;
  return options;
}

SreluCall srelu_call(const TestProblem& t) {
  return {t.problem.c, t.problem.d, 'n'};
}

DgluCall dglu_call(const TestProblem& t) {
  return {t.problem.d, 'n', t.problem.has_dbias};
}

}  // namespace gemmule::test
