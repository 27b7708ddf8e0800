// Conversions that sm_100 does in one instruction; `low` is the element of the lower nibble or byte. Modelled, never run
// on hardware.
#pragma once

#include "numerics/formats.hpp"
#include "ptx/types.hpp"

namespace gemmule::ptx {

inline u32 pack_e2m1(float low, float high) {
  return static_cast<u32>(numerics::encode_e2m1(low)) | static_cast<u32>(numerics::encode_e2m1(high)) << 4;
}
inline u32 pack_e8m0(float low, float high) {
  return static_cast<u32>(numerics::encode_e8m0(low)) | static_cast<u32>(numerics::encode_e8m0(high)) << 8;
}

}  // namespace gemmule::ptx
