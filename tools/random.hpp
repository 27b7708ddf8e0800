// Random numbers by position: value i of stream s of a seed does not depend on the order in which values are drawn, nor
// on the machine's math library.
#pragma once

#include <cmath>
#include <cstdint>

namespace gemmule::cli {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : key_(mix(seed + 0x9e3779b97f4a7c15u * (stream + 1))) {}

  std::uint64_t bits(std::uint64_t index) const { return mix(key_ + index * 0x9e3779b97f4a7c15u); }
  /// In [0, 1), 24 bits.
  float uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 40) * 0x1p-24f; }
  /// Nearly normal, mean 0, variance 1: the sum of four 16-bit uniforms, scaled. Bounded by 3.47.
  float normal(std::uint64_t index) const {
    const std::uint64_t b = bits(index);
    const auto sum =
        static_cast<std::int32_t>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));
    // Variance of one 16-bit uniform is (2^32 - 1) / 12.
    constexpr float scale = 2.6428998e-5f;  // 1 / sqrt(4 * (2^32 - 1) / 12)
    return static_cast<float>(sum - 131070) * scale;
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::uint64_t key_;
};

}  // namespace gemmule::cli
