// Tensor descriptions of legal calls, made from the documents' tables without the library's own layout code, and host
// memory for them. Tests change one thing at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gemmule/gemmule.hpp"

namespace gemmule::operators_test {

inline constexpr DType fp4 = DType::float4_e2m1fn_x2, u8 = DType::uint8, e4m3 = DType::float8_e4m3fn,
                       e5m2 = DType::float8_e5m2, e8m0 = DType::float8_e8m0fnu, bf16 = DType::bfloat16,
                       f16 = DType::float16, f32 = DType::float32, none = DType::none;

inline bool is_one_of(DType t, std::initializer_list<DType> set) {
  for (const DType x : set)
    if (x == t) return true;
  return false;
}

/// (rows, cols, depth) with contiguous columns; cols counts values, the shape what is stored.
inline Tensor matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t depth = 1) {
  const std::int64_t stored = is_one_of(dtype, {fp4, u8}) ? cols / 2 : cols;
  return Tensor(nullptr, dtype, {rows, stored, depth}, {stored, 1, rows * stored});
}

/// (32, 4, R, 4, B, depth): one byte per `vec` values.
inline Tensor scale_tensor(std::int64_t rows, std::int64_t length, int vec, DType dtype,
                           std::int64_t depth = 1) {
  const std::int64_t r = (rows + 127) / 128, b = ((length + vec - 1) / vec + 3) / 4;
  return Tensor(nullptr, dtype, {32, 4, r, 4, b, depth}, {16, 4, 512 * b, 1, 512, 512 * b * r});
}

/// What both operators' cases share. The row counts of the experts are groups.
struct CaseBase {
  std::vector<std::int32_t> groups = {256, 0, 256};
  std::int64_t tail = 0;  ///< rows of A past the last group
  std::int64_t n = 128, k = 128;
  DType a = e4m3, scale = e8m0, c = bf16, d = bf16;
  int vec = 32;
  bool discrete = false;

  std::int64_t experts() const { return static_cast<std::int64_t>(groups.size()); }
  std::int64_t rows() const {
    std::int64_t sum = tail;
    for (const std::int32_t g : groups) sum += g;
    return sum;
  }
};

struct SreluCase : CaseBase {
  bool scales = false;  ///< sfd_row, sfd_col, norm_const and d_col
  bool amax = true;
  DType bias = none;
  SreluOptions options{};

  /// As given to execute() or, without outputs, to the one-call form.
  SreluTensors tensors() const {
    SreluTensors t;
    const std::int64_t m = rows(), l = experts();
    t.a = matrix(m, k, a);
    t.sfa = scale_tensor(m, k, vec, scale);
    if (discrete) {
      t.b_ptrs = t.sfb_ptrs = Tensor(nullptr, DType::int64, {l});
    } else {
      t.b = matrix(n, k, a, l);
      t.sfb = scale_tensor(n, k, vec, scale, l);
    }
    t.padded_offsets = Tensor(nullptr, DType::int32, {l});
    t.alpha = Tensor(nullptr, f32, {l});
    t.prob = Tensor(nullptr, f32, {m, 1, 1}, {1, 1, 1});
    if (bias != none) t.bias = Tensor(nullptr, bias, {n, l}, {1, n});
    t.c = matrix(m, n, c);
    t.d = matrix(m, n, d);
    if (amax) t.amax = Tensor(nullptr, f32, {l, 1}, {1, 1});
    if (scales) {
      t.d_col = matrix(m, n, d);
      t.sfd_row = scale_tensor(m, n, 32, scale);
      t.sfd_col = scale_tensor(n, m, 32, scale);
      t.norm_const = Tensor(nullptr, f32, {1});
    }
    return t;
  }

  SreluOptions opts() const {
    SreluOptions o = options;
    o.sf_vec_size = vec;
    if (discrete) {
      o.num_experts = static_cast<int>(experts());
      o.b_shape = {n, k};
      o.b_dtype = a;
    }
    return o;
  }

