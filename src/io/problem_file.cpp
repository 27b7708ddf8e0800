#include "io/problem_file.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "io/options.hpp"

namespace gemmule::io {
namespace {

constexpr std::int64_t max_extent = std::numeric_limits<std::int32_t>::max();

/// Tensors of the table in docs/formats.md that a problem may hold.
constexpr std::array<std::string_view, 12> tensor_names{
    "a", "b", "sfa", "sfb", "padded_offsets", "alpha", "beta", "prob", "c", "dprob", "norm_const", "bias"};
/// Metadata that is no option of an operator. "format" and "comment" are free text of whoever wrote the file.
constexpr std::array<std::string_view, 7> file_keys{"op",      "ab_dtype", "c_dtype", "weight_mode",
                                                    "b_major", "format",   "comment"};

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::string& required(const Metadata& metadata, std::string_view key, const char* expected) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw InvalidArgument("no metadata " + quote(key) + ", expected " + expected);
  return found->second;
}

std::string optional(const Metadata& metadata, std::string_view key, const char* otherwise) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? otherwise : found->second;
}

/// A strided view of `tensor` under the shape an operator expects.
Tensor view(const HostTensor& tensor, DType dtype, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> strides) {
  return Tensor(tensor.bytes.data(), dtype, shape, strides);
}

/// Finds tensors, checks their form and makes the views.
class Loader {
 public:
  explicit Loader(LoadedProblem& problem) : p_(problem) {}

  void load() {
    read_mode();
    check_names();
    read_extents();
    if (p_.op == Op::srelu) {
      SreluArguments& arguments = p_.arguments.emplace<SreluArguments>();
      set_options(arguments);
      load_shared(arguments);
      arguments.tensors.bias = load_bias();
    } else {
      DgluArguments& arguments = p_.arguments.emplace<DgluArguments>();
      set_options(arguments);
      load_shared(arguments);
      load_dglu(arguments);
    }
  }

 private:
  void read_mode() {
    const std::string& op = required(p_.metadata, "op", "srelu or dglu");
    if (op != "srelu" && op != "dglu")
      throw InvalidArgument("op=" + printable(op) + ": expected srelu or dglu");
    p_.op = op == "srelu" ? Op::srelu : Op::dglu;

    constexpr const char* families = "bfloat16, float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2";
    const std::string& ab = required(p_.metadata, "ab_dtype", families);
    p_.ab = parse_dtype("ab_dtype", ab);
    if (p_.ab != DType::bfloat16 && p_.ab != DType::float8_e4m3fn && p_.ab != DType::float8_e5m2 &&
        p_.ab != DType::float4_e2m1fn_x2)
      throw InvalidArgument("ab_dtype=" + printable(ab) + ": expected " + families);
    fp4_ = p_.ab == DType::float4_e2m1fn_x2;

    const std::string mode = optional(p_.metadata, "weight_mode", "dense");
    if (mode != "dense" && mode != "discrete")
      throw InvalidArgument("weight_mode=" + printable(mode) + ": expected dense or discrete");
    discrete_ = mode == "discrete";
    const std::string major = optional(p_.metadata, "b_major", "k");
    if (major != "k" && major != "n")
      throw InvalidArgument("b_major=" + printable(major) + ": expected k or n");
    b_n_major_ = major == "n";
    if (b_n_major_ && fp4_) throw InvalidArgument("b_major=n: FP4 weights must be k-major");
  }

  void check_names() const {
    for (const auto& [name, tensor] : p_.tensors) {
      if (!contains(tensor_names, name))
        throw InvalidArgument("unknown tensor " + quote(name) + " in a problem file");
      const bool dglu_only = name == "beta" || name == "c" || name == "dprob";
      if (p_.op == Op::srelu ? dglu_only : name == "bias")
        throw InvalidArgument("tensor " + quote(name) +
                              " has no place in op=" + p_.metadata.find("op")->second);
    }
  }

  const HostTensor* find(std::string_view name) const {
    const auto found = p_.tensors.find(name);
    return found == p_.tensors.end() ? nullptr : &found->second;
  }
  const HostTensor& need(std::string_view name) const {
    const HostTensor* tensor = find(name);
    if (!tensor) throw InvalidArgument("no tensor " + quote(name));
    return *tensor;
  }

  const HostTensor& need_rank(std::string_view name, std::size_t rank, const char* form) const {
    const HostTensor& tensor = need(name);
    if (tensor.shape.size() != rank)
      throw InvalidArgument("tensor " + quote(name) + ": shape " + to_string(tensor.shape) + ", expected " +
                            form);
    for (const std::int64_t extent : tensor.shape)
      if (extent > max_extent)
        throw InvalidArgument("tensor " + quote(name) + ": extent " + std::to_string(extent) +
                              ", expected below 2^31");
    return tensor;
  }

