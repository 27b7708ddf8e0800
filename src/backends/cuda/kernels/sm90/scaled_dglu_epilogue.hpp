// The epilogue of the block-scaled dGLU kernel: C chunks into shared memory, gradients, D, D_col and scales out of it.
//
// Each of the two math warpgroups has a region of shared memory of its own: a ring of C chunks that a feeding warp fills, a
// chunk of D, the scale codes of its tile, and room for sums. Where C and D have values of one size and D is not quantized,
// a thread writes D over the C that it has read.
#pragma once

#include "epilogue/scaled_dglu_chunk.hpp"
#include "ptx/fence.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/tma.hpp"
#include "ptx/wgmma.hpp"
#include "scheduler/tile_scheduler.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::kernels {

/// Buffer and parity of chunk `number` of all that a warpgroup has: one register from tile to tile.
struct ChunkPlace {
  u32 index, parity;

  GEMMULE_DEVICE static ChunkPlace of(u32 number, u32 buffers) {
    return {number % buffers, number / buffers % 2};
  }
};

struct ScaledDgluEpilogue {
  static constexpr u32 chunks = scaled::tile_n / fragment::chunk_columns;
  static constexpr u32 barriers = 8;  ///< mbarriers of one warpgroup, at most

  using Accumulators = ptx::Accumulator<scaled::tile_n>[2];

  const ScaledDgluOptions& options;
  const ScaledDgluParams& params;
  ScaledDgluStaging staging;
  Shared<u8> memory;             ///< of this warpgroup
  ptx::Barrier c_full, c_empty;  ///< [c_buffers] of this warpgroup
  u32 named_barrier;             ///< of this warpgroup's 128 threads
  u32 thread;                    ///< in its warpgroup

  GEMMULE_DEVICE static void init_barriers(u32 c_buffers, ptx::Barrier c_full, ptx::Barrier c_empty) {
    for (u32 i = 0; i < c_buffers; ++i) {
      ptx::init(c_full + i, 1);
      ptx::init(c_empty + i, 1);
    }
  }

  // ------------------------------------------------------------------------------------------------ feeding warp

  /// Loads the C of 128 rows and 32 compact columns, by one lane: chunk `number` of this warpgroup.
  GEMMULE_DEVICE void feed_chunk(u32 row, u32 column, u32 number) const {
    const ChunkPlace at = ChunkPlace::of(number, staging.c_buffers);
    ptx::wait(c_empty + at.index, at.parity ^ 1);
    const ptx::Barrier full = c_full + at.index;
    ptx::arrive_expect_bytes(full, staging.c_bytes);
    const Shared<u8> to = memory.bytes(at.index * staging.c_bytes);
    const i32 x = static_cast<i32>(2 * column);
    const i32 y = static_cast<i32>(row);
    ptx::load_box(to, &params.common.c, x, y, full, ptx::CachePolicy::evict_first);
    ptx::load_box(to.bytes(scaled::box_bytes(options.common.c)), &params.common.c,
                  x + static_cast<i32>(fragment::chunk_columns), y, full, ptx::CachePolicy::evict_first);
  }

  // --------------------------------------------------------------------------------------------- math warpgroup

  /// Loads what a tile needs from global memory. The row factors of a warp go to shared memory.
  GEMMULE_DEVICE ScaledDgluFactors factors(const Tile& tile) const {
    const ScaledParams& p = params.common;
    const i64 m = tile.row + thread;
    const float prob = p.prob == nullptr ? 1.0f : ptx::load(p.prob + m * p.prob_stride);
    const float alpha = ptx::load(p.alpha + tile.expert);
    const float beta = ptx::load(params.beta + tile.expert);
    const float norm_const = options.common.quantize ? ptx::load(p.norm_const) : 1.0f;
    const Shared<float> probs = memory.bytes(staging.prob).as<float>();
    ptx::sync_warp();  // those of the last tile have been read
    ptx::store(probs + thread, prob);
    ptx::sync_warp();
    return {alpha * alpha, beta, norm_const, probs + thread / 32 * 32};
  }

