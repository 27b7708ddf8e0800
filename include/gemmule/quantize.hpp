// Quantizers and dequantizers on host memory.
//
// MX (e8m0 scales): scale = round_up_to_power_of_two(amax_block * rcp_max), rcp_max = 1/448 (e4m3), 1/57344 (e5m2),
// 1/6 (e2m1). NVFP4 (e2m1, e4m3 scales per 16): one float32 tensor scale g = amax_tensor / (448*6), block scale
// RN_e4m3(amax_block / (6*g)), at least 2^-9 if the block is not zero; codes = RN(x / (g*scale)).
#pragma once

#include <cstdint>
#include <span>

#include "gemmule/tensor.hpp"

namespace gemmule {

/// How a matrix is quantized: element type, scale type, values per scale.
struct QuantFormat {
  DType element = DType::none;  ///< float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2
  DType scale = DType::none;    ///< float8_e8m0fnu, or float8_e4m3fn (NVFP4: e2m1 with vec 16)
  int vec = 32;                 ///< 32, or 16 for e2m1

  static QuantFormat mxfp8() { return {DType::float8_e4m3fn, DType::float8_e8m0fnu, 32}; }
  static QuantFormat mxfp8_e5m2() { return {DType::float8_e5m2, DType::float8_e8m0fnu, 32}; }
  static QuantFormat mxfp4(int vec = 32) { return {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, vec}; }
  static QuantFormat nvfp4() { return {DType::float4_e2m1fn_x2, DType::float8_e4m3fn, 16}; }
};

/// Bytes of the codes of rows x cols values. FP4: cols must be even.
std::int64_t code_bytes(std::int64_t rows, std::int64_t cols, DType element);

/// Tensor scale of NVFP4: max |x| / (448*6) over the finite values, 1 if all of them are zero. A value that is not
/// finite affects its own block only.
float nvfp4_tensor_scale(std::span<const float> values);

/// Quantizes along rows: scales per `vec` consecutive columns of one row. values: row-major (rows, cols). codes:
/// row-major. scales: swizzled, scale_bytes(rows, cols, vec) bytes, padding 0. tensor_scale is used by NVFP4 only.
void quantize_rows(std::span<const float> values, std::int64_t rows, std::int64_t cols, QuantFormat format,
                   std::uint8_t* codes, std::uint8_t* scales, float tensor_scale = 1.0f);
/// Quantizes along columns: scales per `vec` consecutive rows of one column. codes stay row-major (rows, cols); scales
/// are laid out as scale_shape(cols, rows, vec).
void quantize_cols(std::span<const float> values, std::int64_t rows, std::int64_t cols, QuantFormat format,
                   std::uint8_t* codes, std::uint8_t* scales, float tensor_scale = 1.0f);

void dequantize_rows(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t rows,
                     std::int64_t cols, QuantFormat format, std::span<float> values,
                     float tensor_scale = 1.0f);
void dequantize_cols(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t rows,
                     std::int64_t cols, QuantFormat format, std::span<float> values,
                     float tensor_scale = 1.0f);

/// Plain conversions, round to nearest even; the 8- and 4-bit types saturate. `count` values (even for FP4).
void convert(std::span<const float> values, DType to, void* out);
void convert(const void* in, DType from, std::span<float> values);

}  // namespace gemmule
