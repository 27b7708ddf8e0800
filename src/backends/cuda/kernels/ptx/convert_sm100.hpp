// Conversions that sm_100 does in one instruction; `low` is the element of the lower nibble or byte.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// cvt.rn.satfinite.e2m1x2.f32 d, high, low;  Two nibbles; NaN gives 6 (code 7).
GEMMULE_DEVICE u32 pack_e2m1(float low, float high) {
  u32 pair;
  asm("{\n"
      ".reg .b8 codes;\n"
      "cvt.rn.satfinite.e2m1x2.f32 codes, %1, %2;\n"
      "cvt.u32.u8 %0, codes;\n"
      "}"
      : "=r"(pair)
      : "f"(high), "f"(low));
  return pair;
}

/// cvt.rp.satfinite.ue8m0x2.f32 d, high, low;  Two bytes, rounded up; NaN gives 0xFF, infinity 0xFE, up to 2^-127 0x00.
GEMMULE_DEVICE u32 pack_e8m0(float low, float high) {
  u16 pair;
  asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace gemmule::ptx
