// Quantization of outputs, written for the oracle alone: float32 with the roundings that every backend must share.
#pragma once

#include <cstdint>
#include <span>

#include "gemmule/tensor.hpp"

namespace gemmule::reference {

/// E8M0 code of a block of one row: (max|y| * 1/max) * norm_const, rounded up. 0xFF if a value is NaN.
std::uint8_t row_scale_code(std::span<const float> values, DType type, float norm_const);
/// The same for a block of one column: max|y| * (1/max * norm_const).
std::uint8_t col_scale_code(std::span<const float> values, DType type, float norm_const);

/// True where the first of the two products is subnormal in float32 and so may have lost what makes its scale large
/// enough: the block's largest values then saturate. `largest`: magnitude of any value that does.
bool row_scale_is_coarse(float largest, DType type);
bool col_scale_is_coarse(DType type, float norm_const);

/// What a value is multiplied with under a scale code: norm_const * 2^(127 - code) rounded to float32, at most
/// FLT_MAX, NaN for 0xFF.
float multiplier(float norm_const, std::uint8_t code);

/// The value that is rounded to the output format: y * multiplier. An infinite y stays infinite and so saturates.
float scaled(float y, float norm_const, std::uint8_t code);

}  // namespace gemmule::reference