  SreluCall call() const {
    SreluCall out;
    out.c_dtype = c;
    out.d_dtype = d;
    return out;
  }
};

struct DgluCase : CaseBase {
  bool scales = false, amax = true, dbias = false, prob = true, dprob = true;
  DgluOptions options{};

  bool block_scaled() const { return a != bf16; }

  DgluTensors tensors() const {
    DgluTensors t;
    const std::int64_t m = rows(), l = experts();
    t.a = matrix(m, k, a);
    if (discrete)
      t.b_ptrs = Tensor(nullptr, DType::int64, {l});
    else
      t.b = matrix(n, k, a, l);
    if (block_scaled()) {
      t.sfa = scale_tensor(m, k, vec, scale);
      if (discrete)
        t.sfb_ptrs = Tensor(nullptr, DType::int64, {l});
      else
        t.sfb = scale_tensor(n, k, vec, scale, l);
    }
    t.c = matrix(m, 2 * n, c);
    t.padded_offsets = Tensor(nullptr, DType::int32, {l});
    t.alpha = t.beta = Tensor(nullptr, f32, {l});
    if (prob) t.prob = Tensor(nullptr, f32, {m, 1, 1}, {1, 1, 1});
    if (dprob) t.dprob = Tensor(nullptr, f32, {m, 1, 1}, {1, 1, 1});
    if (dbias) t.dbias = Tensor(nullptr, bf16, {l, 2 * n, 1}, {2 * n, 1, 1});
    t.d_row = matrix(m, 2 * n, d);
    if (amax && block_scaled()) t.amax = Tensor(nullptr, f32, {l, 2, 1}, {2, 1, 1});
    if (scales) {
      t.d_col = matrix(m, 2 * n, d);
      t.sfd_row = scale_tensor(m, 2 * n, 32, scale);
      t.sfd_col = scale_tensor(2 * n, m, 32, scale);
      t.norm_const = Tensor(nullptr, f32, {1});
    }
    return t;
  }

  DgluOptions opts() const {
    DgluOptions o = options;
    o.sf_vec_size = block_scaled() ? vec : 16;
    if (discrete) {
      o.num_experts = static_cast<int>(experts());
      o.b_shape = {n, k};
      o.b_dtype = a;
    }
    return o;
  }

  DgluCall call() const {
    DgluCall out;
    out.d_dtype = d;
    out.generate_dbias = dbias;
    return out;
  }
};

/// One-call arguments: the outputs are taken away.
inline SreluTensors inputs_of(SreluTensors t) {
  t.c = t.d = t.d_col = t.sfd_row = t.sfd_col = t.amax = Tensor{};
  return t;
}
inline DgluTensors inputs_of(DgluTensors t) {
  t.d_row = t.d_col = t.dbias = t.amax = t.sfd_row = t.sfd_col = Tensor{};
  return t;
}

/// The tensors that a class is constructed from: pointers come later.
template <class Tensors>
Tensors samples_of(Tensors t) {
  t.b_ptrs = t.sfb_ptrs = Tensor{};
  return t;
}

struct Named {
  std::string name;  ///< the documents' name without prefix or suffix
  Tensor* tensor;
};
inline std::vector<Named> named(SreluTensors& t) {
  return {{"a", &t.a},
          {"b", &t.b},
          {"sfa", &t.sfa},
          {"sfb", &t.sfb},
          {"alpha", &t.alpha},
          {"padded_offsets", &t.padded_offsets},
          {"bias", &t.bias},
          {"prob", &t.prob},
          {"b_ptrs", &t.b_ptrs},
          {"sfb_ptrs", &t.sfb_ptrs},
          {"c", &t.c},
          {"norm_const", &t.norm_const},
          {"d", &t.d},
          {"d_col", &t.d_col},
          {"amax", &t.amax},
          {"sfd_row", &t.sfd_row},
          {"sfd_col", &t.sfd_col}};
}
inline std::vector<Named> named(DgluTensors& t) {
  return {{"a", &t.a},           {"b", &t.b},
          {"sfa", &t.sfa},       {"sfb", &t.sfb},
          {"alpha", &t.alpha},   {"padded_offsets", &t.padded_offsets},
          {"beta", &t.beta},     {"prob", &t.prob},
          {"b_ptrs", &t.b_ptrs}, {"sfb_ptrs", &t.sfb_ptrs},
          {"c", &t.c},           {"norm_const", &t.norm_const},
          {"d_row", &t.d_row},   {"d_col", &t.d_col},
          {"amax", &t.amax},     {"sfd_row", &t.sfd_row},
          {"dprob", &t.dprob},   {"sfd_col", &t.sfd_col},
          {"dbias", &t.dbias}};
}

