// Conversions of pairs between float32 and 16-bit formats; `low` is the element at the lower address.
#pragma once

#include "numerics/formats.hpp"
#include "ptx/types.hpp"

namespace gemmule::ptx {

/// cvt.rn gives the canonical NaN 0x7FFF whatever the NaN's sign and payload.
inline u32 pair_or_nan(float low, float high, u32 low_code, u32 high_code) {
  return (low == low ? low_code : 0x7fffu) | (high == high ? high_code : 0x7fffu) << 16;
}
inline u32 pack_bf16(float low, float high) {
  return pair_or_nan(low, high, numerics::encode_bf16(low), numerics::encode_bf16(high));
}
inline u32 pack_fp16(float low, float high) {
  return pair_or_nan(low, high, numerics::encode_fp16(low), numerics::encode_fp16(high));
}
inline F32x2 unpack_bf16(u32 pair) {
  return {numerics::float_of(pair << 16), numerics::float_of(pair & 0xFFFF0000u)};
}
inline F32x2 unpack_fp16(u32 pair) {
  return {numerics::decode_fp16(static_cast<u16>(pair & 0xffff)),
          numerics::decode_fp16(static_cast<u16>(pair >> 16))};
}

}  // namespace gemmule::ptx
