#include "problem_builder.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "gemmule/error.hpp"
#include "gemmule/layout.hpp"
#include "io/options.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

using io::HostTensor;
using io::Shape;

constexpr std::int64_t chunk_rows =
    128;  // scale factors of 128 rows are contiguous, so rows go in such steps

struct Format {
  const char* name;
  DType element, scale;
  int vec;
};
constexpr std::array<Format, 5> formats{{
    {"bf16", DType::bfloat16, DType::none, 16},
    {"mxfp8", DType::float8_e4m3fn, DType::float8_e8m0fnu, 32},
    {"mxfp8_e5m2", DType::float8_e5m2, DType::float8_e8m0fnu, 32},
    {"mxfp4", DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 32},
    {"nvfp4", DType::float4_e2m1fn_x2, DType::float8_e4m3fn, 16},
}};
constexpr std::array<const char*, 5> names{"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"};

Format format_from_name(const std::string& name) {
  for (const Format& format : formats)
    if (name == format.name) return format;
  throw InvalidArgument("format " + io::quote(name) + ": expected bf16, mxfp8, mxfp8_e5m2, mxfp4 or nvfp4");
}

bool is_fp8(DType dtype) {
  return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2;
}

void transpose(const std::byte* in, std::byte* out, std::int64_t rows, std::int64_t cols, std::size_t size) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      std::memcpy(out + static_cast<std::size_t>(c * rows + r) * size,
                  in + static_cast<std::size_t>(r * cols + c) * size, size);
}

class Builder {
 public:
  Builder(const ProblemSpec& spec, const Values& values)
      : spec_(spec), values_(values), format_(format_from_name(spec.format)), options_(spec.options) {}

  io::LoadedProblem build() {
    read_options();
    check_extents();
    offsets_ = pad_offsets(spec_.rows, m_aligned_);
    m_ = offsets_.empty() ? 0 : offsets_.back();
    forms_ = forms();
    check_forms();
    map_rows();
    build_a();
    build_b();
    build_vectors();
    if (spec_.op == Op::dglu) build_c();
    if (!bias_.empty()) build_bias();
    io::LoadedProblem problem = io::load_problem(metadata(), std::move(tensors_));
    io::check_problem(problem);
    return problem;
  }

 private:
  std::string take(const std::string& key, const std::string& otherwise) {
    const auto node = options_.extract(key);
    return node ? node.mapped() : otherwise;
  }

  void read_options() {
    const bool dglu = spec_.op == Op::dglu;
    if (!dglu && format_.scale == DType::none)
      throw InvalidArgument(
          "--format bf16: srelu is block-scaled, expected mxfp8, mxfp8_e5m2, mxfp4 or nvfp4");
    alpha_ = io::parse_float("alpha", take("alpha", "1"));
    if (dglu) beta_ = io::parse_float("beta", take("beta", "1"));
    norm_const_ = io::parse_float("norm_const", take("norm_const", "1"));
    if (!dglu) bias_ = take("bias", "");
    c_dtype_ = io::parse_dtype("c_dtype", take("c_dtype", "bfloat16"));
    if (dglu && c_dtype_ != DType::float32 && c_dtype_ != DType::float16 && c_dtype_ != DType::bfloat16 &&
        !is_fp8(c_dtype_))
      throw InvalidArgument(std::string("c_dtype=") + name(c_dtype_) +
                            ": expected float32, float16, bfloat16, float8_e4m3fn or float8_e5m2");
    weight_mode_ = take("weight_mode", "dense");
    b_major_ = take("b_major", "k");
    const char* d_default = dglu && is_fp8(format_.element) ? "float8_e4m3fn" : "bfloat16";
    d_dtype_ = io::parse_dtype("d_dtype", take("d_dtype", d_default));
    format_.vec = io::parse_int("sf_vec_size", take("sf_vec_size", std::to_string(format_.vec)));
    if (format_.scale != DType::none && format_.vec != 32 &&
        (format_.vec != 16 || format_.element != DType::float4_e2m1fn_x2))
      throw InvalidArgument("sf_vec_size=" + std::to_string(format_.vec) +
                            ": expected 32, or 16 for mxfp4 and nvfp4");
    if (format_.scale == DType::float8_e4m3fn && format_.vec != 16)
      throw InvalidArgument("sf_vec_size=32: nvfp4 has one scale for 16 values");
    if (const auto found = options_.find("m_aligned"); found != options_.end())
      m_aligned_ = io::parse_int("m_aligned", found->second);
    if (m_aligned_ != 256 && m_aligned_ != 128)
      throw InvalidArgument("m_aligned=" + std::to_string(m_aligned_) + ": expected 256 or 128");

    io::SreluArguments srelu;  // names and values are checked before the long work
    io::DgluArguments dglu_arguments;
    for (const auto& [key, value] : options_)
      if (!(dglu ? io::set_option(dglu_arguments, key, value) : io::set_option(srelu, key, value)))
        throw InvalidArgument("unknown option " + io::quote(key) + " for op=" + (dglu ? "dglu" : "srelu"));
  }

