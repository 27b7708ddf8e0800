#include "operators/arguments.hpp"

#include "gemmule/layout.hpp"
#include "layout/scale_factors.hpp"

namespace gemmule::operators {
namespace {

const Tensor absent{};

std::array<const Tensor*, role_count> no_tensors() {
  std::array<const Tensor*, role_count> out;
  out.fill(&absent);
  return out;
}

constexpr std::array<const char*, role_count> base_names = {
    "a",     "b",     "sfa",        "sfb",     "padded_offsets", "alpha", "beta",
    "bias",  "prob",  "norm_const", "b_ptrs",  "sfb_ptrs",       "c",     "d",
    "d_col", "dprob", "dbias",      "sfd_row", "sfd_col",        "amax"};

Layout vector_layout(std::int64_t length) {
  return {1, {length}, {1}};
}

/// rows x cols x 1 with contiguous columns; `cols` counts elements as stored.
Layout row_major(std::int64_t rows, std::int64_t cols) {
  return {3, {rows, cols, 1}, {cols, 1, rows * cols}};
}

std::int64_t stored_columns(std::int64_t values, DType dtype, bool uint8_counts_values) {
  if (dtype == DType::float4_e2m1fn_x2 || (dtype == DType::uint8 && !uint8_counts_values)) return values / 2;
  return values;
}

Layout scale_layout(std::int64_t rows, std::int64_t length, int vec, std::int64_t experts) {
  return {6, scale_shape(rows, length, vec, experts), scale_strides(rows, length, vec)};
}

Layout b_layout(const Extents& e) {
  const std::int64_t cols = stored_columns(e.k, e.dtypes[index(Role::b)], e.uint8_counts_values);
  Layout out{3, {e.n, cols, e.experts}, {cols, 1, e.n * cols}};
  if (e.b_n_major) out.strides = {1, e.n, e.n * cols};
  return out;
}

}  // namespace

bool is_output(Op op, Role role) {
  switch (role) {
    case Role::c:
      return op == Op::srelu;
    case Role::d:
    case Role::d_col:
    case Role::dprob:
    case Role::dbias:
    case Role::sfd_row:
    case Role::sfd_col:
    case Role::amax:
      return true;
    default:
      return false;
  }
}

Arguments::Arguments(const SreluTensors& t, Form form_) : op(Op::srelu), form(form_), tensors(no_tensors()) {
  const auto set = [this](Role role, const Tensor& tensor) { tensors[index(role)] = &tensor; };
  set(Role::a, t.a), set(Role::b, t.b), set(Role::sfa, t.sfa), set(Role::sfb, t.sfb);
  set(Role::padded_offsets, t.padded_offsets), set(Role::alpha, t.alpha), set(Role::bias, t.bias);
  set(Role::b_ptrs, t.b_ptrs), set(Role::sfb_ptrs, t.sfb_ptrs);
  set(Role::norm_const, t.norm_const), set(Role::prob, t.prob);
  set(Role::c, t.c), set(Role::d, t.d), set(Role::d_col, t.d_col);
  set(Role::sfd_row, t.sfd_row), set(Role::sfd_col, t.sfd_col), set(Role::amax, t.amax);
}

Arguments::Arguments(const DgluTensors& t, Form form_) : op(Op::dglu), form(form_), tensors(no_tensors()) {
  const auto set = [this](Role role, const Tensor& tensor) { tensors[index(role)] = &tensor; };
  set(Role::a, t.a), set(Role::b, t.b), set(Role::c, t.c), set(Role::sfa, t.sfa), set(Role::sfb, t.sfb);
  set(Role::padded_offsets, t.padded_offsets), set(Role::alpha, t.alpha), set(Role::beta, t.beta);
  set(Role::prob, t.prob), set(Role::b_ptrs, t.b_ptrs), set(Role::sfb_ptrs, t.sfb_ptrs);
  set(Role::norm_const, t.norm_const), set(Role::dprob, t.dprob);
  set(Role::d, t.d_row), set(Role::d_col, t.d_col), set(Role::dbias, t.dbias), set(Role::amax, t.amax);
  set(Role::sfd_row, t.sfd_row), set(Role::sfd_col, t.sfd_col);
}

std::string Arguments::name(Role role) const {
  std::string base = role == Role::d && op == Op::dglu ? "d_row" : base_names[index(role)];
  if (role == Role::b_ptrs || role == Role::sfb_ptrs) return base;
  if (form == Form::sample) return "sample_" + base;
  return role == Role::padded_offsets ? base : base + "_tensor";
}

Layout expected_layout(Role role, const Extents& e) {
  const std::int64_t per_expert = e.op == Op::srelu ? 1 : 2;  // amax: one, or gate and input
  switch (role) {
    case Role::a:
      return row_major(e.m, stored_columns(e.k, e.dtypes[index(role)], e.uint8_counts_values));
    case Role::b:
      return b_layout(e);
    case Role::sfa:
      return scale_layout(e.m, e.k, e.vec, 1);
    case Role::sfb:
      return scale_layout(e.n, e.k, e.vec, e.experts);
    case Role::padded_offsets:
    case Role::alpha:
    case Role::beta:
    case Role::b_ptrs:
    case Role::sfb_ptrs:
      return vector_layout(e.experts);
    case Role::bias:
      return {2, {e.n, e.experts}, {1, e.n}};
    case Role::prob:
    case Role::dprob:
      return {3, {e.m, 1, 1}, {1, 1, 1}};
    case Role::norm_const:
      return vector_layout(1);
    case Role::c:
    case Role::d:
    case Role::d_col:
      return row_major(e.m, stored_columns(e.width(), e.dtypes[index(role)], false));
    case Role::dbias:
      return {3, {e.experts, e.width(), 1}, {e.width(), 1, 1}};
    case Role::sfd_row:
      return scale_layout(e.m, e.width(), layout::output_block, 1);
    case Role::sfd_col:
      return scale_layout(e.width(), e.m, layout::output_block, 1);
    case Role::amax:
      if (e.op == Op::srelu) return {2, {e.experts, per_expert}, {1, 1}};
      return {3, {e.experts, per_expert, 1}, {per_expert, 1, 1}};
  }
  return {};
}

Tensor describe(Role role, const Extents& extents, DType dtype, Device device) {
  Extents e = extents;
  e.dtypes[index(role)] = dtype;
  const Layout layout = expected_layout(role, e);
  Tensor out;
  out.dtype = dtype;
  out.rank = layout.rank;
  out.shape = layout.shape;
  out.strides = layout.strides;
  out.device = device;
  return out;
}

}  // namespace gemmule::operators
