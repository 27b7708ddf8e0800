// Conversions between float32 and narrower formats, several at a time; the first element lies at the lowest address.
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

inline u32 pack_bytes(u32 a, u32 b, u32 c, u32 d) {
  return a | b << 8 | c << 16 | d << 24;
}
inline u32 pack_e4m3(float a, float b, float c, float d) {
  return pack_bytes(numerics::encode_e4m3(a), numerics::encode_e4m3(b), numerics::encode_e4m3(c),
                    numerics::encode_e4m3(d));
}
inline u32 pack_e5m2(float a, float b, float c, float d) {
  return pack_bytes(numerics::encode_e5m2(a), numerics::encode_e5m2(b), numerics::encode_e5m2(c),
                    numerics::encode_e5m2(d));
}
inline F32x2 unpack_e4m3(u32 pair) {
  return {numerics::decode_e4m3(static_cast<u8>(pair)), numerics::decode_e4m3(static_cast<u8>(pair >> 8))};
}
inline F32x2 unpack_e5m2(u32 pair) {
  return {numerics::decode_e5m2(static_cast<u8>(pair)), numerics::decode_e5m2(static_cast<u8>(pair >> 8))};
}

}  // namespace gemmule::ptx
