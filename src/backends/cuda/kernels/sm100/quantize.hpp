// Block quantization of panels: a row's block is the 32 values of one thread, a column's block one warp. Formulas and
// special cases: numerics/quantization.hpp.
#pragma once

#include "epilogue/quantize_chunk.hpp"
#include "sm100/panel.hpp"

namespace gemmule::kernels {

/// numerics::encode_e8m0 of a value that is not negative.
GEMMULE_DEVICE u32 scale_code(float scale) {
  return ptx::pack_e8m0(scale, scale) & 0xFF;
}

GEMMULE_DEVICE void add_row_maximum(const panel::Values& v, float& running) {
#pragma unroll
  for (u32 i = 0; i < panel::columns; ++i) running = numerics::amax_step(running, v.at[i]);
}

/// Quantizes this thread's row into a panel; returns its scale code.
GEMMULE_DEVICE u32 quantize_row(Format format, const panel::Values& v, float norm_const, Shared<u8> to,
                                u32 row) {
  float amax = 0;
  add_row_maximum(v, amax);
  const u32 code = scale_code(numerics::row_scale(amax, rcp_max_of(format), norm_const));
  const float multiplier = numerics::multiplier(norm_const, static_cast<u8>(code));
  panel::Values q;
#pragma unroll
  for (u32 i = 0; i < panel::columns; ++i) q.at[i] = v.at[i] * multiplier;
  panel::store(to, format, row, q);
  return code;
}

/// Quantizes the warp's 32 columns into a panel. Lane i writes the code of column i to codes[i]. `multipliers`: 32
/// floats of this warp.
GEMMULE_DEVICE void quantize_columns(Format format, const panel::Values& v, float norm_const, Shared<u8> to,
                                     u32 row, Shared<float> multipliers, Shared<u32> codes) {
  const u32 lane = ptx::lane_index();
  panel::Values magnitudes;
#pragma unroll
  for (u32 i = 0; i < panel::columns; ++i) magnitudes.at[i] = numerics::amax_step(0, v.at[i]);
  const float amax = join_lanes(magnitudes, JoinMaximum{});
  const u32 code = scale_code(numerics::col_scale(amax, rcp_max_of(format), norm_const));
  ptx::store(codes + lane, code);
  ptx::sync_warp();  // the last panel's have been read
  ptx::store(multipliers + lane, numerics::multiplier(norm_const, static_cast<u8>(code)));
  ptx::sync_warp();
  panel::Values q;
#pragma unroll
  for (u32 i = 0; i < panel::columns; i += 4) {
    const U32x4 four = ptx::load((multipliers + i).as<U32x4>());
    q.at[i] = v.at[i] * numerics::float_of(four.x);
    q.at[i + 1] = v.at[i + 1] * numerics::float_of(four.y);
    q.at[i + 2] = v.at[i + 2] * numerics::float_of(four.z);
    q.at[i + 3] = v.at[i + 3] * numerics::float_of(four.w);
  }
  panel::store(to, format, row, q);
}

/// Offsets of the column scales of one expert.
struct ColumnScales {
  i64 start = 0, rows = 0;  ///< of the expert, with discrete_col_sfd

  GEMMULE_DEVICE i64 offset(const ScaledOptions& options, const ScaledParams& params, i64 columns, i64 n,
                            i64 m) const {
    return options.discrete_col_sfd ? layout::sfd_col_offset(n, m, start, rows, columns)
                                    : layout::sfd_col_offset(n, m, params.m);
  }
  GEMMULE_DEVICE static ColumnScales of(const ScaledOptions& options, const ScaledParams& params,
                                        u32 expert) {
    ColumnScales s;
    if (!options.discrete_col_sfd) return s;
    s.start = expert == 0 ? 0 : ptx::load(params.offsets + (expert - 1));
    s.rows = ptx::load(params.offsets + expert) - s.start;
    return s;
  }
};

/// The scale bytes of the last 128 columns' atom that lie past the last of `columns`: code 0. One group.
GEMMULE_DEVICE void clear_padding_codes(const ScaledOptions& options, const ScaledParams& params,
                                        const ColumnScales& scales, i64 columns, i64 first_row, u32 thread) {
  const i64 end = (columns + 127) / 128 * 128;
  const i64 atoms = layout::block_atoms(columns, layout::output_block);
  for (i64 block = (columns + 31) / 32; block < end / 32; ++block)
    ptx::store(params.sfd_row + layout::scale_offset(first_row + thread, block, atoms), u8{0});
  if (columns + thread < end)
    ptx::store(reinterpret_cast<u32*>(params.sfd_col +
                                      scales.offset(options, params, columns, columns + thread, first_row)),
               0u);
}

/// Column scales of a chunk's `count` columns from `first` on: the codes of four warps (64 words apart) make a word. One
/// group, after a barrier.
GEMMULE_DEVICE void store_column_codes(const ScaledOptions& options, const ScaledParams& params,
                                       const ColumnScales& scales, i64 columns, Shared<u32> codes, i64 first,
                                       u32 count, i64 first_row, u32 thread) {
  if (thread >= count) return;
  u32 word = 0;
#pragma unroll
  for (u32 warp = 0; warp < 4; ++warp) word |= ptx::load(codes + (warp * 64 + thread)) << 8 * warp;
  const i64 offset = scales.offset(options, params, columns, first + thread, first_row);
  ptx::store(reinterpret_cast<u32*>(params.sfd_col + offset), word);
}

}  // namespace gemmule::kernels