  void check_extents() const {
    constexpr std::int64_t limit = std::int64_t{1} << 24;
    for (const auto& [what, extent] : {std::pair("n", spec_.n), std::pair("k", spec_.k)})
      if (extent < 1 || extent > limit)
        throw InvalidArgument(std::string(what) + "=" + std::to_string(extent) + ": expected 1 to 2^24");
    if (format_.element == DType::float4_e2m1fn_x2 && spec_.k % 2)
      throw InvalidArgument("k=" + std::to_string(spec_.k) + ": FP4 needs an even k");
    if (spec_.op == Op::dglu && spec_.n % 32)
      throw InvalidArgument("n=" + std::to_string(spec_.n) + ": dglu needs a multiple of 32");
  }

  /// The tensors of the problem, without their bytes.
  struct Form {
    DType dtype;
    Shape shape;
  };
  std::map<std::string, Form> forms() const {
    const std::int64_t l = experts(), n = spec_.n, k = spec_.k;
    std::map<std::string, Form> all{
        {"a", {stored_dtype(), {m_, stored_k()}}},
        {"b", {stored_dtype(), n_major() ? Shape{l, k, n} : Shape{l, n, stored_k()}}},
        {"padded_offsets", {DType::int32, {l}}},
        {"alpha", {DType::float32, {l}}},
        {"prob", {DType::float32, {m_}}}};
    const auto add_scales = [&](const char* scales, std::int64_t rows, std::int64_t slabs) {
      const auto shape = scale_shape(rows, k, format_.vec, slabs);
      all.insert({scales, {format_.scale, {slabs, shape[2], shape[4], 32, 4, 4}}});
    };
    if (format_.scale != DType::none) {
      add_scales("sfa", m_, 1);
      add_scales("sfb", n, l);
    }
    if (spec_.op == Op::dglu) {
      all.insert({"beta", {DType::float32, {l}}});
      all.insert({"c", {c_dtype_, {m_, 2 * n}}});
      all.insert({"dprob", {DType::float32, {m_}}});
    }
    if (is_fp8(format_.element) && (is_fp8(d_dtype_) || d_dtype_ == DType::float4_e2m1fn_x2))
      all.insert({"norm_const", {DType::float32, {1}}});
    if (!bias_.empty()) all.insert({"bias", {io::parse_dtype("bias", bias_), {l, n}}});
    return all;
  }

  /// Before the long work: would the operator accept them, and does memory hold them?
  void check_forms() const {
    io::TensorMap without_bytes;
    double bytes =
        4.0 * static_cast<double>(spec_.n) * static_cast<double>(spec_.k);  // B of an expert as float32
    for (const auto& [name, form] : forms_) {
      HostTensor& tensor = without_bytes[name];
      tensor.dtype = form.dtype;
      tensor.shape = form.shape;
      bytes += static_cast<double>(tensor.numel()) * static_cast<double>(size_of(form.dtype));
    }
    io::check_form(io::load_problem(metadata(), std::move(without_bytes)));
    const double memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (bytes > memory)
      throw RuntimeFailure("out of memory: the problem takes " + number(bytes / 1e9) + " GB, of " +
                           number(memory / 1e9) + " GB that the machine has");
  }

  HostTensor zeros(const char* name) const {
    const Form& form = forms_.at(name);
    return {form.dtype, form.shape};
  }

  std::int64_t experts() const { return static_cast<std::int64_t>(spec_.rows.size()); }

  /// source_[m] is the token that row m of A holds, or -1 for a padding row.
  void map_rows() {
    source_.assign(static_cast<std::size_t>(m_), -1);
    std::int64_t token = 0, start = 0;
    for (std::size_t e = 0; e < spec_.rows.size(); ++e) {
      for (std::int64_t i = 0; i < spec_.rows[e]; ++i) source_[static_cast<std::size_t>(start + i)] = token++;
      start = offsets_[e];
    }
  }

