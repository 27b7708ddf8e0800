// Elementary functions in float32. On the host: multiplications, additions, divisions and selects only (no fused
// multiply-add, no table), so that scalar code and every vector width give the same bits. The GPU has its own forms of
// exp_negative() and the reciprocals; there sigmoid and tanh differ in the last bits, but not where they are exact.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::numerics {

/// a * b + c with one rounding.
GEMMULE_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

GEMMULE_HD float absolute(float x) {
#if defined(__CUDA_ARCH__)
  return ::fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}

/// 1 / x, correctly rounded on the host; within 2 ulp on the GPU, exact there for powers of two, 0 above 2^126.
GEMMULE_HD float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

/// e^x to 2 ulp, subnormal results included. exp(-inf) = 0, exp(inf) = inf, NaN gives NaN.
GEMMULE_HD float exp(float x) {
  // Beyond these bounds the result is 0 or infinity anyway; a NaN passes both comparisons.
  x = x < -105.0f ? -105.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to the nearest integer.
  constexpr float magic = 12582912.0f;
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  // ln 2 in two parts; the first has 9 significant bits, so n times it is exact.
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  // (e^r - 1 - r) / r^2, minimax polynomial of the Cephes library.
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float mantissa = (p * (r * r) + r) + 1.0f;
  // 2^n in two factors, each a normal number, so that the last multiplication underflows gradually.
  const i32 exponent = static_cast<i32>(bits_of(shifted) - 0x4B400000u);
  const i32 half = exponent >> 1;
  const float first = float_of(static_cast<u32>(half + 127) << 23);
  const float second = float_of(static_cast<u32>(exponent - half + 127) << 23);
  return (mantissa * first) * second;
}

/// e^-x for x >= 0 by the GPU's 2^x (2 ulp plus the rounding of the exponent, x * 2^-24); on the host exp(-x).
GEMMULE_HD float exp_negative(float x) {
#if defined(__CUDA_ARCH__)
  // Half the exponent twice: the result may be subnormal, which the instruction would flush to zero.
  float root;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x * -0.721347520f));
  return root * root;
#else
  return exp(-x);
#endif
}

/// 1 / x for 1 <= x <= 2, exact at both ends, elsewhere within 1 ulp on the GPU and correctly rounded on the host.
GEMMULE_HD float reciprocal_near_one(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

/// a * b + c: with one rounding on the GPU, two on the host.
GEMMULE_HD float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

/// 1 / (1 + e^-x), accurate relative to the result down to the subnormals, which the GPU takes for 0. Exactly 0.5 at 0, 1
/// at 128, 0 at -128, and no NaN at infinities.
GEMMULE_HD float sigmoid(float x) {
#if defined(__CUDA_ARCH__)
  // Where the exponential overflows, the reciprocal is the 0 that is due.
  float e, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + e));
  return result;
#else
  const float e = exp_negative(absolute(x));
  const float numerator = x < 0.0f ? e : 1.0f;
  return numerator * reciprocal_near_one(1.0f + e);
#endif
}

/// Relative error below 1e-6. Odd; exactly 1 from 9.02 on; NaN gives NaN.
GEMMULE_HD float tanh(float x) {
  const u32 sign = bits_of(x) & sign_bit;
  const float a = float_of(bits_of(x) & magnitude_mask);
  // Below 0.625: x + x^3 P(x^2), minimax polynomial of the Cephes library.
  const float z = a * a;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = a + a * (z * p);
#if defined(__CUDA_ARCH__)
  const float e = exp_negative(2.0f * a);
  const float large = 1.0f - 2.0f * (e * reciprocal_near_one(1.0f + e));
#else
  const float large = 1.0f - 2.0f * reciprocal(exp(2.0f * a) + 1.0f);
#endif
  const float magnitude = a < 0.625f ? small : large;
  return float_of(bits_of(magnitude) | sign);
}

/// max(x, 0); NaN gives NaN, -0 gives +0.
GEMMULE_HD float relu(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(x));
  return result;
#else
  return x <= 0.0f ? 0.0f : x;
#endif
}

/// 1 / x, at most FLT_MAX, for the host to turn a positive parameter into the factor the formulas use.
GEMMULE_HD float finite_reciprocal(float x) {
  const float r = 1.0f / x;
  return r > float_of(max_finite_bits) ? float_of(max_finite_bits) : r;
}

}  // namespace gemmule::numerics
