// Block quantization of a chunk of D, 128 rows by 32 columns, held by a warpgroup: along rows to D and SFD_row, along
// columns to D_col and SFD_col. A row's block is the 8 values of 4 neighbouring lanes; a column's block, 32 rows, is one
// warp. Formulas and special cases: numerics/quantization.hpp.
#pragma once

#include "epilogue/box.hpp"
#include "numerics/math.hpp"
#include "numerics/quantization.hpp"
#include "ptx/global.hpp"
#include "ptx/identity.hpp"
#include "ptx/warp.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

/// Values of a chunk in one thread: 4 rows of 8 columns.
struct ChunkValues {
  float row[fragment::rows][fragment::columns];
};

/// Totals over the four lanes that share lane / 4, of four values each: lane % 4 selects the value whose total the lane
/// returns. `join` is commutative; the order is fixed.
template <class Join>
GEMMULE_DEVICE float join_quad(const float (&value)[4], const Join& join) {
  const u32 lane = ptx::lane_index();
  const bool upper2 = (lane & 2) != 0;
  const bool upper1 = (lane & 1) != 0;
  float two[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i)
    two[i] = join(upper2 ? value[i + 2] : value[i], ptx::shuffle_xor(upper2 ? value[i] : value[i + 2], 2));
  return join(upper1 ? two[1] : two[0], ptx::shuffle_xor(upper1 ? two[0] : two[1], 1));
}

/// Totals over the eight lanes that share lane % 4, of eight values each: lane / 4 selects the value.
template <class Join>
GEMMULE_DEVICE float join_octet(const float (&value)[8], const Join& join) {
  const u32 lane = ptx::lane_index();
  const bool upper4 = (lane & 16) != 0;
  const bool upper2 = (lane & 8) != 0;
  const bool upper1 = (lane & 4) != 0;
  float four[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i)
    four[i] = join(upper4 ? value[i + 4] : value[i], ptx::shuffle_xor(upper4 ? value[i] : value[i + 4], 16));
  float two[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i)
    two[i] = join(upper2 ? four[i + 2] : four[i], ptx::shuffle_xor(upper2 ? four[i] : four[i + 2], 8));
  return join(upper1 ? two[1] : two[0], ptx::shuffle_xor(upper1 ? two[0] : two[1], 4));
}

struct JoinMaximum {
  GEMMULE_DEVICE float operator()(float a, float b) const { return numerics::amax_step(a, b); }
};
struct JoinSum {
  GEMMULE_DEVICE float operator()(float a, float b) const { return a + b; }
};

/// Row or column of a warp's 32 x 32 values whose scale a lane computes: row 8 (lane % 4) + lane / 4 of the rows, column
/// the same of the columns.
GEMMULE_DEVICE u32 scaled_line(u32 lane) {
  return lane % 4 * 8 + lane / 4;
}

GEMMULE_HD constexpr float rcp_max_of(Format format) {
  return format == Format::e4m3   ? numerics::rcp_max_e4m3
         : format == Format::e5m2 ? numerics::rcp_max_e5m2_output
                                  : numerics::rcp_max_e2m1;
}

/// Where the scale codes of a warpgroup's tile are collected: atoms of 512 bytes (layout/scale_factors.hpp).
struct ScaleAtoms {
  Shared<u8> row;  ///< 128 rows x 4 blocks of 32 columns
  Shared<u8> col;  ///< 128 columns x 4 blocks of 32 rows
};

/// Largest magnitudes of a warp's 32 x 32 values along the row and along the column scaled_line().
struct LineMaxima {
  float row, column;
};

GEMMULE_DEVICE LineMaxima line_maxima(const ChunkValues& y) {
  const JoinMaximum join;
  // In pairs: half as many dependent steps as with a running maximum.
  const auto of_row = [&](u32 r, u32 i) { return join(numerics::absolute(y.row[r][i]), y.row[r][i + 1]); };
  const auto of_column = [&](u32 i, u32 r) { return join(numerics::absolute(y.row[r][i]), y.row[r + 1][i]); };
  float rows[fragment::rows], columns[fragment::columns];
#pragma unroll
  for (u32 i = 0; i < fragment::columns; ++i) columns[i] = join(of_column(i, 0), of_column(i, 2));
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r)
    rows[r] = join(join(of_row(r, 0), of_row(r, 2)), join(of_row(r, 4), of_row(r, 6)));
  const float column = join_octet(columns, join);
  return {join_quad(rows, join), column};
}

/// What the scales of a chunk need: block `block` < 4 of the row atom and columns 32 block .. of the column atom.
struct ScaleTarget {
  ScaleAtoms atoms;
  u32 block;
  u32 thread;
  Shared<float> scratch;  ///< of the warp, scaled::quantize_scratch floats
  float norm_const;
};

/// Boxes plus box::thread_offset().
struct QuantizedBoxes {
  Shared<u8> d, d_col;
};

