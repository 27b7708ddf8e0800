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

/// One rounding, to nearest even. The product is exact in double; on its way to bfloat16 it passes float32, where what does
/// not fit is kept as an odd last bit, so that it is not rounded twice.
inline u32 multiply_one_bf16(u32 a, u32 b) {
  const double product = static_cast<double>(numerics::decode_bf16(static_cast<u16>(a))) *
                         static_cast<double>(numerics::decode_bf16(static_cast<u16>(b)));
  if (product != product) return 0x7fffu;
  float narrow = static_cast<float>(product);
  if (std::isfinite(narrow) && static_cast<double>(narrow) != product) {
    if (std::fabs(static_cast<double>(narrow)) > std::fabs(product)) narrow = std::nextafterf(narrow, 0.0f);
    narrow = numerics::float_of(numerics::bits_of(narrow) | 1u);
    if (narrow == 0) narrow = std::copysign(numerics::float_of(1), static_cast<float>(product));
  }
  return numerics::encode_bf16(narrow);
}
inline u32 multiply_bf16(u32 a, u32 b) {
  return multiply_one_bf16(a & 0xffff, b & 0xffff) | multiply_one_bf16(a >> 16, b >> 16) << 16;
}

inline u32 max_u16(u32 a, u32 b) {
  const u32 low = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff;
  const u32 high = a >> 16 > b >> 16 ? a >> 16 : b >> 16;
  return low | high << 16;
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