inline std::string sample_name(const std::string& base) {
  return base == "b_ptrs" || base == "sfb_ptrs" ? base : "sample_" + base;
}
inline std::string call_name(const std::string& base) {
  return base == "b_ptrs" || base == "sfb_ptrs" || base == "padded_offsets" ? base : base + "_tensor";
}

/// 256-byte aligned host memory, freed with the object.
class HostMemory {
 public:
  void* allocate(std::size_t bytes, int fill = 0) {
    const std::size_t size = (bytes / 256 + 1) * 256;
    blocks_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(256, size)));
    std::memset(blocks_.back().get(), fill, size);
    return blocks_.back().get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::deque<std::unique_ptr<std::byte, Free>> blocks_;
};

/// Gives every present tensor zeroed memory, offsets and pointers their values, norm_const 1, outputs poison.
template <class Tensors, class Case>
void place(Tensors& t, const Case& c, HostMemory& memory) {
  for (const Named& x : named(t)) {
    if (!*x.tensor) continue;
    const bool output =
        x.name == "d" || x.name == "d_row" || x.name == "d_col" || x.name == "sfd_row" || x.name == "sfd_col";
    x.tensor->data = memory.allocate(x.tensor->bytes(), output ? 0x5A : 0);
  }
  std::int32_t end = 0;
  for (std::size_t g = 0; g < c.groups.size(); ++g)
    static_cast<std::int32_t*>(t.padded_offsets.data)[g] = end += c.groups[g];
  if (t.norm_const) *static_cast<float*>(t.norm_const.data) = 1.0f;
  const auto point = [&](Tensor& pointers, std::size_t bytes) {
    if (!pointers) return;
    for (std::int64_t g = 0; g < c.experts(); ++g)
      static_cast<std::int64_t*>(pointers.data)[g] = reinterpret_cast<std::int64_t>(memory.allocate(bytes));
  };
  point(t.b_ptrs, matrix(c.n, c.k, c.a).bytes());
  if (t.sfb_ptrs) point(t.sfb_ptrs, scale_tensor(c.n, c.k, c.vec, c.scale).bytes());
}

/// Name of the exception's type and its message; empty if nothing was thrown.
inline std::string failure(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& e) {
    return std::string("InvalidArgument: ") + e.what();
  } catch (const Unsupported& e) {
    return std::string("Unsupported: ") + e.what();
  } catch (const RuntimeFailure& e) {
    return std::string("RuntimeFailure: ") + e.what();
  }
  return {};
}

inline std::string support_failure(const SreluTensors& samples, const SreluOptions& options) {
  return failure([&] { GroupedGemmSrelu(samples, options).check_support(); });
}
inline std::string support_failure(const DgluTensors& samples, const DgluOptions& options) {
  return failure([&] { GroupedGemmDglu(samples, options).check_support(); });
}
template <class Case>
std::string support_failure(const Case& c) {
  return support_failure(samples_of(c.tensors()), c.opts());
}
/// Of the one-call form's checks.
template <class Case>
std::string call_failure(const Case& c) {
  return failure([&] { describe_outputs(inputs_of(c.tensors()), c.opts(), c.call()); });
}

}  // namespace gemmule::operators_test
