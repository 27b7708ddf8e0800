// Where things lie in memory, written for the oracle alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/problem.hpp"

namespace gemmule::reference {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Byte of the scale of (row, block) in a buffer with `blocks` blocks per row: memory order
/// [rows / 128][blocks / 4][32][4][4], whose last three extents are row % 32, row / 32 % 4, block % 4.
inline std::int64_t scale_index(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  std::int64_t index = row / 128;
  index = index * ceil_div(blocks, 4) + block / 4;
  index = index * 32 + row % 32;
  index = index * 4 + row / 32 % 4;
  return index * 4 + block % 4;
}

/// Bytes of a scale buffer of `rows` x `blocks`.
inline std::int64_t scale_bytes_of(std::int64_t rows, std::int64_t blocks) {
  return ceil_div(rows, 128) * ceil_div(blocks, 4) * 512;
}

struct RowRange {
  std::int64_t begin, end;
};

/// Rows of one expert.
inline RowRange rows_of(const Problem& p, const Operands& o, int expert) {
  if (p.single_group_runtime_offsets) return {0, o.m};
  const std::int64_t begin = expert == 0 ? 0 : o.padded_offsets[expert - 1];
  return {begin, o.padded_offsets[expert]};
}

/// End of the last expert: rows from here on are never written.
inline std::int64_t rows_written(const Problem& p, const Operands& o) {
  return rows_of(p, o, p.experts - 1).end;
}

/// Byte of the column scale of (column, 32-row block of `row`). With discrete_col_sfd every expert's scales form one
/// canonical buffer of their own, placed one after the other.
inline std::int64_t col_scale_index(const Problem& p, const Operands& o, RowRange expert, std::int64_t column,
                                    std::int64_t row) {
  if (!p.discrete_col_sfd) return scale_index(column, row / 32, ceil_div(o.m, 32));
  const std::int64_t before = scale_bytes_of(p.width(), expert.begin / 32);
  return before + scale_index(column, (row - expert.begin) / 32, (expert.end - expert.begin) / 32);
}

/// Column of C and D that holds the gate of compact column n; the input is 32 columns further.
inline std::int64_t gate_column_of(std::int64_t n) {
  return n + n / 32 * 32;
}

/// b_ptrs and sfb_ptrs hold host addresses.
inline const void* address(std::int64_t pointer) {
  // The callers' arrays hold integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<const void*>(pointer);
}

}  // namespace gemmule::reference
