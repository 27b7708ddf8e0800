// Block-scaled grouped GEMM + dGLU for sm_90a: D = gradient(alpha^2 A B^T, beta C), D and D_col quantized where wanted. The main
// loop is scaled_mainloop.hpp, what happens to its sums scaled_dglu_epilogue.hpp.
#pragma once

#include "sm90/scaled_dglu_epilogue.hpp"
#include "sm90/scaled_frame.hpp"

namespace gemmule::kernels {

struct ScaledDglu {
  static constexpr bool feeds_c = true;

  const ScaledDgluOptions& options;
  const ScaledDgluParams& params;
  const ScaledLayout& layout;
  Shared<u8> base;
  Barrier first_barrier;
  u32 thread;

  GEMMULE_DEVICE static void init_barriers(const ScaledLayout& layout, Barrier first) {
    ScaledDgluEpilogue::init_barriers(layout.chunk_buffers, first);
  }

  GEMMULE_DEVICE ScaledDgluEpilogue both_groups() const {
    return {options,
            params,
            scaled_dglu_staging(options, scaled::dglu_staging_limit),
            base.bytes(layout.c),
            first_barrier,
            scaled::threads - scaled::groups * ptx::warpgroup_size};
  }

  /// C of every tile, for both warpgroups chunk by chunk, by one lane.
  GEMMULE_DEVICE void feed_c(const TileRing& tiles) const {
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(&params.common.c);
      ptx::prefetch(&params.common.d);
      if (options.common.has_d_col) ptx::prefetch(&params.common.d_col);
    }
    const ScaledDgluEpilogue epilogue_of = both_groups();
    u32 first_number = 0, second_number = 0;
    RingState tile_at;
    for (;;) {
      const RowTile tile = read_row_tile(tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
#pragma unroll 1
      for (u32 n = 0; n < tile.columns; n += fragment::chunk_columns) {
        epilogue_of.feed_chunk(0, tile.row, tile.column + n, first_number++);
        if (tile.rows > scaled::box_rows)
          epilogue_of.feed_chunk(1, tile.row + scaled::box_rows, tile.column + n, second_number++);
      }
    }
  }

  GEMMULE_DEVICE void start() const {
    both_groups().start();
  }

  GEMMULE_DEVICE void begin(const RowTile& tile, u32 group) const {
    both_groups().begin(tile.row + group * scaled::box_rows, tile.column, tile.columns, tile.expert,
                        expand::result_factor(options.common));
  }

  GEMMULE_DEVICE void epilogue(ScaledAccumulators& sums, const RowTile&, u32) {
    const float factor = expand::result_factor(options.common);
    if (factor != 1) both_groups().restore(sums, factor);
    both_groups().run(sums);
  }

  GEMMULE_DEVICE void finish(u32) const {
    both_groups().finish();
  }

  GEMMULE_DEVICE static void run(const ScaledDgluOptions& options, const ScaledDgluParams& params) {
    const ScaledLayout layout = scaled_dglu_layout(options);
    run_scaled<ScaledDglu>(options, params, layout);
  }
};

}  // namespace gemmule::kernels
