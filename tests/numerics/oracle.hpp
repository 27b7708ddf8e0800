// Independent oracle of the number formats: tables of values in double, built from the definition of each format, and
// nearest-value search over them. Shares nothing with src/numerics.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace gemmule::oracle {

inline float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t to_bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// A sign-magnitude format. value[c] is the value of magnitude code c, in increasing order; the last entry is where a
/// format with infinities has infinity: the power of two above its largest value.
struct Format {
  std::string name;
  int sign_shift = 0;
  std::uint32_t infinity_code = 0;  ///< 0: none
  std::uint32_t nan_code = 0;
  std::vector<double> value;
  /// Largest float32 magnitude, as bits, that still rounds to code c. As long as value.
  std::vector<std::uint32_t> last;

  std::uint32_t magnitude_code(std::uint32_t magnitude_bits) const {
    if (magnitude_bits > 0x7F800000u) return nan_code;
    const auto it = std::lower_bound(last.begin(), last.end(), magnitude_bits);
    return static_cast<std::uint32_t>(it - last.begin());
  }
  /// Rounds to nearest, ties to the even code.
  std::uint32_t encode(float x) const {
    const std::uint32_t magnitude = to_bits(x) & 0x7FFFFFFFu;
    const std::uint32_t code = magnitude_code(magnitude);
    return std::isnan(x) ? code : code | (to_bits(x) >> 31) << sign_shift;
  }
};

/// `finite_codes` magnitude codes are finite numbers. Above them a format saturates, or rounds to `infinity_code`.
inline Format make_format(std::string name, int exponent_bits, int mantissa_bits, int bias,
                          std::uint32_t finite_codes, bool saturates, std::uint32_t infinity_code,
                          std::uint32_t nan_code) {
  Format f{std::move(name), exponent_bits + mantissa_bits, infinity_code, nan_code, {}, {}};
  const double steps = std::ldexp(1.0, mantissa_bits);
  for (std::uint32_t code = 0; code < finite_codes + (saturates ? 0 : 1); ++code) {
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const double mantissa = std::fmod(code, steps) / steps;
    f.value.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias)
                                    : std::ldexp(1.0 + mantissa, exponent - bias));
  }
  for (std::size_t code = 0; code + 1 < f.value.size(); ++code) {
    const double middle = (f.value[code] + f.value[code + 1]) / 2;  // exact, and a float32
    const std::uint32_t bits = to_bits(static_cast<float>(middle));
    f.last.push_back(code % 2 == 0 ? bits : bits - 1);
  }
  f.last.push_back(0x7F800000u);  // everything above saturates, or is infinity
  return f;
}

inline const Format& e2m1() {
  static const Format f = make_format("e2m1", 2, 1, 1, 8, true, 0, 0x7);
  return f;
}
inline const Format& e4m3() {
  static const Format f = make_format("e4m3", 4, 3, 7, 0x7F, true, 0, 0x7F);
  return f;
}
inline const Format& e5m2() {
  static const Format f = make_format("e5m2", 5, 2, 15, 0x7C, true, 0x7C, 0x7F);
  return f;
}
inline const Format& fp16() {
  static const Format f = make_format("fp16", 5, 10, 15, 0x7C00, false, 0x7C00, 0x7FFF);
  return f;
}
inline const Format& bf16() {
  static const Format f = make_format("bf16", 8, 7, 127, 0x7F80, false, 0x7F80, 0x7FFF);
  return f;
}

/// Scales: the smallest power of two that is not below |x|.
inline std::uint32_t encode_e8m0(float x) {
  if (std::isnan(x)) return 0xFF;
  static const std::vector<double> powers = [] {
    std::vector<double> p;
    for (int c = 0; c < 255; ++c) p.push_back(std::ldexp(1.0, c - 127));
    return p;
  }();
  const auto it = std::lower_bound(powers.begin(), powers.end(), std::fabs(static_cast<double>(x)));
  return static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(it - powers.begin(), 254));
}

/// Distance of `got` from `want` in units of float32's spacing at `want`.
inline double ulps(float got, double want) {
  if (want == static_cast<double>(got)) return 0.0;
  const int exponent = want == 0.0 ? -126 : std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

}  // namespace gemmule::oracle
