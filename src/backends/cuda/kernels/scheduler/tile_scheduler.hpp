// Hands tiles to the roles of a persistent kernel. One warp of the first CTA of each cluster walks the tiles, finds the
// expert of each and sends a record to every CTA of the cluster, through a ring in shared memory that runs ahead of the
// roles that read it.
#pragma once

#include "ptx/global.hpp"
#include "ptx/identity.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/warp.hpp"
#include "scheduler/cluster.hpp"
#include "scheduler/tile_order.hpp"

namespace gemmule::kernels {

using ptx::i32;
using ptx::U32x4;

/// Position in a ring of buffers: which one, and the parity of its current round.
struct RingState {
  u32 index = 0;
  u32 parity = 0;

  template <u32 size>
  GEMMULE_DEVICE void advance() {
    index += 1;
    if (index == size) {
      index = 0;
      parity ^= 1;
    }
  }
};

struct Tile {
  u32 row;     ///< first row of A, C and D; end_of_tiles: no more
  u32 column;  ///< first compact column
  u32 expert;
  u32 columns;  ///< compact columns of this tile that exist
};
inline constexpr u32 end_of_tiles = 0xFFFFFFFFu;

/// The ring of records. `full` completes when the 16 bytes of a record are there; `empty`, of which only the first CTA's
/// is used, when every reader of the cluster has read it.
struct TileRing {
  static constexpr u32 size = 4;
  ptx::Shared<U32x4> records;
  ptx::Barrier full;
  ptx::Barrier empty;
};

/// Arrives on the barrier of one CTA of the cluster. Remote operations are for clusters of two or more: of `cluster`, only
/// whether it is 1 matters here and below.
template <u32 cluster>
GEMMULE_DEVICE void arrive_at(ptx::Barrier barrier, u32 cta) {
  if constexpr (cluster == 1)
    ptx::arrive(barrier);
  else
    ptx::arrive_remote(barrier, cta);
}

/// Reads the next record with a whole warp; one lane tells the first CTA of the cluster.
template <u32 cluster>
GEMMULE_DEVICE Tile read_tile(const TileRing& ring, RingState& at) {
  ptx::wait(ring.full + at.index, at.parity);
  const U32x4 record = ptx::load(ring.records + at.index);
  ptx::sync_warp();
  // The address depends on the record (a column is below 2^31): an arrival may overtake loads that it does not wait for.
  if (ptx::lane_index() == 0) arrive_at<cluster>(ring.empty + (at.index + (record.y >> 31)), 0);
  at.advance<TileRing::size>();
  return {record.x, record.y, record.z, record.w};
}

/// Number of experts that end at or before `row`, that is the expert of that row. A whole warp; at most 1024 experts.
GEMMULE_DEVICE u32 expert_of_row(const i32* offsets, u32 experts, i32 row) {
  const u32 lane = ptx::lane_index();
  const u32 last_of_block = lane * 32 + 31;
  const bool block_ends = last_of_block < experts && ptx::load(offsets + last_of_block) <= row;
  const u32 first = ptx::population_count(ptx::warp_ballot(block_ends)) * 32;
  const bool ends = first + lane < experts && ptx::load(offsets + first + lane) <= row;
  return first + ptx::population_count(ptx::warp_ballot(ends));
}

/// Puts a record into the ring of one CTA.
template <u32 cluster>
GEMMULE_DEVICE void send_tile(const TileRing& ring, u32 index, const U32x4& record, u32 cta) {
  if constexpr (cluster == 1) {
    ptx::store(ring.records + index, record);
    ptx::arrive(ring.full + index);
  } else {
    ptx::arrive_expect_bytes_remote(ring.full + index, cta, sizeof(U32x4));
    ptx::store_remote(ring.records + index, record, ring.full + index, cta);
  }
}

struct TileGrid {
  const i32* offsets;
  u32 experts;
  u32 n;           ///< compact columns
  u32* next_tile;  ///< null: a fixed stride
  u32 width = 1;   ///< tiles side by side that a cluster takes at once; those beyond N have no columns
};

/// The scheduler warp. Each CTA takes 128 rows of a row unit of 128 x ctas rows.
template <u32 tile_n, u32 ctas>
GEMMULE_DEVICE void schedule_tiles(const TileGrid& grid, const TileRing& ring) {
  constexpr u32 unit = 128 * ctas;
  const u32 lane = ptx::lane_index();
  const ClusterPlace to{ctas, grid.width, lane};  // this lane's CTA
  const u32 step = tile_n * grid.width;
  const u32 column_tiles = (grid.n + step - 1) / step;
  const u32 units = static_cast<u32>(ptx::load(grid.offsets + (grid.experts - 1))) / unit;
  RingState at;
  u32 index = ptx::cluster_index();
  for (bool more = true; more;) {
    if (grid.next_tile != nullptr) {
      index = lane == 0 ? ptx::fetch_add(grid.next_tile, 1) : 0;
      index = ptx::shuffle(index, 0);
    }
    const u32 unit_index = index / column_tiles;
    Tile tile{end_of_tiles, 0, 0, 0};
    more = unit_index < units;
    if (more) {
      const u32 expert = expert_of_row(grid.offsets, grid.experts, static_cast<i32>(unit_index * unit));
      const u32 begin = expert == 0 ? 0 : static_cast<u32>(ptx::load(grid.offsets + (expert - 1)));
      const u32 end = static_cast<u32>(ptx::load(grid.offsets + expert));
      const TilePosition position =
          tile_position(index - begin / unit * column_tiles, (end - begin) / unit, column_tiles);
      const u32 column = position.column * step;
      tile = {begin + position.row * unit, column, expert, grid.n - column};
    }
    ptx::wait_asleep(ring.empty + at.index, at.parity ^ 1);
    // A lane that still waits could miss this phase: sending lets the barrier go on to the next.
    ptx::sync_warp();
    if (lane < to.size()) {
      const u32 row = tile.row == end_of_tiles ? end_of_tiles : tile.row + to.part() * 128;
      const u32 offset = to.tile() * tile_n;
      const u32 left = tile.columns < offset ? 0 : tile.columns - offset;
      const U32x4 record{row, tile.column + offset, tile.expert, left < tile_n ? left : tile_n};
      if (to.size() == 1)
        send_tile<1>(ring, at.index, record, lane);
      else
        send_tile<2>(ring, at.index, record, lane);
    }
    at.advance<TileRing::size>();
    index += ptx::cluster_count();
  }
}

}  // namespace gemmule::kernels
