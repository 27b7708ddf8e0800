// Conversions between float32 and narrower formats, several at a time; the first element lies at the lowest address.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// cvt.rn.bf16x2.f32 d, high, low;  NaN gives 0x7FFF.
GEMMULE_DEVICE u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// cvt.rn.f16x2.f32 d, high, low;  NaN gives 0x7FFF.
GEMMULE_DEVICE u32 pack_fp16(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// shl.b32, and.b32: exact.
GEMMULE_DEVICE F32x2 unpack_bf16(u32 pair) {
  return {numerics::float_of(pair << 16), numerics::float_of(pair & 0xFFFF0000u)};
}

/// cvt.f32.f16 of both halves: exact.
GEMMULE_DEVICE F32x2 unpack_fp16(u32 pair) {
  F32x2 value;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n"
      "}"
      : "=f"(value.x), "=f"(value.y)
      : "r"(pair));
  return value;
}

/// Two cvt.rn.satfinite.e4m3x2.f32;  as numerics::encode_e4m3.
GEMMULE_DEVICE u32 pack_e4m3(float a, float b, float c, float d) {
  u32 packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

/// Two cvt.rn.satfinite.e5m2x2.f32;  as numerics::encode_e5m2.
GEMMULE_DEVICE u32 pack_e5m2(float a, float b, float c, float d) {
  u32 packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

/// cvt.rn.f16x2.e4m3x2 of the low half, then cvt.f32.f16: exact.
GEMMULE_DEVICE F32x2 unpack_e4m3(u32 pair) {
  u32 halves;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "}"
      : "=r"(halves)
      : "r"(pair));
  return unpack_fp16(halves);
}

/// cvt.rn.f16x2.e5m2x2 of the low half, then cvt.f32.f16: exact.
GEMMULE_DEVICE F32x2 unpack_e5m2(u32 pair) {
  u32 halves;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.rn.f16x2.e5m2x2 %0, low;\n"
      "}"
      : "=r"(halves)
      : "r"(pair));
  return unpack_fp16(halves);
}

}  // namespace gemmule::ptx
