// Number formats for the oracle: decode to double, encode by division and rounding to an integer. Nothing here comes
// from numerics/, so that an error there cannot agree with itself.
#pragma once

#include <cstdint>

#include "gemmule/tensor.hpp"

namespace gemmule::reference {

/// Bits of one value: 4 for float4_e2m1fn_x2 (the value, not the packed byte).
int bits_of(DType type);

/// Largest finite value of a floating-point format.
double max_finite(DType type);

/// True for the 8- and 4-bit formats: overflow and infinity become max_finite().
bool saturates(DType type);

/// Half the distance between neighbouring values of the format around `magnitude` (>= 0, finite).
double half_ulp(DType type, double magnitude);

double decode(DType type, std::uint32_t code);

/// Round to nearest even. NaN becomes the format's NaN, 7 for e2m1.
std::uint32_t encode(DType type, float value);

/// E8M0 of a non-negative float: the next power of two at or above, 0xFE at most, 0xFF for NaN, 0x00 for zero.
std::uint8_t encode_e8m0_up(float value);

/// Value number `index` of a packed or plain array.
double load(const void* data, DType type, std::int64_t index);
void store(void* data, DType type, std::int64_t index, float value);
/// The code at `index`: 4, 8, 16 or 32 bits.
std::uint32_t load_code(const void* data, DType type, std::int64_t index);

}  // namespace gemmule::reference
