// The frame of the block-scaled kernels: who does what in a CTA.
#pragma once

#include "sm90/scaled_mainloop.hpp"

namespace gemmule::kernels {

/// Which of the math warpgroups this is.
GEMMULE_DEVICE u32 math_group() {
  return ptx::shuffle(ptx::reread_thread_index(), 0) / ptx::warpgroup_size -
         (scaled::threads / ptx::warpgroup_size - scaled::groups);
}

/// The frame of both kernels. `Operator` has
///   static constexpr bool feeds_c;                       warp 1 of the feeding warpgroup reads the tiles and runs feed_c()
///   static void init_barriers(const Layout&, Barrier first);
///   void feed_c() const;                                 reads every tile record
///   void start();                                        by one math warpgroup, before its first tile
///   void begin(const RowTile&, u32 group);               by one math warpgroup, before the main loop of a tile
///   void epilogue(ScaledAccumulators&, const RowTile&, u32 group);   after it
///   void finish(u32 group);                              after its last tile
/// and is built from {options, params, layout, base of shared memory, first free barrier, thread in its warpgroup}.
template <class Operator, class Options, class Params>
GEMMULE_DEVICE void run_scaled(const Options& options, const Params& params, const ScaledLayout& layout) {
  const Shared<u8> base = ptx::dynamic_shared();
  const ScaledMainloop loop{options.common, params.common, layout, ScaledShared::at(base, layout),
                            ptx::thread_index() % ptx::warpgroup_size};
  const u32 warp = ptx::warp_index();
  if (warp == 0 && ptx::elect_one()) {
    loop.init_barriers(Operator::feeds_c ? 1 : 0);
    Operator::init_barriers(layout, loop.shared.first_free);
    ptx::fence_barrier_init();
  }
  ptx::sync_warp();
  ptx::sync_cta();
  ptx::launch_next_grid();
  ptx::wait_for_previous_grid();
  const u32 role = warp / ScaledMainloop::warps_per_group;
  const bool fp4 = options.common.ab == Format::e2m1;
  Operator op{options, params, layout, base, loop.shared.first_free, loop.thread};
  if (role == 0) {
    if (fp4)
      ptx::lower_registers<ScaledMainloop::fp4_feed_registers>();
    else
      ptx::lower_registers<ScaledMainloop::feed_registers>();
    if (warp == 0) {
      loop.feed_operands();
    } else if (warp == 3) {
      loop.feed_scales();
    } else if (warp == 1) {
      if constexpr (Operator::feeds_c) op.feed_c(loop.shared.tiles);
    } else if (warp == 2) {
      schedule_row_tiles<scaled::tile_rows, scaled::tile_n>(
          {params.common.offsets, params.common.experts, params.common.n,
           options.common.dynamic ? params.common.next_tile : nullptr},
          loop.shared.tiles, [&](u32 expert, u32 row, u32 rows, u32 column) {
            return fp16_tile(options.common, params.common, expert, row, rows, column);
          });
    }
  } else if (role == 1) {
    if (fp4)
      ptx::lower_registers<ScaledMainloop::fp4_expand_registers>();
    else
      ptx::lower_registers<ScaledMainloop::expand_registers>();
    loop.expand_b();
  } else {
    ptx::raise_registers<ScaledMainloop::math_registers>();
    op.start();
    // What goes from tile to tile must be uniform, for then it takes none of the registers that dGLU's epilogue leaves: no
    // branch may depend on what the compiler does not know to be the same in the whole warp. Nor is the group kept.
    for (u32 tiles = 0;; ++tiles) {
      RingState tile_at{tiles % TileRing::size, tiles / TileRing::size % 2};
      const RowTile tile = read_row_tile(loop.shared.tiles, tile_at);
      if (tile.row == end_of_tiles) break;
      const u32 group = math_group();
      if (tile.rows <= group * 128) {
        loop.skip_tile(tiles);
        continue;
      }
      op.begin(tile, group);
      ScaledAccumulators sums;
      // With its own thread index, so that what follows from it occupies no registers in the epilogue.
      const ScaledMainloop own{loop.options, loop.params, loop.layout, loop.shared,
                               ptx::reread_thread_index() % ptx::warpgroup_size};
      own.multiply_tile(tile, group, sums, tiles);
      op.epilogue(sums, tile, group);
    }
    op.finish(math_group());
  }
}

}  // namespace gemmule::kernels
