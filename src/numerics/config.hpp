// What numerics/ and layout/ need from the compiler: g++, clang, nvcc and NVRTC (which has no standard headers).
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

// Every function here is forced inline: a translation unit built for AVX-512 must not leave a copy behind that the
// linker could choose for a machine without it, and loops over these functions must vectorise.
#if defined(__CUDACC__)
#define GEMMULE_HD __host__ __device__ __forceinline__
#else
#define GEMMULE_HD inline __attribute__((always_inline))
#endif

namespace gemmule::numerics {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

GEMMULE_HD u32 bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(u32, x);
#endif
}

GEMMULE_HD float float_of(u32 bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

inline constexpr u32 sign_bit = 0x80000000u;
inline constexpr u32 magnitude_mask = 0x7FFFFFFFu;
inline constexpr u32 infinity_bits = 0x7F800000u;
inline constexpr u32 nan_bits = 0x7FC00000u;
inline constexpr u32 max_finite_bits = 0x7F7FFFFFu;

/// a if condition else b, as a select that loops can vectorise.
GEMMULE_HD u32 select(bool condition, u32 a, u32 b) {
  return condition ? a : b;
}

}  // namespace gemmule::numerics