  /// Calls body(first row, values of up to 128 rows); padding rows are zero.
  template <class Fill, class Body>
  void for_row_chunks(std::int64_t width, Fill fill, Body body) const {
    std::vector<float> chunk(static_cast<std::size_t>(chunk_rows * width));
    for (std::int64_t first = 0; first < m_; first += chunk_rows) {
      const std::int64_t count = std::min(chunk_rows, m_ - first);
      const auto used = std::span(chunk).first(static_cast<std::size_t>(count * width));
      std::fill(used.begin(), used.end(), 0.0f);
      for (std::int64_t r = 0; r < count; ++r)
        if (const std::int64_t token = source_[static_cast<std::size_t>(first + r)]; token >= 0)
          fill(token, used.subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width)));
      body(first, used);
    }
  }

  QuantFormat quant() const { return {format_.element, format_.scale, format_.vec}; }
  bool nvfp4() const { return format_.scale == DType::float8_e4m3fn; }
  DType stored_dtype() const {
    return format_.element == DType::float4_e2m1fn_x2 ? DType::uint8 : format_.element;
  }
  bool n_major() const { return b_major_ == "n" && format_.element != DType::float4_e2m1fn_x2; }
  std::int64_t stored_k() const { return format_.element == DType::float4_e2m1fn_x2 ? spec_.k / 2 : spec_.k; }

  /// Codes and scales of `rows` x K values; BF16 has no scales.
  void encode(std::span<const float> values, std::int64_t rows, std::byte* codes, std::byte* scales,
              float scale) const {
    if (format_.scale == DType::none)
      convert(values, DType::bfloat16, codes);
    else
      quantize_rows(values, rows, spec_.k, quant(), reinterpret_cast<std::uint8_t*>(codes),
                    reinterpret_cast<std::uint8_t*>(scales), scale);
  }

  void build_a() {
    const auto fill = [&](std::int64_t token, std::span<float> row) { values_.a(token, row); };
    a_scale_ = 1;
    if (nvfp4()) {
      float amax = 0;
      for_row_chunks(spec_.k, fill, [&](std::int64_t, std::span<const float> chunk) {
        for (const float value : chunk) amax = std::max(amax, std::fabs(value));
      });
      a_scale_ = nvfp4_tensor_scale({&amax, 1});
    }
    HostTensor a = zeros("a");
    HostTensor scales = format_.scale == DType::none ? HostTensor() : zeros("sfa");
    const std::int64_t row_bytes = stored_k() * static_cast<std::int64_t>(size_of(a.dtype));
    const std::int64_t scales_of_chunk =
        format_.scale == DType::none ? 0 : scale_bytes(chunk_rows, spec_.k, format_.vec);
    for_row_chunks(spec_.k, fill, [&](std::int64_t first, std::span<const float> chunk) {
      encode(chunk, static_cast<std::int64_t>(chunk.size()) / spec_.k, a.bytes.data() + first * row_bytes,
             scales.bytes.data() + first / chunk_rows * scales_of_chunk, a_scale_);
    });
    tensors_.insert_or_assign("a", std::move(a));
    if (format_.scale != DType::none) tensors_.insert_or_assign("sfa", std::move(scales));
  }

  void build_b() {
    const std::int64_t n = spec_.n, k = spec_.k;
    HostTensor b = zeros("b");
    HostTensor scales = format_.scale == DType::none ? HostTensor() : zeros("sfb");
    const std::size_t slab = spec_.rows.empty() ? 0 : b.bytes.size() / spec_.rows.size();
    const std::size_t scale_slab = spec_.rows.empty() ? 0 : scales.bytes.size() / spec_.rows.size();
    std::vector<float> values(static_cast<std::size_t>(n * k));
    io::AlignedBytes k_major(n_major() ? slab : 0);
    b_scale_.assign(spec_.rows.size(), 1.0f);
    for (std::size_t e = 0; e < spec_.rows.size(); ++e) {
      for (std::int64_t row = 0; row < n; ++row)
        values_.b(static_cast<std::int64_t>(e), row,
                  std::span(values).subspan(static_cast<std::size_t>(row * k), static_cast<std::size_t>(k)));
      if (nvfp4()) b_scale_[e] = nvfp4_tensor_scale(values);
      std::byte* out = b.bytes.data() + e * slab;
      encode(values, n, n_major() ? k_major.data() : out, scales.bytes.data() + e * scale_slab, b_scale_[e]);
      if (n_major()) transpose(k_major.data(), out, n, k, size_of(b.dtype));
    }
    tensors_.insert_or_assign("b", std::move(b));
    if (format_.scale != DType::none) tensors_.insert_or_assign("sfb", std::move(scales));
  }

  void build_vectors() {
    HostTensor offsets = zeros("padded_offsets"), alpha = zeros("alpha"), prob = zeros("prob");
    std::copy(offsets_.begin(), offsets_.end(), offsets.as<std::int32_t>().begin());
    // The tensor scales of NVFP4 go into alpha, which dglu squares.
    for (std::size_t e = 0; e < b_scale_.size(); ++e) {
      const float scale = a_scale_ * b_scale_[e];
      alpha.as<float>()[e] = alpha_ * (spec_.op == Op::dglu ? std::sqrt(scale) : scale);
    }
    for (std::size_t m = 0; m < source_.size(); ++m)
      if (source_[m] >= 0) prob.as<float>()[m] = values_.prob(source_[m]);
    tensors_.insert_or_assign("padded_offsets", std::move(offsets));
    tensors_.insert_or_assign("alpha", std::move(alpha));
    tensors_.insert_or_assign("prob", std::move(prob));
    if (spec_.op == Op::dglu) {
      HostTensor beta = zeros("beta");
      std::fill(beta.as<float>().begin(), beta.as<float>().end(), beta_);
      tensors_.insert_or_assign("beta", std::move(beta));
    }
    if (forms_.contains("norm_const")) {
      HostTensor norm_const = zeros("norm_const");
      norm_const.as<float>()[0] = norm_const_;
      tensors_.insert_or_assign("norm_const", std::move(norm_const));
    }
  }

  void build_c() {
    const std::int64_t width = 2 * spec_.n;
    HostTensor c = zeros("c");
    std::vector<float> blocks(static_cast<std::size_t>(chunk_rows * width));
    for_row_chunks(
        width, [&](std::int64_t token, std::span<float> row) { values_.c(token, row); },
        [&](std::int64_t first, std::span<const float> chunk) {
          interleave_gate_input(chunk.data(), blocks.data(), static_cast<std::int64_t>(chunk.size()) / width,
                                spec_.n, sizeof(float));
          convert(std::span(blocks).first(chunk.size()), c_dtype_,
                  c.bytes.data() + first * width * static_cast<std::int64_t>(size_of(c_dtype_)));
        });
    tensors_.insert_or_assign("c", std::move(c));
  }

  void build_bias() {
    HostTensor bias = zeros("bias");
    std::vector<float> row(static_cast<std::size_t>(spec_.n));
    for (std::int64_t e = 0; e < experts(); ++e) {
      values_.bias(e, row);
      convert(row, bias.dtype,
              bias.bytes.data() + e * spec_.n * static_cast<std::int64_t>(size_of(bias.dtype)));
    }
    tensors_.insert_or_assign("bias", std::move(bias));
  }

  io::Metadata metadata() const {
    io::Metadata out{{"op", spec_.op == Op::srelu ? "srelu" : "dglu"},
                     {"ab_dtype", name(format_.element)},
                     {"c_dtype", name(c_dtype_)},
                     {"d_dtype", name(d_dtype_)},
                     {"sf_vec_size", std::to_string(format_.vec)}};
    if (weight_mode_ != "dense") out["weight_mode"] = weight_mode_;
    if (b_major_ != "k") out["b_major"] = b_major_;
    if (!spec_.comment.empty()) out["comment"] = spec_.comment;
    out.insert(options_.begin(), options_.end());
    return out;
  }

  const ProblemSpec& spec_;
  const Values& values_;
  Format format_;
  OptionTexts options_;  ///< what is left for the operator
  float alpha_ = 1, beta_ = 1, norm_const_ = 1;
  DType c_dtype_ = DType::bfloat16, d_dtype_ = DType::bfloat16;
  std::string weight_mode_, b_major_, bias_;
  int m_aligned_ = 256;
  std::vector<std::int32_t> offsets_;
  std::int64_t m_ = 0;
  std::map<std::string, Form> forms_;
  std::vector<std::int64_t> source_;
  float a_scale_ = 1;
  std::vector<float> b_scale_;
  io::TensorMap tensors_;
};

}  // namespace

