// Which rows and columns of a 128 x 128 warpgroup tile a thread of the block-scaled kernels holds.
//
// Both orders are free: A reaches wgmma from registers, so any rows can lie in any lane, and the rows of B (columns of
// the product) can be written to shared memory in any order. They are chosen for the epilogue: 32 rows lie in one warp
// (a column block of the quantization), and a thread has 8 neighbouring columns of every 32 (one wide access to
// a row of C or D instead of eight narrow ones).
//
//   lane = 4 g + t;  element 4 j + 2 u + c of accumulator half h:
//     row 32 warp + 16 h + 8 u + g            column 32 (j / 4) + 8 t + 2 (j % 4) + c
#pragma once

#include "ptx/types.hpp"

namespace gemmule::kernels {

using ptx::u32;

namespace fragment {

inline constexpr u32 rows = 4;     ///< of a thread
inline constexpr u32 columns = 8;  ///< of a thread in each chunk
inline constexpr u32 chunk_columns = 32;
/// Accumulator elements of a half that belong to one chunk.
inline constexpr u32 chunk_elements = 16;

/// Row `r` < 4 of a thread (0..127 in its warpgroup), r = 2 h + u.
GEMMULE_HD constexpr u32 row(u32 thread, u32 r) {
  return thread / 32 * 32 + 8 * r + thread % 32 / 4;
}
/// First of the thread's columns in a chunk.
GEMMULE_HD constexpr u32 column(u32 lane) {
  return lane % 4 * columns;
}
/// Element of half r / 2, within a chunk, that holds row r and column i < 8 of the thread.
GEMMULE_HD constexpr u32 element(u32 r, u32 i) {
  return i / 2 * 4 + r % 2 * 2 + i % 2;
}

/// Where column n < 128 of the product (row n of B) lies among the rows of the expanded tile of B, and the inverse:
/// bits [t1 t0 j1 j0 c] of n % 32 become [j1 j0 t1 t0 c].
GEMMULE_HD constexpr u32 position(u32 n) {
  return (n & ~30u) | (n >> 3 & 3) << 1 | (n >> 1 & 3) << 3;
}

/// The row of B that thread i < 128 of the expanding warpgroup handles. Among 8 lanes that access 16 bytes each at a time,
/// both n / 2 % 4 and position(n) / 2 % 4 take all their values for either parity of n: rows of a raw tile (64-byte rows
/// with the 64-byte swizzle, or 32-byte rows with the 32-byte swizzle) and of the expanded tile (128-byte swizzle) are
/// then free of bank conflicts.
GEMMULE_HD constexpr u32 expander_row(u32 i) {
  const u32 t = i >> 1 & 3;
  const u32 j = t ^ (i >> 3 & 3);
  return (i & ~31u) | t << 3 | j << 1 | (i & 1);
}

}  // namespace fragment

}  // namespace gemmule::kernels
