// Tiles of 256 rows whose experts may end with half a tile: the scheduler warp of kernels without clusters.
#pragma once

#include "scheduler/tile_scheduler.hpp"

namespace gemmule::kernels {

/// What the block-scaled kernels know about the scales of a tile (sm90/scale_window.hpp).
struct Fp16Tile {
  bool use = false;            ///< FP16 operands
  u32 base_a = 0, base_b = 0;  ///< < 256
};

struct RowTile {
  u32 row;     ///< first row; end_of_tiles: no more
  u32 column;  ///< first column of the product
  u32 expert;
  u32 columns;  ///< that exist, at most 128
  u32 rows;     ///< 256, or 128 at the end of an expert
  Fp16Tile fp16;
};

/// The fourth word of a record.
GEMMULE_DEVICE u32 packed_extents(u32 columns, u32 rows, const Fp16Tile& fp16) {
  return columns | rows / 128 << 8 | static_cast<u32>(fp16.use) << 10 | fp16.base_a << 16 | fp16.base_b << 24;
}

GEMMULE_DEVICE RowTile read_row_tile(const TileRing& ring, RingState& at) {
  const Tile tile = read_tile<1>(ring, at);
  const u32 word = tile.columns;
  return {tile.row,    tile.column,           tile.expert,
          word & 0xFF, (word >> 8 & 3) * 128, {(word >> 10 & 1) != 0, word >> 16 & 0xFF, word >> 24}};
}

/// Finds experts of row units that only grow. 32 experts at a time, one per lane.
struct ExpertWalk {
  u32 block = 0;   ///< first of the 32
  u32 before = 0;  ///< row units of the experts before it

  struct Found {
    u32 expert, begin, end;  ///< rows
    u32 before;              ///< row units of the experts before it
  };

  /// A whole warp, with the same unit. False: there is no such unit.
  GEMMULE_DEVICE bool find(const i32* offsets, u32 experts, u32 unit, u32 unit_rows, Found& found) {
    const u32 lane = ptx::lane_index();
    for (; block < experts; block += 32) {
      const u32 expert = block + lane;
      const bool exists = expert < experts;
      const u32 end = exists ? static_cast<u32>(ptx::load(offsets + expert)) : 0;
      const u32 begin = exists && expert != 0 ? static_cast<u32>(ptx::load(offsets + (expert - 1))) : 0;
      const u32 units = (end - begin + unit_rows - 1) / unit_rows;
      u32 through = units;  // of this lane's expert and those before it in the block
#pragma unroll
      for (u32 distance = 1; distance < 32; distance *= 2) {
        const u32 other = ptx::shuffle(through, lane < distance ? lane : lane - distance);
        through += lane < distance ? 0 : other;
      }
      const u32 passed = ptx::population_count(ptx::warp_ballot(before + through <= unit));
      if (passed < 32) {
        found.expert = block + passed;
        found.begin = ptx::shuffle(begin, passed);
        found.end = ptx::shuffle(end, passed);
        found.before = before + ptx::shuffle(through - units, passed);
        return found.expert < experts;
      }
      before += ptx::shuffle(through, 31);
    }
    return false;
  }
};

/// The scheduler warp. fp16_tile(expert, row, rows, column), by the whole warp, gives the FP16 part of a record.
template <u32 unit_rows, u32 tile_n, class Fp16>
GEMMULE_DEVICE void schedule_row_tiles(const TileGrid& grid, const TileRing& ring, const Fp16& fp16_tile) {
  const u32 lane = ptx::lane_index();
  const u32 column_tiles = (grid.n + tile_n - 1) / tile_n;
  ExpertWalk walk;
  RingState at;
  u32 index = ptx::cta_index();
  for (bool more = true; more;) {
    if (grid.next_tile != nullptr) {
      index = lane == 0 ? ptx::fetch_add(grid.next_tile, 1) : 0;
      index = ptx::shuffle(index, 0);
    }
    ExpertWalk::Found found{};
    U32x4 record{end_of_tiles, 0, 0, 0};
    more = walk.find(grid.offsets, grid.experts, index / column_tiles, unit_rows, found);
    if (more) {
      const u32 rows = found.end - found.begin;
      const TilePosition position = tile_position(index - found.before * column_tiles,
                                                  (rows + unit_rows - 1) / unit_rows, column_tiles);
      const u32 column = position.column * tile_n;
      const u32 row = position.row * unit_rows;
      const u32 columns_left = grid.n - column, rows_left = rows - row;
      const u32 tile_rows = rows_left < unit_rows ? rows_left : unit_rows;
      record = {found.begin + row, column, found.expert,
                packed_extents(columns_left < tile_n ? columns_left : tile_n, tile_rows,
                               fp16_tile(found.expert, found.begin + row, tile_rows, column))};
    }
    ptx::wait_asleep(ring.empty + at.index, at.parity ^ 1);
    // A lane that still waits could miss this phase: sending lets the barrier go on to the next.
    ptx::sync_warp();
    if (lane == 0) send_tile<1>(ring, at.index, record, 0);
    at.advance<TileRing::size>();
    index += ptx::cta_count();
  }
}

}  // namespace gemmule::kernels