  /// Accumulators of one chunk.
  struct ChunkAccumulators {
    const Accumulators& all;
    u32 first;
    GEMMULE_DEVICE float get(u32 half, u32 element) const {
      return all[half].get(static_cast<int>(first + element));
    }
  };

  /// Everything that follows the product of 128 rows. `tile.row` is the first of this warpgroup's, `number` counts the
  /// warpgroup's chunks from tile to tile.
  GEMMULE_DEVICE void run(Accumulators& accumulators, const Tile& tile, const ScaledDgluFactors& f,
                          u32& number) const {
    ScaledDgluSums sums;
    run_chunks(accumulators, tile, f, sums, number);
    if (options.common.quantize) {
      // The barrier of the last chunk has made all codes visible.
      const u32 column = 2 * tile.column + thread / 64 * 128;
      const u32 width = 2 * params.common.n;
      if (column < width)
        store_scales(options.common, params.common, atoms(thread / 64), tile.expert, tile.row, column, width,
                     thread % 64);
    }
    if (options.has_dprob) add_dprob(tile, sums.dprob);
    if (options.common.has_amax) {
      merge_maximum(params.common.amax + 2 * tile.expert, sums.amax[0]);
      merge_maximum(params.common.amax + (2 * tile.expert + 1), sums.amax[1]);
    }
  }

  /// After the last tile: shared memory may go once the stores have read it.
  GEMMULE_DEVICE void finish() const {
    if (thread == 0) ptx::wait_stores_read<0>();
  }

 private:
  /// Those of 128 columns of D: 2 chunks.
  GEMMULE_DEVICE ScaleAtoms atoms(u32 half) const {
    constexpr u32 bytes = static_cast<u32>(layout::atom_bytes);
    const Shared<u8> first = memory.bytes(staging.atoms + half * 2 * bytes);
    return {first, first.bytes(bytes)};
  }

  /// Registers cannot be indexed: chunks are unrolled as far as the code fits the instruction cache.
  GEMMULE_DEVICE void run_chunks(Accumulators& accumulators, const Tile& tile, const ScaledDgluFactors& f,
                                 ScaledDgluSums& sums, u32& number) const {
    constexpr u32 per_pass = 2;
    u32 unreleased = end_of_tiles;  // in place, in the storing thread: the C buffer of the latest store
#pragma unroll 1
    for (u32 first = 0; first < chunks; first += per_pass) {
#pragma unroll
      for (u32 i = 0; i < per_pass; ++i) {
        if ((first + i) * fragment::chunk_columns < tile.columns)
          finish_chunk(ChunkAccumulators{accumulators, i * fragment::chunk_elements}, tile, f, first + i,
                       unreleased, sums, number);
        else if (options.common.quantize)
          clear_chunk_scales(first + i);
      }
#pragma unroll
      for (u32 half = 0; half < 2; ++half)
        accumulators[half].template shift_down<static_cast<int>(per_pass * fragment::chunk_elements)>();
    }
    if (options.common.quantize && tile.columns <= (chunks - 1) * fragment::chunk_columns)
      ptx::named_barrier_sync(named_barrier, ptx::warpgroup_size);  // after the last cleared codes
    if (unreleased != end_of_tiles) {
      ptx::wait_stores_read<0>();
      ptx::arrive(c_empty + unreleased);
    }
  }

  GEMMULE_DEVICE void clear_chunk_scales(u32 chunk) const {
    clear_scales(atoms(chunk / 2), chunk % 2 * 2, thread);
    clear_scales(atoms(chunk / 2), chunk % 2 * 2 + 1, thread);
  }

