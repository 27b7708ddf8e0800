#include "backends/reference/quantize.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "backends/reference/formats.hpp"

namespace gemmule::reference {
namespace {

/// The float32 reciprocal of the largest magnitude a block is scaled to. e5m2 aims at 128, as NVIDIA's kernels do.
float reciprocal_maximum(DType type) {
  switch (type) {
    case DType::float8_e4m3fn:
      return 1.0f / 448.0f;
    case DType::float8_e5m2:
      return 1.0f / 128.0f;
    case DType::float4_e2m1fn_x2:
      return 1.0f / 6.0f;
    default:
      throw InvalidArgument(std::string(name(type)) + " is not a quantized output type");
  }
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) {
    if (std::isnan(v)) return v;
    largest = std::max(largest, std::fabs(v));
  }
  return largest;
}

}  // namespace

std::uint8_t row_scale_code(std::span<const float> values, DType type, float norm_const) {
  const float normalised = largest_magnitude(values) * reciprocal_maximum(type);
  return encode_e8m0_up(normalised * norm_const);
}

std::uint8_t col_scale_code(std::span<const float> values, DType type, float norm_const) {
  const float factor = reciprocal_maximum(type) * norm_const;
  return encode_e8m0_up(largest_magnitude(values) * factor);
}

bool row_scale_is_coarse(float largest, DType type) {
  return largest * reciprocal_maximum(type) < FLT_MIN;
}

bool col_scale_is_coarse(DType type, float norm_const) {
  return reciprocal_maximum(type) * norm_const < FLT_MIN;
}

float multiplier(float norm_const, std::uint8_t code) {
  if (code == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  // Exact in double (subnormal float32 results included), so the conversion is the only rounding.
  const double exact = std::ldexp(static_cast<double>(norm_const), 127 - code);
  return exact > FLT_MAX ? FLT_MAX : static_cast<float>(exact);
}

float scaled(float y, float norm_const, std::uint8_t code) {
  if (std::isinf(y) && code != 0xFF) return y;
  return y * multiplier(norm_const, code);
}

}  // namespace gemmule::reference
