#include "capture.hpp"

#include <algorithm>

#include "gemmule/error.hpp"

namespace gemmule::cli {
namespace {

struct Activation {
  const char* name;
  Op op;
  OptionTexts options;
};

const std::vector<Activation>& activations() {
  static const std::vector<Activation> table{
      {"srelu", Op::srelu, {}},
      {"srelu_clamp", Op::srelu, {{"tanh_clamp_scale", "8"}}},
      {"swiglu", Op::dglu, {{"act_func", "dswiglu"}}},
      {"geglu",
       Op::dglu,
       {{"act_func", "dgeglu"},
        {"geglu_alpha", "1.702"},
        {"glu_clamp_max", "7"},
        {"glu_clamp_min", "-7"},
        {"linear_offset", "1"},
        {"geglu_filter", "mask"}}},
      {"situglu", Op::dglu, {{"act_func", "dsituglu"}, {"situ_beta1", "4"}, {"situ_beta2", "25"}}},
  };
  return table;
}

const Activation& find_activation(const std::string& name) {
  std::string names;
  for (const Activation& activation : activations()) {
    if (name == activation.name) return activation;
    names += (names.empty() ? "" : ", ") + std::string(activation.name);
  }
  throw InvalidArgument("metadata activation=" + io::printable(name) + ": expected one of " + names);
}

}  // namespace

Capture::Capture(const std::string& path) : reader_(path) {
  try {
    load();
  } catch (const InvalidArgument& error) {
    const std::string what = error.what();
    const std::string prefix = io::printable(path) + ": ";
    throw InvalidArgument(what.starts_with(prefix) ? what : prefix + what);
  }
}

io::HostTensor Capture::read(const char* name, const io::Shape& shape, const char* form) const {
  const io::Entry& entry = reader_.entry(name);
  if (entry.shape != shape)
    throw InvalidArgument(std::string("tensor '") + name + "': shape " + io::to_string(entry.shape) +
                          ", expected " + form + " = " + io::to_string(shape));
  if (entry.dtype != DType::bfloat16 && entry.dtype != DType::float16 && entry.dtype != DType::float32)
    throw InvalidArgument(std::string("tensor '") + name + "': dtype " + gemmule::name(entry.dtype) +
                          ", expected bfloat16, float16 or float32");
  return reader_.read(name);
}

void Capture::load() {
  const auto found = reader_.metadata().find("activation");
  if (found == reader_.metadata().end()) throw InvalidArgument("no metadata 'activation': not a capture");
  const Activation& activation = find_activation(found->second);
  activation_ = activation.name;
  op_ = activation.op;

  const io::Entry& counts = reader_.entry("tokens_per_expert");
  if (counts.shape.size() != 1 || (counts.dtype != DType::int32 && counts.dtype != DType::int64))
    throw InvalidArgument("tensor 'tokens_per_expert': expected [L] of int32 or int64");
  const io::HostTensor stored = reader_.read("tokens_per_expert");
  for (std::size_t e = 0; e < static_cast<std::size_t>(counts.shape[0]); ++e) {
    const std::int64_t count =
        counts.dtype == DType::int32 ? stored.as<std::int32_t>()[e] : stored.as<std::int64_t>()[e];
    if (count < 0 || count > INT32_MAX - tokens_)
      throw InvalidArgument("tensor 'tokens_per_expert': count " + std::to_string(count) +
                            ", expected non-negative counts that sum to less than 2^31");
    rows_.push_back(count);
    tokens_ += count;
  }
  const auto experts = static_cast<std::int64_t>(rows_.size());

  const bool forward = op_ == Op::srelu;
  const char* weights = forward ? "w1" : "w2";
  const io::Entry& w = reader_.entry(weights);
  if (w.shape.size() != 3)
    throw InvalidArgument(std::string("tensor '") + weights + "': shape " + io::to_string(w.shape) +
                          (forward ? ", expected [L, N, K]" : ", expected [L, K, N]"));
  n_ = w.shape[forward ? 1 : 2];
  k_ = w.shape[forward ? 2 : 1];
  const io::HostTensor stacked =
      forward ? read("w1", {experts, n_, k_}, "[L, N, K]") : read("w2", {experts, k_, n_}, "[L, K, N]");
  b_.resize(static_cast<std::size_t>(stacked.numel()));
  convert(stacked.bytes.data(), stacked.dtype, b_);
  if (!forward) {  // B of dglu is w2 transposed
    std::vector<float> transposed(b_.size());
    for (std::int64_t e = 0; e < experts; ++e)
      for (std::int64_t k = 0; k < k_; ++k)
        for (std::int64_t n = 0; n < n_; ++n)
          transposed[static_cast<std::size_t>((e * n_ + n) * k_ + k)] =
              b_[static_cast<std::size_t>((e * k_ + k) * n_ + n)];
    b_ = std::move(transposed);
  }
  a_ = read(forward ? "x" : "dy", {tokens_, k_}, "[tokens, K]");
  if (!forward) c_ = read("z", {tokens_, 2 * n_}, "[tokens, 2N]");
  const io::HostTensor prob = read("prob", {tokens_}, "[tokens]");
  prob_.resize(static_cast<std::size_t>(tokens_));
  convert(prob.bytes.data(), prob.dtype, prob_);
}

OptionTexts Capture::options() const {
  return find_activation(activation_).options;
}

std::vector<float> Capture::expected(const std::string& name) const {
  if (!reader_.has(name)) return {};
  const io::Shape shape = name == "expected_dprob" ? io::Shape{tokens_}
                          : name == "expected_dz"  ? io::Shape{tokens_, 2 * n_}
                                                   : io::Shape{tokens_, n_};
  const io::HostTensor stored = read(name.c_str(), shape, "the capture's own rows and columns");
  std::vector<float> out(static_cast<std::size_t>(stored.numel()));
  convert(stored.bytes.data(), stored.dtype, out);
  return out;
}

void Capture::copy_row(const io::HostTensor& from, std::int64_t row, std::span<float> out) const {
  const std::size_t bytes = out.size() * size_of(from.dtype);
  convert(from.bytes.data() + static_cast<std::size_t>(row) * bytes, from.dtype, out);
}

void Capture::a(std::int64_t row, std::span<float> k) const {
  copy_row(a_, row, k);
}
void Capture::b(std::int64_t expert, std::int64_t n, std::span<float> k) const {
  const auto start = b_.begin() + (expert * n_ + n) * k_;
  std::copy(start, start + k_, k.begin());
}
void Capture::c(std::int64_t row, std::span<float> gate_and_input) const {
  copy_row(c_, row, gate_and_input);
}
float Capture::prob(std::int64_t row) const {
  return prob_[static_cast<std::size_t>(row)];
}
void Capture::bias(std::int64_t, std::span<float>) const {
  throw InvalidArgument("option 'bias': a capture has no bias");
}

}  // namespace gemmule::cli
