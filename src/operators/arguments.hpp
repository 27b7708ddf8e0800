// The tensors of one call by role, under the names the documents give them, and the layout each role must have.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gemmule/grouped_gemm_srelu.hpp"
#include "operators/problem.hpp"

namespace gemmule::operators {

enum class Role : std::uint8_t {
  a,
  b,
  sfa,
  sfb,
  padded_offsets,
  alpha,
  beta,
  bias,
  prob,
  norm_const,
  b_ptrs,
  sfb_ptrs,
  c,
  d,  ///< d_row in dglu
  d_col,
  dprob,
  dbias,
  sfd_row,
  sfd_col,
  amax,
};
constexpr std::size_t role_count = 20;
constexpr std::size_t index(Role role) {
  return static_cast<std::size_t>(role);
}
constexpr Role role_at(std::size_t i) {
  return static_cast<Role>(i);
}
/// Written by the call. srelu's c is an output, dglu's an input.
bool is_output(Op op, Role role);

/// Where the tensors come from decides their names: a_tensor (execute, one call) or sample_a (construction).
enum class Form : std::uint8_t { call, sample };

/// Pointers to the caller's tensors; valid as long as the struct they were taken from.
struct Arguments {
  Op op;
  Form form;
  std::array<const Tensor*, role_count> tensors;

  Arguments(const SreluTensors& t, Form form_);
  Arguments(const DgluTensors& t, Form form_);
  const Tensor& operator[](Role role) const { return *tensors[index(role)]; }
  bool has(Role role) const { return (*this)[role].present(); }
  std::string name(Role role) const;
};

/// DType::none for a role without a tensor.
using DTypes = std::array<DType, role_count>;

/// What the layout of every tensor follows from.
struct Extents {
  Op op = Op::srelu;
  std::int64_t m = 0, n = 0, k = 0, experts = 0;
  int vec = 0;
  DTypes dtypes{};
  bool uint8_counts_values =
      false;  ///< visible extent of a uint8 A or B is K (upstream's reading), not K/2 bytes
  bool b_n_major = false;

  std::int64_t width() const { return op == Op::srelu ? n : 2 * n; }
};

struct Layout {
  int rank = 0;
  std::array<std::int64_t, Tensor::max_rank> shape{}, strides{};
};

/// Shape and strides that `role` must have. Not for b_ptrs and sfb_ptrs in dense mode.
Layout expected_layout(Role role, const Extents& extents);

/// A tensor without data that has the expected layout.
Tensor describe(Role role, const Extents& extents, DType dtype, Device device);

constexpr bool is_fp8(DType t) {
  return t == DType::float8_e4m3fn || t == DType::float8_e5m2;
}
constexpr bool is_fp4(DType t) {
  return t == DType::float4_e2m1fn_x2 || t == DType::uint8;
}
constexpr bool is_16bit(DType t) {
  return t == DType::bfloat16 || t == DType::float16;
}
/// Output scale factors are generated iff A is FP8 and D has 8 or 4 bits.
constexpr bool generates_scales(DType a, DType d) {
  return is_fp8(a) && (is_fp8(d) || d == DType::float4_e2m1fn_x2);
}

}  // namespace gemmule::operators
