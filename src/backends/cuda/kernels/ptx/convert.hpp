// Conversions of pairs between float32 and 16-bit formats; `low` is the element at the lower address.
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

}  // namespace gemmule::ptx