OptionTexts parse_option_texts(const std::vector<std::string>& texts) {
  OptionTexts out;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || equals == 0)
      throw InvalidArgument("argument " + io::quote(text) + ": expected option=value");
    if (!out.emplace(text.substr(0, equals), text.substr(equals + 1)).second)
      throw InvalidArgument("option " + io::quote(text.substr(0, equals)) + " is given twice");
  }
  return out;
}

std::span<const char* const> format_names() {
  return names;
}

io::LoadedProblem build_problem(const ProblemSpec& spec, const Values& values) {
  return Builder(spec, values).build();
}

void write_problem(const std::string& path, io::LoadedProblem& problem) {
  problem.tensors.erase("dprob");  // zeros, the default
  io::write_safetensors(path, problem.metadata, problem.tensors);
}

std::string option_help() {
  std::string text = "option=value, named as the operators' arguments:\n";
  for (const auto& [op, title] : {std::pair(Op::srelu, "srelu"), std::pair(Op::dglu, "dglu")}) {
    text += std::string("  ") + title + ":";
    for (const auto& [name, form] : io::option_names(op)) text += " " + name + "=" + form;
    text += "\n";
  }
  return text +
         "  both: alpha=number beta=number (dglu) norm_const=number weight_mode=dense|discrete b_major=k|n\n"
         "  c_dtype of dglu is the type of the stored activations; make: bias=dtype (srelu) draws a bias\n";
}

}  // namespace gemmule::cli
