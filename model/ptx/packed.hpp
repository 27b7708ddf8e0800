// Arithmetic on packed values: pairs of 8-bit floats and of bfloat16. The element at the lower address is in the low half.
#pragma once

#include <cmath>

#include "numerics/formats.hpp"
#include "ptx/types.hpp"

namespace gemmule::ptx {

inline u32 fp16_of_e4m3(u32 code) {
  const float value = numerics::decode_e4m3(static_cast<u8>(code));
  return value == value ? numerics::encode_fp16(value) : 0x7fffu;
}
template <int half>
u32 expand_e4m3(u32 bytes) {
  const u32 pair = bytes >> (16 * half);
  return fp16_of_e4m3(pair & 0xff) | fp16_of_e4m3(pair >> 8 & 0xff) << 16;
}

/// The number next to `value` on the side of `error`, the rest that rounding has cut off, if it is odd: rounded again to a
/// format of at least two bits less, it gives what one rounding of value + error gives.
inline double rounded_to_odd(double value, double error) {
  if (error == 0 || !std::isfinite(value) || (__builtin_bit_cast(u64, value) & 1) != 0) return value;
  return std::nextafter(value, error > 0 ? HUGE_VAL : -HUGE_VAL);
}

/// To nearest even, from a number that may itself be rounded to odd.
inline u32 bf16_of(double value) {
  if (value != value) return 0x7fffu;
  float narrow = static_cast<float>(value);
  if (std::isfinite(narrow) && static_cast<double>(narrow) != value) {
    if (std::fabs(static_cast<double>(narrow)) > std::fabs(value)) narrow = std::nextafterf(narrow, 0.0f);
    narrow = numerics::float_of(numerics::bits_of(narrow) | 1u);
    narrow = std::copysign(narrow, static_cast<float>(std::copysign(1.0, value)));
  }
  return numerics::encode_bf16(narrow);
}
inline double value_of_bf16(u32 code) {
  return static_cast<double>(numerics::decode_bf16(static_cast<u16>(code & 0xffff)));
}

inline u32 multiply_bf16(u32 a, u32 b) {  // products are exact in double
  return bf16_of(value_of_bf16(a) * value_of_bf16(b)) |
         bf16_of(value_of_bf16(a >> 16) * value_of_bf16(b >> 16)) << 16;
}

inline u32 multiply_add_one_bf16(u32 a, u32 b, u32 c) {
  const double product = value_of_bf16(a) * value_of_bf16(b), addend = value_of_bf16(c);
  const double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);
  return bf16_of(rounded_to_odd(sum, error));
}
inline u32 multiply_add_bf16(u32 a, u32 b, u32 c) {
  return multiply_add_one_bf16(a, b, c) | multiply_add_one_bf16(a >> 16, b >> 16, c >> 16) << 16;
}

inline u32 multiply_one_fp16(u32 a,
                             u32 b) {  // exact in float32: 22 significant bits, exponents from -48 to 32
  const float product =
      numerics::decode_fp16(static_cast<u16>(a)) * numerics::decode_fp16(static_cast<u16>(b));
  return product == product ? numerics::encode_fp16(product) : 0x7fffu;
}
inline u32 multiply_fp16(u32 a, u32 b) {
  return multiply_one_fp16(a & 0xffff, b & 0xffff) | multiply_one_fp16(a >> 16, b >> 16) << 16;
}

inline u32 max_u16(u32 a, u32 b) {
  const u32 low = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff;
  const u32 high = a >> 16 > b >> 16 ? a >> 16 : b >> 16;
  return low | high << 16;
}

inline u32 min_u16(u32 a, u32 b) {
  const u32 low = (a & 0xffff) < (b & 0xffff) ? a & 0xffff : b & 0xffff;
  const u32 high = a >> 16 < b >> 16 ? a >> 16 : b >> 16;
  return low | high << 16;
}

inline u32 add_u16(u32 a, u32 b) {
  return ((a + b) & 0xffff) | ((a >> 16) + (b >> 16)) << 16;
}

inline u32 multiply_add(u32 a, u32 b, u32 c) {
  return a * b + c;
}

inline u32 permute_bytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = a | static_cast<u64>(b) << 32;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i);
    u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

}  // namespace gemmule::ptx
