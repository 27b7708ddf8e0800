// Index arithmetic on padded offsets and rows, host and device.
//
// padded_offsets[g] is the first row after group g; group 0 starts at row 0. All offsets are 64-bit: a row index times
// a row pitch passes 2^31 at sizes people use.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::layout {

using numerics::i32;
using numerics::i64;
using numerics::u8;

GEMMULE_HD constexpr i64 ceil_div(i64 a, i64 b) {
  return (a + b - 1) / b;
}
GEMMULE_HD constexpr i64 round_up(i64 a, i64 multiple) {
  return ceil_div(a, multiple) * multiple;
}

/// First row of group g.
GEMMULE_HD i64 group_start(const i32* padded_offsets, i64 g) {
  return g == 0 ? 0 : padded_offsets[g - 1];
}
/// Rows of group g.
GEMMULE_HD i64 group_rows(const i32* padded_offsets, i64 g) {
  return padded_offsets[g] - group_start(padded_offsets, g);
}

/// The group that holds `row`: the first g with row < padded_offsets[g]; `groups` for rows past the last group.
GEMMULE_HD i64 group_of_row(const i32* padded_offsets, i64 groups, i64 row) {
  i64 low = 0;
  i64 high = groups;
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (row < padded_offsets[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Offset of a row of `pitch` units.
GEMMULE_HD constexpr i64 row_offset(i64 row, i64 pitch) {
  return row * pitch;
}

}  // namespace gemmule::layout
