// Where a scale factor lies. Scales are bytes; a "row" is a row of A, B or D (for column scales a column of D), a
// "block" counts the sf_vec_size-long groups along the other axis. 128 rows x 4 blocks form an atom of 512 bytes:
//
//   offset = (row / 128 * B + block / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4,   B = ceil(blocks / 4)
//
// which is the shape (32, 4, ceil(rows/128), 4, B, L) with strides (16, 4, 512 B, 1, 512, 512 B ceil(rows/128)).
#pragma once

#include "layout/offsets.hpp"

namespace gemmule::layout {

inline constexpr i64 atom_rows = 128;
inline constexpr i64 atom_blocks = 4;
inline constexpr i64 atom_bytes = 512;
/// Rows or columns per scale factor of an operator's quantized output.
inline constexpr i64 output_block = 32;

/// Atoms along the blocks of `length` values: the B of the formula above.
GEMMULE_HD constexpr i64 block_atoms(i64 length, i64 vec) {
  return ceil_div(ceil_div(length, vec), atom_blocks);
}
/// Bytes of the scales of `rows` x `length` values.
GEMMULE_HD constexpr i64 scale_buffer_bytes(i64 rows, i64 length, i64 vec) {
  return ceil_div(rows, atom_rows) * block_atoms(length, vec) * atom_bytes;
}

/// Offset inside the atom.
GEMMULE_HD constexpr i64 atom_offset(i64 row, i64 block) {
  return row % 32 * 16 + row % atom_rows / 32 * 4 + block % atom_blocks;
}

GEMMULE_HD constexpr i64 scale_offset(i64 row, i64 block, i64 atoms) {
  return (row / atom_rows * atoms + block / atom_blocks) * atom_bytes + atom_offset(row, block);
}

/// Scale of column n and rows m/32*32 .. +31 of D, one layout for all `tensor_m` rows.
GEMMULE_HD constexpr i64 sfd_col_offset(i64 n, i64 m, i64 tensor_m) {
  return scale_offset(n, m / output_block, block_atoms(tensor_m, output_block));
}

/// The same packed expert by expert (discrete_col_sfd): each group owns a contiguous slab, laid out as for a matrix of
/// its own rows. group_start and group_rows are multiples of 128; `columns` is the number of columns of D.
GEMMULE_HD constexpr i64 sfd_col_offset(i64 n, i64 m, i64 group_start, i64 group_rows, i64 columns) {
  const i64 slab = group_start / atom_rows * ceil_div(columns, atom_rows) * atom_bytes;
  return slab + sfd_col_offset(n, m - group_start, group_rows);
}

}  // namespace gemmule::layout
