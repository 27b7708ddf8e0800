// Global memory.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// ld.global.b32 d, [a];
GEMMULE_DEVICE float load(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

/// ld.global.s32 d, [a];
GEMMULE_DEVICE i32 load(const i32* from) {
  i32 value;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// ld.global.u16 d, [a];
GEMMULE_DEVICE u16 load(const u16* from) {
  u16 value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
  return value;
}

/// ld.global.s64 d, [a];
GEMMULE_DEVICE i64 load(const i64* from) {
  i64 value;
  asm volatile("ld.global.s64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

/// ld.global.u64 d, [a];
GEMMULE_DEVICE u64 load(const u64* from) {
  return static_cast<u64>(load(reinterpret_cast<const i64*>(from)));
}

/// ld.global.v4.u32 {d.x, d.y, d.z, d.w}, [a];
GEMMULE_DEVICE U32x4 load(const U32x4* from) {
  U32x4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

/// st.global.f32 [a], b;
GEMMULE_DEVICE void store(float* to, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

/// st.global.u32 [a], b;
GEMMULE_DEVICE void store(u32* to, u32 value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// st.global.u16 [a], b;
GEMMULE_DEVICE void store(u16* to, u16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}

/// st.global.u8 [a], b;
GEMMULE_DEVICE void store(u8* to, u8 value) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(static_cast<u32>(value)) : "memory");
}

/// st.global.u64 [a], b;
GEMMULE_DEVICE void store(u64* to, u64 value) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// st.global.v4.b32 [a], {b.x, b.y, b.z, b.w};
GEMMULE_DEVICE void store(U32x4* to, U32x4 value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

/// red.relaxed.gpu.global.max.s32 [a], b;
GEMMULE_DEVICE void reduce_max(i32* to, i32 value) {
  asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// red.relaxed.gpu.global.add.f32 [a], b;
GEMMULE_DEVICE void reduce_add(float* to, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

/// atom.relaxed.gpu.global.add.u32 d, [a], b;
GEMMULE_DEVICE u32 fetch_add(u32* to, u32 value) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(to), "r"(value) : "memory");
  return old;
}

}  // namespace gemmule::ptx