  GEMMULE_DEVICE void finish_chunk(const ChunkAccumulators& accumulators, const Tile& tile,
                                   const ScaledDgluFactors& f, u32 chunk, u32& unreleased,
                                   ScaledDgluSums& sums, u32& number) const {
    const ScaledOptions& o = options.common;
    const ChunkPlace at = ChunkPlace::of(number, staging.c_buffers);
    ptx::wait(c_full + at.index, at.parity);
    // Addresses are computed here, chunk by chunk: from tile to tile there is no register for them.
    const u32 own = ptx::reread_thread_index() % ptx::warpgroup_size;
    const bool storing = own == 0;
    const Shared<u8> c = memory.bytes(at.index * staging.c_bytes);
    const Shared<u8> d = staging.in_place ? c : memory.bytes(staging.d);
    const Shared<u8> d_col = d.bytes(2 * scaled::box_bytes(o.d));
    const Shared<float> column_sums =
        memory.bytes(staging.column_sums + number % 2 * scaled::column_sum_bytes).as<float>();
    const Shared<float> scratch =
        memory.bytes(staging.scratch).as<float>() + own / 32 * scaled::quantize_scratch;
    const u32 d_offset = box::thread_offset(o.d, own);
    const ScaledDgluBoxes boxes{c.bytes(box::thread_offset(o.c, own)), d.bytes(d_offset),
                                d_col.bytes(d_offset)};
    scaled_dglu_chunk(options, accumulators, f, boxes, atoms(chunk / 2), chunk, own, scratch,
                      column_sums + own / 32 * 64, sums, [&] {
                        if (staging.in_place) return;
                        // The last chunk's store must have read D.
                        if (storing) ptx::wait_stores_read<0>();
                        ptx::named_barrier_sync(named_barrier, ptx::warpgroup_size);
                      });
    ptx::fence_async_shared();
    ptx::named_barrier_sync(named_barrier, ptx::warpgroup_size);
    if (storing) {
      store_chunk(d, d_col, tile, chunk);
      if (!staging.in_place) {
        ptx::arrive(c_empty + at.index);
      } else if (staging.c_buffers == 1) {
        ptx::wait_stores_read<0>();
        ptx::arrive(c_empty + at.index);
      } else {
        if (unreleased != end_of_tiles) {
          ptx::wait_stores_read<1>();
          ptx::arrive(c_empty + unreleased);
        }
        unreleased = at.index;
      }
    }
    if (options.has_dbias && own < 64) store_column_sum(column_sums, tile, chunk, own);
    number += 1;
  }

  GEMMULE_DEVICE void store_boxes(const ptx::TensorMap* map, Shared<u8> from, i32 x, i32 y) const {
    ptx::store_box(map, x, y, from, ptx::CachePolicy::evict_first);
    ptx::store_box(map, x + static_cast<i32>(fragment::chunk_columns), y,
                   from.bytes(scaled::box_bytes(options.common.d)), ptx::CachePolicy::evict_first);
  }

  GEMMULE_DEVICE void store_chunk(Shared<u8> d, Shared<u8> d_col, const Tile& tile, u32 chunk) const {
    const i32 x = static_cast<i32>(2 * (tile.column + chunk * fragment::chunk_columns));
    const i32 y = static_cast<i32>(tile.row);
    store_boxes(&params.common.d, d, x, y);
    if (options.common.quantize)
      store_boxes(&params.common.d_col, d_col, x, y);
    else if (options.common.has_d_col)
      store_boxes(&params.common.d_col, d, x, y);
    ptx::commit_stores();
  }

  /// Adds the four warps' sums of one of the chunk's 64 columns.
  GEMMULE_DEVICE void store_column_sum(Shared<float> sums, const Tile& tile, u32 chunk, u32 own) const {
    float sum = ptx::load(sums + own);
#pragma unroll
    for (u32 warp = 1; warp < scaled::warps_per_group; ++warp) sum += ptx::load(sums + (warp * 64 + own));
    const i64 row_tile = tile.row / scaled::box_rows;
    const u32 column = 2 * (tile.column + chunk * fragment::chunk_columns) + own;
    ptx::store(params.column_sums + (row_tile * (2 * i64{params.common.n}) + column), sum);
  }

  GEMMULE_DEVICE void add_dprob(const Tile& tile, float sum) const {
    const i64 m = tile.row + thread / 32 * 32 + scaled_line(thread % 32);
    if (options.deterministic)
      ptx::store(params.dprob + (tile.column / scaled::tile_n) * params.common.m + m, sum);
    else
      ptx::reduce_add(params.dprob + m, sum);
  }
};

}  // namespace gemmule::kernels
