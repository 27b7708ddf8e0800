// Conversions between float32 and the narrow formats.
//
//   format  bits      bias  largest finite  smallest normal / subnormal  specials
//   e2m1    s1 e2 m1  1     6               1 / 0.5                      none
//   e4m3    s1 e4 m3  7     448             2^-6 / 2^-9                  NaN 0x7F, 0xFF; no infinity
//   e5m2    s1 e5 m2  15    57344           2^-14 / 2^-16                infinity 0x7C, NaN above
//   fp16    s1 e5 m10 15    65504           2^-14 / 2^-24                infinity 0x7C00, NaN above
//   bf16    s1 e8 m7  127   as float32                                   as float32
//   e8m0    e8        127   2^127 (0xFE)    2^-127 (0x00)                NaN 0xFF; no zero, no sign
//
// encode_*: round to nearest, ties to even; e2m1, e4m3 and e5m2 saturate (infinity included), fp16 and bf16 overflow
// to infinity. NaN gives 0x7F (e4m3, e5m2), 0x7FFF (fp16, bf16) or 7 (e2m1, which has no NaN), whatever its sign; these
// are the bytes of the GPU's conversion instructions. e8m0 rounds up and ignores the sign.
// decode_*: exact.
//
// Everything is selects and integer arithmetic, so that loops vectorise and every target gives the same bits.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::numerics {

/// What happens above the largest finite value.
enum class Overflow { saturate, infinity };
/// Which codes are not finite: none, only the all-ones magnitude (NaN), or the topmost exponent as in IEEE 754.
enum class Specials { none, nan_only, ieee };

/// A sign-magnitude format with subnormals and fewer exponent values than float32.
template <int exponent_bits, int mantissa_bits, int bias, u32 largest, Overflow overflow, Specials specials>
struct SmallFloat {
  static constexpr int shift = 23 - mantissa_bits;  // float32 mantissa bits that do not fit
  static constexpr int sign_shift = exponent_bits + mantissa_bits;
  static constexpr u32 magnitude_codes = (1u << sign_shift) - 1;
  static constexpr u32 min_normal = static_cast<u32>(1 - bias + 127) << 23;
  // 2^(exponent of the smallest subnormal + 23): adding it leaves the subnormal code in the low mantissa bits.
  static constexpr u32 subnormal_magic = static_cast<u32>(1 - bias - mantissa_bits + 23 + 127) << 23;
  static constexpr u32 rebias = static_cast<u32>(127 - bias) << 23;
  // Magnitudes from here on are all encoded alike: the largest finite value, or the power of two above it.
  static constexpr u32 ceiling =
      (overflow == Overflow::saturate ? largest : largest + 1) * (1u << shift) + rebias;

  GEMMULE_HD static u32 encode(float x, u32 nan_code) {
    const u32 u = bits_of(x);
    // Magnitudes are non-negative as signed integers, and signed comparison is what vector units have.
    const i32 magnitude = static_cast<i32>(u & magnitude_mask);
    const i32 clamped = magnitude < static_cast<i32>(ceiling) ? magnitude : static_cast<i32>(ceiling);
    const u32 a = static_cast<u32>(clamped);
    const u32 normal = (a - rebias + ((1u << (shift - 1)) - 1) + ((a >> shift) & 1u)) >> shift;
    const u32 subnormal = bits_of(float_of(a) + float_of(subnormal_magic)) - subnormal_magic;
    const u32 code = select(clamped < static_cast<i32>(min_normal), subnormal, normal);
    const u32 sign = (u >> 31) << sign_shift;
    return select(magnitude > static_cast<i32>(infinity_bits), nan_code, code | sign);
  }

