// Block quantization of operator outputs. A block is 32 consecutive values y of a row or of a column:
//
//   amax = max |y|                                          (NaN if any y is NaN)
//   s    = (amax * rcp_max) * norm_const    along rows      (FP32, rounded in this order)
//   s    = amax * (rcp_max * norm_const)    along columns
//   scale code = encode_e8m0(s)                             (rounds up)
//   code = encode(y * multiplier(norm_const, scale code))
//
// so that y is close to decode(code) * decode_e8m0(scale code) / norm_const. A block of zeros has scale code 0x00 and
// zero codes; a NaN makes the scale code 0xFF and every code of the block NaN; an infinity makes it 0xFE and saturates.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::numerics {

/// Reciprocals of the largest finite value. The one of e5m2 operator outputs is 1/128, the constant of NVIDIA's
/// operators, kept so that bytes agree; quantized inputs use the true value.
inline constexpr float rcp_max_e2m1 = 1.0f / 6.0f;
inline constexpr float rcp_max_e4m3 = 1.0f / 448.0f;
inline constexpr float rcp_max_e5m2_output = 1.0f / 128.0f;
inline constexpr float rcp_max_e5m2_input = 1.0f / 57344.0f;

/// Bits of |value|, to be maximised as signed integers: NaN is above infinity, and the bits of -inf are below all.
/// Compilers vectorise a maximum of integers.
GEMMULE_HD i32 amax_bits(float value) {
  return static_cast<i32>(bits_of(value) & magnitude_mask);
}

/// max(running, |value|), NaN if either is. `running` is -inf or not negative.
GEMMULE_HD float amax_step(float running, float value) {
#if defined(__CUDA_ARCH__)
  float larger;
  asm("{\n"
      ".reg .f32 magnitude;\n"
      "abs.f32 magnitude, %2;\n"
      "max.NaN.f32 %0, %1, magnitude;\n"
      "}"
      : "=f"(larger)
      : "f"(running), "f"(value));
  return larger;
#else
  const i32 a = static_cast<i32>(bits_of(running));
  const i32 b = amax_bits(value);
  return float_of(static_cast<u32>(a > b ? a : b));
#endif
}

GEMMULE_HD float row_scale(float amax, float rcp_max, float norm_const) {
  return (amax * rcp_max) * norm_const;
}
GEMMULE_HD float col_scale(float amax, float rcp_max, float norm_const) {
  return amax * (rcp_max * norm_const);
}

/// norm_const * 2^(127 - code) with one rounding, subnormal results kept; NaN for code 0xFF. At most FLT_MAX, so that
/// 0 * multiplier is 0, and at least 2^-149 (finite values cannot tell it from 0), so that infinity * multiplier is
/// infinity. norm_const must be positive and finite.
GEMMULE_HD float multiplier(float norm_const, u8 code) {
  const u32 normal = static_cast<u32>(254 - code) << 23;
  const u32 power = code == 0xFE ? 0x00400000u : normal;
  const float product = norm_const * float_of(code == 0xFF ? nan_bits : power);
  const float bounded = product > float_of(max_finite_bits) ? float_of(max_finite_bits) : product;
  return bounded < float_of(1u) ? float_of(1u) : bounded;
}

struct BlockScale {
  u8 code;
  float multiplier;
};

/// {encode_e8m0(s), multiplier(norm_const, that code)} with less arithmetic: the code stays where an exponent is.
GEMMULE_HD BlockScale block_scale(float s, float norm_const) {
  const u32 magnitude = bits_of(s) & magnitude_mask;
  const bool is_nan = magnitude > infinity_bits;
  const u32 clamped = magnitude < 0x7F000000u ? magnitude : 0x7F000000u;
  const u32 rounded_up = (clamped + 0x7FFFFFu) & 0xFF800000u;
  const u32 exponent = clamped > 0x400000u ? rounded_up : 0u;
  const u32 inverse = 0x7F000000u - exponent;
  const float product = norm_const * float_of(inverse > 0x400000u ? inverse : 0x400000u);
  const float bounded = product > float_of(max_finite_bits) ? float_of(max_finite_bits) : product;
  const float positive = bounded < float_of(1u) ? float_of(1u) : bounded;
  return {static_cast<u8>(is_nan ? 0xFFu : exponent >> 23), is_nan ? float_of(nan_bits) : positive};
}

}  // namespace gemmule::numerics
