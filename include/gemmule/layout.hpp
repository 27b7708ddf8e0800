// Layout helpers on host memory: scale-factor swizzle, gate/input interleave, padded offsets.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gemmule/tensor.hpp"

namespace gemmule {

/// Inclusive running sum of the counts, each rounded up to `alignment` (an empty group stays empty).
/// pad_offsets({90, 0, 10}, 256) == {256, 256, 512}. Throws InvalidArgument for a negative count, an alignment < 1 or
/// a sum beyond int32.
std::vector<std::int32_t> pad_offsets(std::span<const std::int64_t> counts, std::int32_t alignment = 256);

/// Shape (32, 4, R, 4, B, L) of the scale factors of `rows` x `length` values, one per `vec` along `length`.
std::array<std::int64_t, 6> scale_shape(std::int64_t rows, std::int64_t length, int vec,
                                        std::int64_t experts = 1);
/// Strides (16, 4, 512*B, 1, 512, 512*B*R) in bytes that go with scale_shape().
std::array<std::int64_t, 6> scale_strides(std::int64_t rows, std::int64_t length, int vec);
/// Bytes of one expert's scale factors: R * B * 512.
std::int64_t scale_bytes(std::int64_t rows, std::int64_t length, int vec);

/// linear: row-major (rows, ceil(length/vec)) scale bytes; swizzled: scale_bytes() bytes, padding set to 0.
void swizzle_scales(const std::uint8_t* linear, std::uint8_t* swizzled, std::int64_t rows,
                    std::int64_t length, int vec);
void unswizzle_scales(const std::uint8_t* swizzled, std::uint8_t* linear, std::int64_t rows,
                      std::int64_t length, int vec);

/// [gate | input] halves (rows, 2n) <-> alternating 32-column blocks, gate first. n must be a multiple of 32.
/// `element_size` is 1, 2 or 4 bytes; the source and the destination must not overlap.
void interleave_gate_input(const void* halves, void* blocks, std::int64_t rows, std::int64_t n,
                           std::size_t element_size);
void deinterleave_gate_input(const void* blocks, void* halves, std::int64_t rows, std::int64_t n,
                             std::size_t element_size);

}  // namespace gemmule