/// Quantizes a warp's part of a chunk. `scales()` returns the ScaleTarget when it may be written to, then `boxes()` the
/// QuantizedBoxes: late, so that what they compute occupies no registers meanwhile.
template <class Scales, class Boxes>
GEMMULE_DEVICE void quantize_chunk(Format format, const ChunkValues& y, const Scales& scales,
                                   const Boxes& boxes) {
  const LineMaxima maxima = line_maxima(y);
  const ScaleTarget to = scales();
  const u32 lane = to.thread % 32, warp = to.thread / 32, line = scaled_line(lane);
  const float rcp_max = rcp_max_of(format), norm_const = to.norm_const;
  // Each lane needs the multipliers of its four rows and eight columns.
  const numerics::BlockScale row =
      numerics::block_scale(numerics::row_scale(maxima.row, rcp_max, norm_const), norm_const);
  ptx::store(to.atoms.row.bytes(line * 16 + warp * 4 + to.block), row.code);
  ptx::store(to.scratch + lane, row.multiplier);
  const numerics::BlockScale col =
      numerics::block_scale(numerics::col_scale(maxima.column, rcp_max, norm_const), norm_const);
  ptx::store(to.atoms.col.bytes(line * 16 + to.block * 4 + warp), col.code);
  ptx::store(to.scratch + (32 + line), col.multiplier);
  ptx::sync_warp();
  const QuantizedBoxes box = boxes();
  // Along rows first, along columns second: registers are scarce.
  const U32x4 by_row = ptx::load((to.scratch + lane / 4 * 4).as<U32x4>());
  const u32 row_bits[4] = {by_row.x, by_row.y, by_row.z, by_row.w};
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r) {
    float q[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) q[i] = y.row[r][i] * numerics::float_of(row_bits[r]);
    box::store(box::row_address(box.d, format, r), format, q);
  }
  const U32x4 low = ptx::load((to.scratch + (32 + lane % 4 * 8)).as<U32x4>());
  const U32x4 high = ptx::load((to.scratch + (36 + lane % 4 * 8)).as<U32x4>());
  const u32 col_bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r) {
    float q[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) q[i] = y.row[r][i] * numerics::float_of(col_bits[i]);
    box::store(box::row_address(box.d_col, format, r), format, q);
  }
}

/// The codes of a block that lies past the last column.
GEMMULE_DEVICE void clear_scales(const ScaleAtoms& atoms, u32 block, u32 thread) {
  const u32 line = scaled_line(thread % 32);
  ptx::store(atoms.row.bytes(line * 16 + thread / 32 * 4 + block), u8{0});
  ptx::store(atoms.col.bytes(line * 16 + block * 4 + thread / 32), u8{0});
}

/// Copies the codes of the 128 rows from `row` and the 128 columns of D from `column` (of `width`) to SFD_row and SFD_col,
/// by threads 0..63. The codes must be visible to them.
GEMMULE_DEVICE void store_scales(const ScaledOptions& options, const ScaledParams& params,
                                 const ScaleAtoms& atoms, u32 expert, u32 row, u32 column, u32 width,
                                 u32 thread) {
  const bool by_column = thread >= 32;
  u8* to = params.sfd_row + layout::scale_offset(row, column / 32, layout::block_atoms(width, 32));
  if (by_column) {
    i64 offset;
    if (options.discrete_col_sfd) {
      const u32 begin = expert == 0 ? 0 : static_cast<u32>(ptx::load(params.offsets + (expert - 1)));
      const u32 end = static_cast<u32>(ptx::load(params.offsets + expert));
      offset = layout::sfd_col_offset(column, row, begin, end - begin, width);
    } else {
      offset = layout::sfd_col_offset(column, row, params.m);
    }
    to = params.sfd_col + offset;
  }
  const u32 piece = thread % 32 * 16;
  const Shared<u8> from = (by_column ? atoms.col : atoms.row).bytes(piece);
  ptx::store(reinterpret_cast<U32x4*>(to + piece), ptx::load(from.as<U32x4>()));
}

/// Largest magnitude of `running` and 8 values.
GEMMULE_DEVICE float maximum(const float (&y)[fragment::columns], float running) {
  const JoinMaximum join;
  const auto pair = [&](u32 i) { return join(numerics::absolute(y[i]), y[i + 1]); };
  return join(running, join(join(pair(0), pair(2)), join(pair(4), pair(6))));
}

/// Merges a warp's maximum into *to, whose bits order as integers: -inf or not negative, NaN above all.
GEMMULE_DEVICE void merge_maximum(float* to, float running) {
#pragma unroll
  for (u32 mask = 16; mask != 0; mask /= 2)
    running = numerics::amax_step(running, ptx::shuffle_xor(running, mask));
  if (ptx::lane_index() == 0)
    ptx::reduce_max(reinterpret_cast<i32*>(to), static_cast<i32>(numerics::bits_of(running)));
}

}  // namespace gemmule::kernels