  void read_extents() {
    p_.experts = need_rank("padded_offsets", 1, "[L]").shape[0];
    const HostTensor& a = need_rank("a", 2, fp4_ ? "[M, K/2]" : "[M, K]");
    p_.m = a.shape[0];
    stored_k_ = a.shape[1];
    p_.k = fp4_ ? 2 * stored_k_ : stored_k_;
    p_.n = need_rank("b", 3,
                     b_n_major_ ? "[L, K, N]"
                     : fp4_     ? "[L, N, K/2]"
                                : "[L, N, K]")
               .shape[b_n_major_ ? 2 : 1];
    // Without this, tensors of no bytes could ask for any number of rows.
    for (const auto& [what, extent] : {std::pair("K", p_.k), std::pair("N", p_.n)})
      if (extent < 1)
        throw InvalidArgument(std::string(what) + "=" + std::to_string(extent) + ": expected at least 1");
  }

  void check(std::string_view name, const HostTensor& tensor, const Shape& shape,
             std::initializer_list<DType> dtypes, const char* form) const {
    if (tensor.shape != shape)
      throw InvalidArgument("tensor " + quote(name) + ": shape " + to_string(tensor.shape) + ", expected " +
                            form + " = " + to_string(shape));
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) != dtypes.end()) return;
    std::string names;
    for (const DType dtype : dtypes) names += (names.empty() ? "" : " or ") + std::string(name_of(dtype));
    throw InvalidArgument("tensor " + quote(name) + ": dtype " + name_of(tensor.dtype) + ", expected " +
                          names);
  }
  static const char* name_of(DType dtype) { return gemmule::name(dtype); }

  DType stored_ab() const { return fp4_ ? DType::uint8 : p_.ab; }

  template <class Arguments>
  void set_options(Arguments& arguments) {
    for (const auto& [key, value] : p_.metadata)
      if (!contains(file_keys, key) && !set_option(arguments, key, value))
        throw InvalidArgument("unknown option " + quote(key) + " for op=" + p_.metadata.find("op")->second);
    if (p_.op == Op::srelu)
      if (const auto c = p_.metadata.find("c_dtype"); c != p_.metadata.end())
        set_option(arguments, "c_dtype", c->second);
    if (!discrete_) return;
    CommonOptions& options = arguments.options;
    options.num_experts = static_cast<int>(p_.experts);
    options.b_shape = {p_.n, p_.k};
    options.b_dtype = p_.ab;
    options.b_major = b_n_major_ ? Major::n : Major::k;
  }

  template <class Arguments>
  void load_shared(Arguments& arguments) {
    auto& t = arguments.tensors;
    const std::int64_t m = p_.m, n = p_.n, l = p_.experts, sk = stored_k_;
    const HostTensor& a = need("a");
    check("a", a, {m, sk}, {stored_ab()}, "[M, K]");
    t.a = view(a, p_.ab, {m, sk, 1}, {sk, 1, m * sk});

    const HostTensor& b = need("b");
    check("b", b, b_n_major_ ? Shape{l, sk, n} : Shape{l, n, sk}, {stored_ab()},
          b_n_major_ ? "[L, K, N]"
          : fp4_     ? "[L, N, K/2]"
                     : "[L, N, K]");
    if (discrete_)
      t.b_ptrs = pointers(b, p_.b_ptrs);
    else if (b_n_major_)
      t.b = view(b, p_.ab, {n, sk, l}, {1, n, n * sk});
    else
      t.b = view(b, p_.ab, {n, sk, l}, {sk, 1, n * sk});

    const int vec = arguments.options.sf_vec_size;
    if (find("sfa")) t.sfa = load_scales("sfa", m, 1, vec);
    if (find("sfb")) {
      t.sfb = load_scales("sfb", n, l, vec);
      if (discrete_) {
        t.sfb_ptrs = pointers(need("sfb"), p_.sfb_ptrs);
        t.sfb = {};
      }
    }
    t.padded_offsets = load_vector("padded_offsets", l, "[L]", DType::int32);
    t.alpha = load_vector("alpha", l, "[L]", DType::float32);
    if (find("prob")) t.prob = per_row("prob");
    if (find("norm_const")) t.norm_const = load_vector("norm_const", 1, "[1]", DType::float32);
    if (p_.ab != DType::bfloat16) {
      need("sfa");
      need("sfb");
    }
    if (p_.op == Op::srelu || p_.ab == DType::bfloat16) need("prob");
  }

  /// One address per expert into the stacked tensor.
  Tensor pointers(const HostTensor& stacked, std::vector<std::int64_t>& addresses) const {
    const std::size_t count = static_cast<std::size_t>(p_.experts);
    const std::size_t stride = count ? stacked.bytes.size() / count : 0;
    addresses.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      addresses[i] =
          static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stacked.bytes.data() + i * stride));
    return Tensor(addresses.data(), DType::int64, {p_.experts});
  }

  Tensor load_vector(std::string_view name, std::int64_t count, const char* form, DType dtype) const {
    const HostTensor& tensor = need(name);
    check(name, tensor, {count}, {dtype}, form);
    return view(tensor, dtype, {count}, {1});
  }

  Tensor per_row(std::string_view name) const {
    const HostTensor& tensor = need(name);
    check(name, tensor, {p_.m}, {DType::float32}, "[M]");
    return view(tensor, DType::float32, {p_.m, 1, 1}, {1, 1, 1});
  }

  /// Scale factors of `rows` x K values: memory order [L, R, B, 32, 4, 4] of the operator's (32, 4, R, 4, B, L).
  Tensor load_scales(std::string_view name, std::int64_t rows, std::int64_t experts, int vec) const {
    if (vec != 16 && vec != 32)
      throw InvalidArgument("sf_vec_size=" + std::to_string(vec) + ": expected 16 or 32");
    const HostTensor& tensor = need(name);
    const auto shape = scale_shape(rows, p_.k, vec, experts);
    const auto strides = scale_strides(rows, p_.k, vec);
    check(name, tensor, {experts, shape[2], shape[4], 32, 4, 4},
          {DType::float8_e8m0fnu, DType::float8_e4m3fn, DType::uint8}, experts_form(name));
    const DType dtype = tensor.dtype == DType::uint8 ? DType::float8_e8m0fnu : tensor.dtype;
    Tensor out = view(tensor, dtype, {1, 1, 1, 1, 1, 1}, {});
    out.shape = shape;
    out.strides = strides;
    return out;
  }
  static const char* experts_form(std::string_view name) {
    return name == "sfb" ? "[L, ceil(N/128), ceil(K/(4*sf_vec_size)), 32, 4, 4]"
                         : "[1, ceil(M/128), ceil(K/(4*sf_vec_size)), 32, 4, 4]";
  }

  Tensor load_bias() const {
    const HostTensor* bias = find("bias");
    if (!bias) return {};
    check("bias", *bias, {p_.experts, p_.n}, {DType::bfloat16, DType::float16, DType::float32}, "[L, N]");
    return view(*bias, bias->dtype, {p_.n, p_.experts}, {1, p_.n});
  }

  void load_dglu(DgluArguments& arguments) {
    const std::int64_t width = 2 * p_.n;
    const HostTensor& c = need("c");
    check("c", c, {p_.m, width},
          {DType::bfloat16, DType::float16, DType::float32, DType::float8_e4m3fn, DType::float8_e5m2},
          "[M, 2N]");
    if (const auto declared = p_.metadata.find("c_dtype"); declared != p_.metadata.end())
      if (parse_dtype("c_dtype", declared->second) != c.dtype)
        throw InvalidArgument("tensor 'c': dtype " + std::string(name_of(c.dtype)) +
                              ", expected c_dtype=" + printable(declared->second));
    arguments.tensors.c = view(c, c.dtype, {p_.m, width, 1}, {width, 1, width * p_.m});
    arguments.tensors.beta = load_vector("beta", p_.experts, "[L]", DType::float32);
    if (!find("dprob")) p_.tensors.emplace("dprob", HostTensor(DType::float32, {p_.m}));
    arguments.tensors.dprob = per_row("dprob");
  }

  LoadedProblem& p_;
  bool fp4_ = false, discrete_ = false, b_n_major_ = false;
  std::int64_t stored_k_ = 0;  ///< K, or K/2 bytes of FP4
};

}  // namespace

CommonOptions& LoadedProblem::common() {
  return std::visit([](auto& a) -> CommonOptions& { return a.options; }, arguments);
}

LoadedProblem load_problem(Metadata metadata, TensorMap tensors) {
  LoadedProblem problem;
  problem.metadata = std::move(metadata);
  problem.tensors = std::move(tensors);
  Loader(problem).load();
  return problem;
}

LoadedProblem load_problem(const SafetensorsReader& reader) {
  for (const auto& [name, entry] : reader.tensors())
    if (!contains(tensor_names, name))
      throw InvalidArgument(printable(reader.name()) + ": unknown tensor " + quote(name) +
                            " in a problem file");
  TensorMap tensors;
  for (const auto& [name, entry] : reader.tensors()) tensors.emplace(name, reader.read(name));
  try {
    return load_problem(reader.metadata(), std::move(tensors));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(printable(reader.name()) + ": " + error.what());
  }
}

}  // namespace gemmule::io