  GEMMULE_HD static float decode(u32 code) {
    const u32 sign = (code >> sign_shift) << 31;
    const i32 magnitude = static_cast<i32>(code & magnitude_codes);
    const u32 shifted = static_cast<u32>(magnitude) << shift;
    const u32 normal = shifted + rebias;
    // A subnormal m is (min_normal with mantissa m) - min_normal.
    const u32 subnormal = bits_of(float_of(shifted + min_normal) - float_of(min_normal));
    u32 out = select(magnitude < (1 << mantissa_bits), subnormal, normal);
    if constexpr (specials == Specials::nan_only)
      out = select(magnitude == static_cast<i32>(magnitude_codes), nan_bits, out);
    if constexpr (specials == Specials::ieee)
      out = select(magnitude > static_cast<i32>(largest), shifted | infinity_bits, out);
    return float_of(out | sign);
  }
};

using E2m1 = SmallFloat<2, 1, 1, 0x7, Overflow::saturate, Specials::none>;
using E4m3 = SmallFloat<4, 3, 7, 0x7E, Overflow::saturate, Specials::nan_only>;
using E5m2 = SmallFloat<5, 2, 15, 0x7B, Overflow::saturate, Specials::ieee>;
using Fp16 = SmallFloat<5, 10, 15, 0x7BFF, Overflow::infinity, Specials::ieee>;

/// A 4-bit code in the low half of the byte.
GEMMULE_HD u8 encode_e2m1(float x) {
  return static_cast<u8>(E2m1::encode(x, 0x7));
}
/// Uses the low 4 bits of `code`.
GEMMULE_HD float decode_e2m1(u8 code) {
  return E2m1::decode(code & 0xFu);
}

GEMMULE_HD u8 encode_e4m3(float x) {
  return static_cast<u8>(E4m3::encode(x, 0x7F));
}
GEMMULE_HD float decode_e4m3(u8 code) {
  return E4m3::decode(code);
}

GEMMULE_HD u8 encode_e5m2(float x) {
  return static_cast<u8>(E5m2::encode(x, 0x7F));
}
GEMMULE_HD float decode_e5m2(u8 code) {
  return E5m2::decode(code);
}

GEMMULE_HD u16 encode_fp16(float x) {
  return static_cast<u16>(Fp16::encode(x, 0x7FFF));
}
GEMMULE_HD float decode_fp16(u16 code) {
  return Fp16::decode(code);
}

GEMMULE_HD u16 encode_bf16(float x) {
  const u32 u = bits_of(x);
  const u32 rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const bool is_nan = static_cast<i32>(u & magnitude_mask) > static_cast<i32>(infinity_bits);
  return static_cast<u16>(select(is_nan, 0x7FFFu, rounded));
}
GEMMULE_HD float decode_bf16(u16 code) {
  return float_of(static_cast<u32>(code) << 16);
}

/// The code of the smallest power of two >= |x|: 0x00 up to 2^-127 (zero included), 0xFE above 2^126, 0xFF for NaN.
GEMMULE_HD u8 encode_e8m0(float x) {
  const i32 magnitude = static_cast<i32>(bits_of(x) & magnitude_mask);
  const i32 largest = magnitude < 0x7F000000 ? magnitude : 0x7F000000;
  const i32 clamped = largest > 0x400000 ? largest : 0;
  const u32 code = (static_cast<u32>(clamped) + 0x7FFFFFu) >> 23;
  return static_cast<u8>(select(magnitude > static_cast<i32>(infinity_bits), 0xFFu, code));
}
/// 2^(code - 127), NaN for 0xFF. Code 0 is the float32 subnormal 2^-127.
GEMMULE_HD float decode_e8m0(u8 code) {
  const u32 normal = select(code == 0, 0x00400000u, static_cast<u32>(code) << 23);
  return float_of(select(code == 0xFF, nan_bits, normal));
}

/// Two e2m1 codes in one byte, the element with the even index in the low half.
GEMMULE_HD u8 pack_e2m1(u8 even, u8 odd) {
  return static_cast<u8>((even & 0xFu) | (static_cast<u32>(odd) << 4));
}
GEMMULE_HD u8 unpack_e2m1(u8 pair, int odd) {
  return static_cast<u8>((pair >> (4 * odd)) & 0xFu);
}

}  // namespace gemmule::numerics
