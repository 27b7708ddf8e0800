// Whether the scales of a tile's operands lie close enough together for FP16 (sm90/expand.hpp), found by the scheduling warp from
// the scales themselves, some tiles ahead of the main loop.
#pragma once

#include "ptx/global.hpp"
#include "ptx/tma.hpp"
#include "scheduler/row_tile_scheduler.hpp"
#include "sm90/expand.hpp"
#include "sm90/scaled_layout.hpp"

namespace gemmule::kernels {

/// Largest code, and smallest but 0, in the upper byte of each half; what the lower bytes hold does not matter.
struct CodeRange {
  u32 largest = 0;
  u32 smallest = 0xFFFFFFFFu;  ///< less 1, so that code 0 is larger than all others
};

/// Adds 128 rows of scales, of which `rows` exist, `blocks` each. A lane reads the 4 blocks of rows lane, lane + 32, ..
GEMMULE_DEVICE void add_codes(CodeRange& range, const u8* scales, u32 rows, u32 blocks) {
  const u32 lane = ptx::lane_index();
  const U32x4* from = reinterpret_cast<const U32x4*>(scales) + lane;
  // The kernel's first tile waits for this: several loads at a time.
#pragma unroll 4
  for (u32 block = 0; block < blocks; block += 4, from += scaled::atom_bytes / 16) {
    const U32x4 atom = ptx::load(from);
    const u32 left = blocks - block;
    const u32 exists = left < 4 ? (1u << (8 * left)) - 1 : 0xFFFFFFFFu;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 odd = 32 * i + lane < rows ? expand::word_of(atom, i) & exists : 0, even = odd << 8;
      range.largest = ptx::max_u16(ptx::max_u16(range.largest, odd), even);
      range.smallest = ptx::min_u16(range.smallest, ptx::add_u16(odd, 0xFF00FF00u));
      range.smallest = ptx::min_u16(range.smallest, ptx::add_u16(even, 0xFF00FF00u));
    }
  }
}

struct OperandWindow {
  bool fits;
  u32 base;
};
/// A whole warp.
GEMMULE_DEVICE OperandWindow operand_window(CodeRange range, Format ab) {
  const u32 lane = ptx::lane_index();
#pragma unroll
  for (u32 distance = 16; distance != 0; distance /= 2) {
    range.largest = ptx::max_u16(range.largest, ptx::shuffle(range.largest, lane ^ distance));
    range.smallest = ptx::min_u16(range.smallest, ptx::shuffle(range.smallest, lane ^ distance));
  }
  const u32 largest = ptx::max_u16(range.largest, range.largest >> 16) >> 8 & 0xFF;
  const u32 smallest =
      (ptx::min_u16(range.smallest, range.smallest >> 16 | range.smallest << 16) >> 8 & 0xFF) + 1;
  const expand::Window window = expand::window(ab);
  const bool none = largest == 0;
  return {none || (largest != 255 && smallest >= window.lowest && largest - smallest <= window.span),
          expand::window_base(ab, largest)};
}

/// The FP16 part of a tile's record.
GEMMULE_DEVICE Fp16Tile fp16_tile(const ScaledOptions& options, const ScaledParams& params, u32 expert,
                                  u32 row, u32 rows, u32 column) {
  if (options.ab == Format::e2m1) return {};
  const u32 blocks = (params.k + options.vec - 1) / options.vec;
  const u32 row_bytes = (blocks + 3) / 4 * scaled::atom_bytes;
  const u8* sfa = params.sfa + i64{row / 128} * row_bytes;
  const u32 b_rows = (params.n + scaled::tile_n - 1) / scaled::tile_n;
  const u8* sfb = options.discrete ? reinterpret_cast<const u8*>(ptx::load(params.sfb_ptrs + expert))
                                   : params.sfb + i64{expert * b_rows} * row_bytes;
  sfb += i64{column / scaled::tile_n} * row_bytes;
  const u32 lane = ptx::lane_index();
  if (lane < rows / 128 + 1) ptx::prefetch_bytes(lane == 0 ? sfb : sfa + (lane - 1) * row_bytes, row_bytes);
  CodeRange a, b;
  add_codes(b, sfb, params.n - column, blocks);
  for (u32 done = 0; done < rows; done += 128, sfa += row_bytes) add_codes(a, sfa, 128, blocks);
  const OperandWindow of_a = operand_window(a, options.ab), of_b = operand_window(b, options.ab);
  const i32 exponent = expand::result_exponent(of_a.base, of_b.base);
  return {of_a.fits && of_b.fits && exponent >= -100 && exponent <= 100, of_a.base, of_b.base};
}

}  // namespace gemmule::kernels
