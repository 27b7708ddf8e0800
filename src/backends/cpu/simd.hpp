// The few vector operations the kernels need, for the instruction set this translation unit is built for. Included by
// the kernel translation units only, inside no namespace.
#pragma once

#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backends/cpu/kernel.hpp"
#include "numerics/formats.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

#define GEMMULE_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int lanes = 16;
constexpr int tile_rows = 14;  // 28 accumulators, 2 vectors of B, 1 broadcast: 31 of 32 registers
constexpr int tile_vectors = 2;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int lanes = 8;
constexpr int tile_rows = 6;  // 12 accumulators, 2 vectors of B, 2 broadcasts: 16 of 16 registers
constexpr int tile_vectors = 2;
#else
constexpr int lanes = 4;
constexpr int tile_rows = 4;
constexpr int tile_vectors = 2;
#endif
/// Columns of a register tile, and width of a panel of B.
constexpr int tile_width = lanes * tile_vectors;

typedef float Vec __attribute__((vector_size(4 * lanes), may_alias));

GEMMULE_INLINE Vec load(const float* p) {
  return *reinterpret_cast<const Vec*>(p);
}
GEMMULE_INLINE void store(float* p, Vec v) {
  *reinterpret_cast<Vec*>(p) = v;
}

#if defined(__AVX512F__)
GEMMULE_INLINE Vec splat(float x) {
  return _mm512_set1_ps(x);
}
GEMMULE_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__) && defined(__FMA__)
GEMMULE_INLINE Vec splat(float x) {
  return _mm256_set1_ps(x);
}
GEMMULE_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
#else
GEMMULE_INLINE Vec splat(float x) {
  return Vec{x, x, x, x};
}

/// fma(a, b, c) where the machine may have no such instruction: the product is exact in double, the sum is rounded to
/// odd there, and rounding that to float is then the single rounding of the exact value.
GEMMULE_INLINE float fma_lane(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double sum = product + static_cast<double>(c);
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (static_cast<double>(c) - c_part);
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, sum);
  const bool inexact = error > 0 || error < 0;
  const std::uint64_t outward = (error > 0) == (sum > 0) ? 1 : ~std::uint64_t{0};
  const std::uint64_t odd = inexact && (bits & 1) == 0 ? bits + outward : bits;
  return static_cast<float>(__builtin_bit_cast(double, odd));
#endif
}
GEMMULE_INLINE Vec fma(Vec a, Vec b, Vec c) {
  Vec out{};
  for (int i = 0; i < lanes; ++i) out[i] = fma_lane(a[i], b[i], c[i]);
  return out;
}
#endif

// transpose(v): v[i][j] <-> v[j][i] for lanes x lanes values.
#if defined(__AVX512F__)
GEMMULE_INLINE void transpose(Vec (&v)[lanes]) {
  Vec t[lanes];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
    v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  // Part p of v[4q + c] holds rows 4q .. 4q+3 of column 4p + c: what is left is a 4 x 4 transpose over q and p. 0x88
  // takes the even parts of both operands, 0xDD the odd ones.
#pragma GCC unroll 16
  for (int c = 0; c < 4; ++c) {
    const Vec even01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x88);
    const Vec odd01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xDD);
    const Vec even23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x88);
    const Vec odd23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xDD);
    t[c] = _mm512_shuffle_f32x4(even01, even23, 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(even01, even23, 0xDD);
    t[4 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    t[12 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}
#elif defined(__AVX2__) && defined(__FMA__)
GEMMULE_INLINE void transpose(Vec (&v)[lanes]) {
  Vec t[lanes];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int c = 0; c < 4; ++c) {
    const Vec low = v[c], high = v[4 + c];
    v[c] = _mm256_permute2f128_ps(low, high, 0x20);
    v[4 + c] = _mm256_permute2f128_ps(low, high, 0x31);
  }
}
#else
GEMMULE_INLINE void transpose(Vec (&v)[lanes]) {
  for (int i = 0; i < lanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float x = v[i][j];
      v[i][j] = v[j][i];
      v[j][i] = x;
    }
  }
}
#endif

// decode_e2m1(in, out): 32 values from 16 bytes, the even index in the low half of a byte.
#if defined(__AVX512F__)
GEMMULE_INLINE void decode_e2m1(const std::uint8_t* in, Vec (&out)[block / lanes]) {
  alignas(64) float value[16];
  for (int i = 0; i < 16; ++i) value[i] = numerics::decode_e2m1(static_cast<std::uint8_t>(i));
  const __m512 table = _mm512_load_ps(value);
  const __m512i pairs =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));  // looked up by 4 bits
  const Vec even = _mm512_permutexvar_ps(pairs, table);
  const Vec odd = _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), table);
  out[0] = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  out[1] = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__) && defined(__FMA__)
GEMMULE_INLINE void decode_e2m1(const std::uint8_t* in, Vec (&out)[block / lanes]) {
  alignas(32) float value[8];
  for (int i = 0; i < 8; ++i) value[i] = numerics::decode_e2m1(static_cast<std::uint8_t>(i));
  const __m256 table = _mm256_load_ps(value);
  const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  const __m128i odd = _mm_srli_epi16(pairs, 4);  // the next byte's bits above are not looked at
  const __m128i codes[2] = {_mm_unpacklo_epi8(pairs, odd), _mm_unpackhi_epi8(pairs, odd)};
  for (int i = 0; i < 4; ++i) {
    const __m128i half = i % 2 == 0 ? codes[i / 2] : _mm_unpackhi_epi64(codes[i / 2], codes[i / 2]);
    const __m256i wide = _mm256_cvtepu8_epi32(half);  // looked up by 3 bits; bit 3 is the sign
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(wide, 3), 31));
    out[i] = _mm256_or_ps(_mm256_permutevar8x32_ps(table, wide), sign);
  }
}
#else
GEMMULE_INLINE void decode_e2m1(const std::uint8_t* in, Vec (&out)[block / lanes]) {
  for (int i = 0; i < block; ++i)
    out[i / lanes][i % lanes] = numerics::decode_e2m1(numerics::unpack_e2m1(in[i / 2], i % 2));
}
#endif

// widen(in, out), narrow(in, out): 32 codes between 8 bits in memory and 32 bits. g++ takes detours here.
GEMMULE_INLINE void widen(const std::uint8_t* in, std::uint32_t (&out)[block]) {
#if defined(__AVX512F__)
  for (int i = 0; i < block; i += 16)
    _mm512_storeu_si512(out + i,
                        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
#elif defined(__AVX2__)
  for (int i = 0; i < block; i += 8)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i))));
#else
  for (int i = 0; i < block; ++i) out[i] = in[i];
#endif
}
GEMMULE_INLINE void narrow(const std::uint32_t (&in)[block], std::uint8_t* out) {
#if defined(__AVX512F__)
  for (int i = 0; i < block; i += 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm512_cvtepi32_epi8(_mm512_loadu_si512(in + i)));
#else
  std::uint8_t codes[block];
  for (int i = 0; i < block; ++i) codes[i] = static_cast<std::uint8_t>(in[i]);
  __builtin_memcpy(out, codes, sizeof codes);
#endif
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
