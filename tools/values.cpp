#include "values.hpp"

#include <cmath>

#include "random.hpp"

namespace gemmule::cli {
namespace {

std::uint64_t index(std::int64_t row, std::int64_t width) {
  return static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(width);
}

class RandomValues final : public Values {
 public:
  RandomValues(std::uint64_t seed, Op op, std::int64_t n, std::int64_t k)
      : n_(n),
        k_(k),
        a_scale_(op == Op::srelu ? 1.0f : 1e-3f),
        b_scale_(1.0f / std::sqrt(static_cast<float>(k))),
        a_(seed, 1),
        b_(seed, 2),
        c_(seed, 3),
        prob_(seed, 4),
        bias_(seed, 5),
        channel_(seed, 6) {}

  void a(std::int64_t row, std::span<float> out) const override {
    for (std::size_t k = 0; k < out.size(); ++k) {
      const float gain = channel_.bits(k) % 64 == 0 ? 8.0f : 1.0f;
      out[k] = a_.normal(index(row, k_) + k) * a_scale_ * gain;
    }
  }
  void b(std::int64_t expert, std::int64_t n, std::span<float> out) const override {
    const std::uint64_t start = index(expert * n_ + n, k_);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = b_.normal(start + k) * b_scale_;
  }
  void c(std::int64_t row, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1.5f * c_.normal(index(row, 2 * n_) + i);
  }
  float prob(std::int64_t row) const override { return prob_.uniform(static_cast<std::uint64_t>(row)); }
  void bias(std::int64_t expert, std::span<float> out) const override {
    for (std::size_t n = 0; n < out.size(); ++n) out[n] = 0.1f * bias_.normal(index(expert, n_) + n);
  }

 private:
  std::int64_t n_, k_;
  float a_scale_, b_scale_;
  Random a_, b_, c_, prob_, bias_, channel_;
};

class ExactValues final : public Values {
 public:
  ExactValues(std::uint64_t seed, const ProblemSpec& spec)
      : n_(spec.n),
        k_(spec.k),
        unit_(spec.format == "nvfp4" ? 2688 * 0x1p-12f : 1.0f),
        act_(option(spec, "act_func")),
        a_(seed, 1),
        b_(seed, 2),
        c_(seed, 3),
        prob_(seed, 4),
        bias_(seed, 5) {}

  void a(std::int64_t row, std::span<float> out) const override { fill(a_, index(row, k_), row == 0, out); }
  void b(std::int64_t expert, std::int64_t n, std::span<float> out) const override {
    fill(b_, index(expert * n_ + n, k_), n == 0, out);
  }
  void c(std::int64_t row, std::span<float> out) const override {
    const std::size_t half = out.size() / 2;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bits = c_.bits(index(row, 2 * n_) + i);
      if (i < half)
        out[i] = static_cast<float>(act_ == "dgeglu" ? bits % 2 : bits % 3) * -128.0f;
      else
        out[i] = act_ == "dsituglu" ? sign(bits) * 256 : static_cast<float>(bits % 5) - 2;
      if (i < half && out[i] == -256) out[i] = 128;
    }
  }
  float prob(std::int64_t row) const override {
    constexpr float choices[] = {1, 0.5f, -1, 2, 0.25f, 0};
    return choices[prob_.bits(static_cast<std::uint64_t>(row)) % 6];
  }
  void bias(std::int64_t expert, std::span<float> out) const override {
    for (std::size_t n = 0; n < out.size(); ++n)
      out[n] = static_cast<float>(bias_.bits(index(expert, n_) + n) % 7) - 3;
  }

 private:
  static std::string option(const ProblemSpec& spec, const char* key) {
    const auto found = spec.options.find(key);
    return found == spec.options.end() ? "" : found->second;
  }
  /// -1, 0 or 1.
  static float sign(std::uint64_t bits) { return static_cast<float>(bits % 3) - 1; }

  /// One value in four is not 0. `first`: a value that fixes the tensor scale of nvfp4 comes first.
  void fill(const Random& random, std::uint64_t start, bool first, std::span<float> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bits = random.bits(start + i);
      out[i] = bits % 4 ? 0.0f : (bits & 16 ? unit_ : -unit_);
    }
    if (first && !out.empty()) out[0] = unit_;
  }

  std::int64_t n_, k_;
  float unit_;
  std::string act_;
  Random a_, b_, c_, prob_, bias_;
};

}  // namespace

std::unique_ptr<Values> random_values(std::uint64_t seed, Op op, std::int64_t n, std::int64_t k) {
  return std::make_unique<RandomValues>(seed, op, n, k);
}

std::unique_ptr<Values> exact_values(std::uint64_t seed, const ProblemSpec& spec) {
  return std::make_unique<ExactValues>(seed, spec);
}

}  // namespace gemmule::cli
