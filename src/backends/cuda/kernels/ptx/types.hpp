// Names every wrapper uses. A wrapper is one function per instruction: no logic, no state. The host model of these
// instructions has files of the same names and functions of the same signatures; the include path decides which is used.
#pragma once

#include "numerics/config.hpp"

/// Marks every function of a kernel: forced inline, so that handles and options vanish.
#define GEMMULE_DEVICE __device__ __forceinline__

namespace gemmule::ptx {

using u8 = numerics::u8;
using u16 = numerics::u16;
using u32 = numerics::u32;
using u64 = numerics::u64;
using i32 = numerics::i32;
using i64 = numerics::i64;

struct alignas(8) U32x2 {
  u32 x, y;
};
struct alignas(16) U32x4 {
  u32 x, y, z, w;
};
struct alignas(8) F32x2 {
  float x, y;
};

}  // namespace gemmule::ptx
