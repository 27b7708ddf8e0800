// Presence, extents, layout and formats. Options, memory and values are in rules_memory.cpp and rules_options.cpp.
#include "operators/rules.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "layout/scale_factors.hpp"

namespace gemmule::operators {
namespace {

constexpr std::int64_t max_extent = std::numeric_limits<std::int32_t>::max();
/// Values of one tensor. Keeps every byte count within 64 bits.
constexpr std::int64_t max_values = std::int64_t{1} << 56;

std::string text(const std::array<std::int64_t, Tensor::max_rank>& values, int rank) {
  std::string out = "(";
  for (int i = 0; i < std::min(rank, Tensor::max_rank); ++i)
    out += (i ? ", " : "") + std::to_string(values[static_cast<std::size_t>(i)]);
  return out + (rank == 1 ? ",)" : ")");
}

std::string shape_text(const Tensor& t) {
  return "shape " + text(t.shape, t.rank);
}

std::string list(std::initializer_list<DType> dtypes) {
  std::string out;
  for (const DType t : dtypes) out += (out.empty() ? "" : ", ") + std::string(gemmule::name(t));
  return dtypes.size() > 1 ? "one of " + out : out;
}

bool contains(std::initializer_list<DType> dtypes, DType t) {
  return std::find(dtypes.begin(), dtypes.end(), t) != dtypes.end();
}

/// Every extent and every product of extents is small enough for 64-bit arithmetic on bytes.
void check_size(const Arguments& args, Role role) {
  const Tensor& t = args[role];
  if (t.rank < 0 || t.rank > Tensor::max_rank)
    reject(args.name(role), "rank " + std::to_string(t.rank), "at most " + std::to_string(Tensor::max_rank));
  std::int64_t values = 1;
  for (int i = 0; i < t.rank; ++i) {
    const std::int64_t extent = t.shape[static_cast<std::size_t>(i)];
    if (extent < 0 || extent > max_extent || (extent > 0 && values > max_values / extent))
      reject(args.name(role), shape_text(t), "extents from 0 to 2^31-1 and fewer than 2^56 values");
    values *= std::max<std::int64_t>(extent, 1);
  }
}

void check_rank3(const Arguments& args, Role role, const char* shape) {
  const Tensor& t = args[role];
  if (t.rank != 3) reject(args.name(role), shape_text(t), std::string("shape ") + shape);
}

void check_b_shape(const CommonOptions& o) {
  if (!o.b_shape) reject("b_shape", "None", "(N, K) with discrete weights");
  for (const std::int64_t extent : *o.b_shape)
    if (extent < 0 || extent > max_extent)
      reject("b_shape", "(" + std::to_string((*o.b_shape)[0]) + ", " + std::to_string((*o.b_shape)[1]) + ")",
             "extents from 1 to 2^31-1");
}

/// K of A, see resolve_extents(). `k_of_b` is 0 if B does not tell.
std::int64_t resolve_k(const Arguments& args, int vec, std::int64_t k_of_b) {
  const Tensor& a = args[Role::a];
  const std::int64_t visible = a.shape[1];
  if (a.dtype == DType::float4_e2m1fn_x2) return 2 * visible;
  if (a.dtype != DType::uint8) return visible;
  const auto agrees = [&](std::int64_t k) {
    if (k_of_b > 0) return k == k_of_b;
    const std::int64_t atoms = layout::block_atoms(k, vec);
    for (const Role role : {Role::sfa, Role::sfb})
      if (args.has(role) && (args[role].rank != 6 || args[role].shape[4] != atoms)) return false;
    return true;
  };
  return !agrees(visible) && agrees(2 * visible) ? 2 * visible : visible;
}

}  // namespace

std::string number_text(float value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
std::string number_text(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

void reject(const std::string& argument, const std::string& value, const std::string& rule) {
  throw InvalidArgument(argument + ": " + value + ", expected " + rule);
}

void require(const Arguments& args, Role role, const char* why) {
  if (!args.has(role)) reject(args.name(role), "None", why);
}

bool check_weight_mode(const Arguments& args, const CommonOptions& o) {
  const bool dense = args.has(Role::b);
  const bool discrete = args.has(Role::b_ptrs) || (args.form == Form::sample && o.num_experts);
  const std::string b = args.name(Role::b);
  const std::string other = args.form == Form::sample ? "num_experts" : "b_ptrs";
  if (dense && discrete) reject(b + ", " + other, "both given", "one of them: dense or discrete weights");
  if (!dense && !discrete)
    reject(b + ", " + other, "neither given", "one of them: dense or discrete weights");
  if (dense) {
    if (o.b_shape) reject("b_shape", "given", "None (dense mode forbids n and b_shape)");
    if (o.b_dtype != DType::none)
      reject("b_dtype", gemmule::name(o.b_dtype), "None (dense mode forbids b_dtype)");
    return false;
  }
  if (o.num_experts && *o.num_experts < 1) reject("num_experts", std::to_string(*o.num_experts), "1 to 1024");
  check_b_shape(o);
  if (o.b_dtype == DType::none) reject("b_dtype", "None", "the dtype of the weights with discrete weights");
  return true;
}

void check_scale_source(const Arguments& args, bool discrete) {
  if (discrete) {
    if (args.has(Role::sfb)) reject(args.name(Role::sfb), "given", "None with discrete weights");
    if (args.form == Form::call) require(args, Role::sfb_ptrs, "a tensor with discrete weights");
  } else {
    if (args.has(Role::sfb_ptrs)) reject(args.name(Role::sfb_ptrs), "given", "None with dense weights");
    require(args, Role::sfb, "a tensor with dense weights");
  }
}

bool check_all_scales_or_none(const Arguments& args) {
  const bool row = args.has(Role::sfd_row), col = args.has(Role::sfd_col), norm = args.has(Role::norm_const);
  if (row != col || row != norm) {
    const auto state = [](bool given) { return std::string(given ? "given" : "None"); };
    reject(args.name(Role::sfd_row) + ", " + args.name(Role::sfd_col) + ", " + args.name(Role::norm_const),
           state(row) + ", " + state(col) + ", " + state(norm), "all of them or none");
  }
  if (row && !args.has(Role::d_col))
    reject(args.name(Role::d_col), "None", "a tensor where output scale factors are generated");
  return row;
}

void check_scale_outputs(const Arguments& args, bool given) {
  const bool wanted = generates_scales(args[Role::a].dtype, args[Role::d].dtype);
  if (wanted && !given)
    reject(args.name(Role::norm_const), "None", "a tensor, required for FP8 input/FP8 output");
  if (!wanted && given)
    reject(args.name(Role::sfd_row), "given",
           "None: output scale factors exist only for FP8 input and 8- or 4-bit output");
}

void reject_scale_control(const std::string& control, const std::string& value, const std::string& neutral) {
  reject(control, value, neutral + ": BF16 forbids scale control " + control);
}

void check_no_scale_controls(const Arguments& args, std::initializer_list<Role> roles) {
  for (const Role role : roles)
    if (args.has(role)) reject_scale_control(args.name(role), "given", "None");
}

Extents resolve_extents(const Arguments& args, const CommonOptions& o, bool discrete) {
  for (std::size_t i = 0; i < role_count; ++i)
    if (args.has(role_at(i))) check_size(args, role_at(i));
  check_rank3(args, Role::a, "(M, K, 1)");
  if (o.sf_vec_size != 16 && o.sf_vec_size != 32) check_sf_vec_size(args, o.sf_vec_size);
  const Tensor& offsets = args[Role::padded_offsets];
  if (offsets.rank != 1) reject(args.name(Role::padded_offsets), shape_text(offsets), "shape (L,)");

  Extents e;
  e.op = args.op;
  e.vec = o.sf_vec_size;
  e.m = args[Role::a].shape[0];
  e.experts = offsets.shape[0];
  for (std::size_t i = 0; i < role_count; ++i) e.dtypes[i] = args[role_at(i)].dtype;

  const std::int64_t k_of_b = discrete ? (*o.b_shape)[1] : 0;
  e.k = resolve_k(args, e.vec, k_of_b);
  e.uint8_counts_values = args[Role::a].dtype == DType::uint8 && e.k == args[Role::a].shape[1];
  if (discrete) {
    e.n = (*o.b_shape)[0];
    if (k_of_b != 0 && k_of_b != e.k)
      reject("b_shape", "K = " + std::to_string(k_of_b),
             std::to_string(e.k) + " as in " + args.name(Role::a));
  } else {
    check_rank3(args, Role::b, "(N, K, L)");
    const Tensor& b = args[Role::b];
    e.n = b.shape[0];
    e.b_n_major = is_fp8(b.dtype) && b.shape[0] > 1 && b.strides[0] == 1;
    if (b.shape[1] != args[Role::a].shape[1])
      reject(args.name(Role::b), shape_text(b),
             "K = " + std::to_string(args[Role::a].shape[1]) + " as in " + args.name(Role::a));
  }
  const std::string b = discrete ? "b_shape" : args.name(Role::b);
  if (e.n < 1) reject(b, "N = " + std::to_string(e.n), "at least 1");
  if (e.k < 1) reject(b, "K = " + std::to_string(e.k), "at least 1");
  for (const std::int64_t other : {e.m, e.k})
    if (other > max_values / 2 / e.n)
      reject(b, "N = " + std::to_string(e.n), "fewer than 2^55 values in every matrix");
  return e;
}

std::int64_t max_rows(const Extents& e) {
  return std::min(max_extent, max_values / 2 / std::max(e.n, e.k));
}

void check_shape(const Arguments& args, Role role, const Extents& e) {
  const Tensor& t = args[role];
  if (!t.present()) return;
  const Layout want = expected_layout(role, e);
  const auto all_ones = [&] {
    return t.rank >= 1 &&
           std::all_of(t.shape.begin(), t.shape.begin() + t.rank, [](auto x) { return x == 1; });
  };
  if (role == Role::norm_const && all_ones()) return;  // trailing extents of 1 do not matter
  if (t.rank != want.rank || !std::equal(t.shape.begin(), t.shape.begin() + t.rank, want.shape.begin()))
    reject(args.name(role), shape_text(t), "shape " + text(want.shape, want.rank));
}

void check_strides(const Arguments& args, Role role, const Extents& e) {
  const Tensor& t = args[role];
  if (!t.present() || role == Role::norm_const) return;
  for (int i = 0; i < t.rank; ++i)
    if (t.shape[static_cast<std::size_t>(i)] == 0) return;
  if (role == Role::prob && e.op == Op::srelu) {
    if (t.shape[0] > 1 && (t.strides[0] < 0 || t.strides[0] > max_values / t.shape[0]))
      reject(args.name(role), "strides " + text(t.strides, t.rank), "a first stride from 0 to 2^56 / M");
    return;
  }
  const Layout want = expected_layout(role, e);
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i)
    if (t.shape[i] > 1 && t.strides[i] != want.strides[i])
      reject(args.name(role), "strides " + text(t.strides, t.rank),
             "strides " + text(want.strides, want.rank));
}

void check_pointer_array(const Arguments& args, Role role, std::int64_t experts) {
  const Tensor& t = args[role];
  const std::string name = args.name(role);
  if (t.rank != 1) reject(name, shape_text(t), "shape (L,)");
  if (t.dtype != DType::int64)
    reject(name, std::string("dtype ") + gemmule::name(t.dtype), "int64 (" + name + " must be int64)");
  if (t.shape[0] != experts)
    reject(name, "length " + std::to_string(t.shape[0]),
           std::to_string(experts) + ", one per expert (" + name + " length mismatch)");
  if (experts > 1 && t.strides[0] != 1)
    reject(name, "stride " + std::to_string(t.strides[0]), "1 (contiguous)");
}

void check_pointer_arrays(const Arguments& args, std::int64_t experts) {
  for (const Role role : {Role::b_ptrs, Role::sfb_ptrs})
    if (args.has(role)) check_pointer_array(args, role, experts);
}

void check_row_bytes(const std::string& argument, std::int64_t values, DType dtype) {
  const std::int64_t bits = is_fp4(dtype) ? 4 : 8 * static_cast<std::int64_t>(size_of(dtype));
  if (values * bits % 128 == 0) return;
  const std::int64_t bytes = values * bits / 8;
  reject(argument,
         std::to_string(values) + " contiguous values (row pitch " + std::to_string(bytes) +
             " B is not a multiple of 16)",
         "a multiple of " + std::to_string(128 / bits) + " values of " + gemmule::name(dtype));
}

void check_operand_row_bytes(const Arguments& args, const Extents& e, bool discrete) {
  const DType ab = args[Role::a].dtype;
  check_row_bytes(args.name(Role::a), e.k, ab);
  check_row_bytes(discrete ? "b_shape" : args.name(Role::b), e.b_n_major ? e.n : e.k, ab);
  for (const Role role : {Role::d, Role::c}) check_row_bytes(args.name(role), e.width(), args[role].dtype);
}

void check_dtype(const Arguments& args, Role role, std::initializer_list<DType> allowed,
                 const char* context) {
  const Tensor& t = args[role];
  if (!t.present() || contains(allowed, t.dtype)) return;
  const std::string dtype = gemmule::name(t.dtype), rule = list(allowed) + context;
  if (args.form == Form::call && is_output(args.op, role) && (role == Role::c || role == Role::d))
    reject(role == Role::c ? "c_dtype" : "d_dtype", dtype, rule);
  reject(args.name(role), "dtype " + dtype, rule);
}

void check_same_dtype(const Arguments& args, Role role, Role as) {
  const Tensor& t = args[role];
  if (t.present() && t.dtype != args[as].dtype)
    reject(args.name(role), std::string("dtype ") + gemmule::name(t.dtype),
           std::string(gemmule::name(args[as].dtype)) + " as " + args.name(as));
}

void check_b_dtype(const Arguments& args, const CommonOptions& o, bool discrete) {
  if (!discrete) return check_same_dtype(args, Role::b, Role::a);
  if (o.b_dtype != args[Role::a].dtype)
    reject("b_dtype", gemmule::name(o.b_dtype),
           std::string(gemmule::name(args[Role::a].dtype)) + " as " + args.name(Role::a));
}

void check_sf_vec_size(const Arguments& args, int vec) {
  if (vec != 16 && vec != 32) reject("sf_vec_size", std::to_string(vec), "16 or 32");
  if (vec == 32 && args[Role::sfa].dtype == DType::float8_e4m3fn)
    reject("sf_vec_size", "32", "16 with e4m3 scale factors");
  if (vec == 16 && is_fp8(args[Role::a].dtype)) reject("sf_vec_size", "16", "32 with FP8 input");
}

}  // namespace gemmule::operators
