// Shared memory, reached only through typed 32-bit handles (byte addresses in the shared window of this CTA).
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

template <class T>
struct Shared {
  u32 address;

  /// The element `index` further on.
  GEMMULE_DEVICE Shared operator+(u32 index) const { return {address + index * u32(sizeof(T))}; }
  /// The same bytes as another type.
  template <class U>
  GEMMULE_DEVICE Shared<U> as() const {
    return {address};
  }
  GEMMULE_DEVICE Shared bytes(u32 offset) const { return {address + offset}; }
};

/// Start of the CTA's dynamic shared memory, aligned to 1024 bytes (no static shared memory may be declared).
GEMMULE_DEVICE Shared<u8> dynamic_shared() {
  extern __shared__ __align__(1024) u8 gemmule_dynamic_shared[];
  return {static_cast<u32>(__cvta_generic_to_shared(gemmule_dynamic_shared))};
}

/// ld.shared.b32 d, [a];
GEMMULE_DEVICE u32 load(Shared<u32> from) {
  u32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from.address) : "memory");
  return value;
}

/// ld.shared.s32 d, [a];
GEMMULE_DEVICE i32 load(Shared<i32> from) {
  return static_cast<i32>(load(from.as<u32>()));
}

/// ld.shared.f32 d, [a];
GEMMULE_DEVICE float load(Shared<float> from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from.address) : "memory");
  return value;
}

/// ld.shared.v2.f32 {d.x, d.y}, [a];
GEMMULE_DEVICE F32x2 load(Shared<F32x2> from) {
  F32x2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(from.address)
               : "memory");
  return value;
}

/// ld.shared.v4.b32 {d.x, d.y, d.z, d.w}, [a];
GEMMULE_DEVICE U32x4 load(Shared<U32x4> from) {
  U32x4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from.address)
               : "memory");
  return value;
}

/// ld.shared.v2.b32 {d.x, d.y}, [a];
GEMMULE_DEVICE U32x2 load(Shared<U32x2> from) {
  U32x2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "r"(from.address)
               : "memory");
  return value;
}

/// st.shared.u8 [a], b;
GEMMULE_DEVICE void store(Shared<u8> to, u8 value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(to.address), "r"(static_cast<u32>(value)) : "memory");
}

/// st.shared.b32 [a], b;
GEMMULE_DEVICE void store(Shared<u32> to, u32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to.address), "r"(value) : "memory");
}

/// st.shared.f32 [a], b;
GEMMULE_DEVICE void store(Shared<float> to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to.address), "f"(value) : "memory");
}

/// st.shared.v2.f32 [a], {b.x, b.y};
GEMMULE_DEVICE void store(Shared<F32x2> to, F32x2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to.address), "f"(value.x), "f"(value.y) : "memory");
}

/// st.shared.v2.b32 [a], {b.x, b.y};
GEMMULE_DEVICE void store(Shared<U32x2> to, U32x2 value) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to.address), "r"(value.x), "r"(value.y) : "memory");
}

/// st.shared.v4.b32 [a], {b.x, b.y, b.z, b.w};
GEMMULE_DEVICE void store(Shared<U32x4> to, U32x4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.address), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

}  // namespace gemmule::ptx
