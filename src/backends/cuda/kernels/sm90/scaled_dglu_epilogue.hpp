// The epilogue of the block-scaled dGLU kernel: C chunks into shared memory, gradients, D, D_col and scales out of it.
//
// Each of the two math warpgroups has a region of shared memory of its own: a ring of C chunks that a feeding warp fills, a
// chunk of D, the scale codes of its tile, and room for sums. Where sizes allow, D is written where C was. Then a buffer is
// free for the next C once the store of D has read it, which is asked in the middle of the next chunk: what is left of
// that hides the way of the C after it.
#pragma once

#include "epilogue/chunk_accumulators.hpp"
#include "epilogue/scaled_dglu_chunk.hpp"
#include "ptx/fence.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/tma.hpp"
#include "sm90/expand.hpp"
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
  static constexpr u32 chunks = scaled_chunks;
  using Accumulators = ScaledAccumulators;

  const ScaledDgluOptions& options;
  const ScaledDgluParams& params;
  ScaledDgluStaging staging;
  Shared<u8> memory;      ///< staging of warpgroup 0; that of 1 is staging.bytes further on
  ptx::Barrier barriers;  ///< [2 warpgroups][c_full, c_empty][c_buffers]
  u32 first_thread;       ///< of warpgroup 0

  GEMMULE_DEVICE static void init_barriers(u32 c_buffers, ptx::Barrier barriers) {
    for (u32 i = 0; i < scaled::groups * 2 * c_buffers; ++i) ptx::init(barriers + i, 1);
  }
  GEMMULE_DEVICE ptx::Barrier c_full(u32 group) const { return barriers + group * 2 * staging.c_buffers; }
  GEMMULE_DEVICE ptx::Barrier c_empty(u32 group) const { return c_full(group) + staging.c_buffers; }

  // ------------------------------------------------------------------------------------------------ feeding warp

  /// Loads the C of 128 rows and 32 compact columns, by one lane: chunk `number` of warpgroup `group`.
  GEMMULE_DEVICE void feed_chunk(u32 group, u32 row, u32 column, u32 number) const {
    const ChunkPlace at = ChunkPlace::of(number, staging.c_buffers);
    ptx::wait_asleep(c_empty(group) + at.index, at.parity ^ 1);
    const ptx::Barrier full = c_full(group) + at.index;
    ptx::arrive_expect_bytes(full, staging.c_bytes);
    const Shared<u8> to = memory.bytes(group * staging.bytes + at.index * staging.stride);
    const i32 x = static_cast<i32>(2 * column);
    const i32 y = static_cast<i32>(row);
    ptx::load_box(to, &params.common.c, x, y, full, ptx::CachePolicy::evict_first);
    ptx::load_box(to.bytes(scaled::box_bytes(options.common.c)), &params.common.c,
                  x + static_cast<i32>(fragment::chunk_columns), y, full, ptx::CachePolicy::evict_first);
  }

  // --------------------------------------------------------------------------------------------- math warpgroup

  /// Before the first tile. begin() publishes it.
  GEMMULE_DEVICE void start() const {
    const Place own = place();
    if (own.thread % 32 == 0) ptx::store(chunk_count(own), 0u);
  }

  /// Before the main loop of a tile whose first row of this warpgroup is `row`: what is known of the tile waits in shared
  /// memory, a copy for each warp. The main loop has no registers for it, and global memory is read before it instead of
  /// after it. The warp has come together since run(), as it does to read the tile's record.
  GEMMULE_DEVICE void begin(u32 row, u32 column, u32 columns, u32 expert, float result_factor) const {
    const Place own = place();
    const ScaledParams& p = params.common;
    const i64 m = row + own.thread;
    const float prob = p.prob == nullptr ? 1.0f : ptx::load(p.prob + m * p.prob_stride);
    const float alpha = ptx::load(p.alpha + expert);
    const float beta = ptx::load(params.beta + expert);
    const float norm_const = options.common.quantize ? ptx::load(p.norm_const) : 1.0f;
    // Negative: without the factor, for restore().
    const float square = alpha * alpha;
    const float alpha_squared =
        result_factor != 1 && expand::overflows(square, result_factor) ? -square : square * result_factor;
    ptx::store(own.memory.bytes(staging.prob).as<float>() + own.thread, prob);
    const ScaledDgluSums zero = sums(own);
    if (options.has_dprob) ptx::store(zero.dprob, 0.0f);
    if (options.common.has_amax) {
      ptx::store(zero.amax[0], 0.0f);
      ptx::store(zero.amax[1], 0.0f);
    }
    if (own.thread % 32 == 0) {
      const Shared<U32x4> to = tile_memory(own);
      ptx::store(to, U32x4{row, column, columns, expert});
      ptx::store(to + 1, U32x4{numerics::bits_of(alpha_squared), numerics::bits_of(beta),
                               numerics::bits_of(norm_const), ptx::load(chunk_count(own))});
    }
    ptx::sync_warp();
  }

  /// After it: what begin() could not make part of alpha_squared.
  GEMMULE_DEVICE void restore(Accumulators& accumulators, float result_factor) const {
    const Place own = place();
    const Shared<float> alpha_squared = tile_memory(own).as<float>() + 4;
    // Known to be uniform, as in run().
    const float stored = numerics::float_of(ptx::shuffle(ptx::load(alpha_squared.as<u32>()), 0));
    if (!(stored < 0)) return;
    accumulators[0].scale(result_factor);
    accumulators[1].scale(result_factor);
    ptx::sync_warp();
    if (own.thread % 32 == 0) ptx::store(alpha_squared, -stored);
    ptx::sync_warp();
  }

  /// Then.
  GEMMULE_DEVICE void run(Accumulators& accumulators) const {
    // Known to be uniform, so that it and what follows from it occupy no registers.
    const u32 before = ptx::shuffle(ptx::load(chunk_count(place())), 0);
    u32 chunk = 0;
    for (;;) {
      compute_chunk(ChunkAccumulators{accumulators}, chunk, before + chunk);
      const bool last = finish_chunk(chunk, before + chunk);
      chunk += 1;
      if (last) break;
      bring_down(accumulators, chunk);
    }
    const Place own = place();
    const u32 number = before + chunk;
    if (own.thread % 32 == 0) ptx::store(chunk_count(own), number);
    const Where tile = where(own);
    if (options.common.quantize) store_tile_scales(own, tile, chunk);
    const ScaledDgluSums total = sums(own);
    if (options.has_dprob) add_dprob(own, tile, ptx::load(total.dprob));
    if (options.common.has_amax) {
      merge_maximum(params.common.amax + 2 * tile.expert, ptx::load(total.amax[0]));
      merge_maximum(params.common.amax + (2 * tile.expert + 1), ptx::load(total.amax[1]));
    }
    if (own.thread == 0) release_before(own, number);
  }

  /// After the last tile: shared memory may go once the stores have read it.
  GEMMULE_DEVICE void finish() const {
    if (place().thread == 0) ptx::wait_stores_read<0>();
  }

 private:
  /// Who this thread is. Determined anew for each chunk: registers for what follows from it are scarce.
  struct Place {
    u32 thread;  ///< in its warpgroup
    u32 group;
    Shared<u8> memory;
  };
  GEMMULE_DEVICE Place place() const {
    const u32 index = ptx::reread_thread_index() - first_thread;
    const u32 group = index / ptx::warpgroup_size;
    return {index % ptx::warpgroup_size, group, memory.bytes(group * staging.bytes)};
  }

  GEMMULE_DEVICE Shared<U32x4> tile_memory(const Place& own) const {
    return own.memory.bytes(staging.tile).as<U32x4>() + own.thread / 32 * 2;
  }
  /// Chunks before this tile, of all tiles of this warpgroup.
  GEMMULE_DEVICE Shared<u32> chunk_count(const Place& own) const { return tile_memory(own).as<u32>() + 7; }
  /// This thread's.
  GEMMULE_DEVICE ScaledDgluSums sums(const Place& own) const {
    const Shared<float> first = own.memory.bytes(staging.sums).as<float>() + own.thread;
    const Shared<float> amax = first + (options.has_dprob ? scaled::box_rows : 0);
    return {first, {amax, amax + scaled::box_rows}};
  }
  struct Where {
    u32 row;  ///< first of the warpgroup's
    u32 column, columns, expert;
  };
  GEMMULE_DEVICE Where where(const Place& own) const {
    const U32x4 words = ptx::load(tile_memory(own));
    return {words.x, words.y, words.z, words.w};
  }

  /// Those of 128 columns of D: 2 chunks.
  GEMMULE_DEVICE ScaleAtoms atoms(const Place& own, u32 half) const {
    const Shared<u8> first = own.memory.bytes(staging.atoms + half * 2 * scaled::atom_bytes);
    return {first, first.bytes(scaled::atom_bytes)};
  }

  GEMMULE_DEVICE void sync_group(const Place& own) const {
    ptx::named_barrier_sync(1 + own.group, ptx::warpgroup_size);
  }

  GEMMULE_DEVICE Shared<u8> c_box(const Place& own, u32 index) const {
    return own.memory.bytes(index * staging.stride);
  }
  GEMMULE_DEVICE Shared<u8> d_box(const Place& own, u32 c_index) const {
    return staging.in_place ? c_box(own, c_index) : own.memory.bytes(staging.d);
  }
  GEMMULE_DEVICE Shared<float> column_sums(const Place& own, u32 number) const {
    return own.memory.bytes(staging.column_sums + number % 2 * scaled::column_sum_bytes).as<float>();
  }

  GEMMULE_DEVICE void compute_chunk(const ChunkAccumulators& accumulators, u32 chunk, u32 number) const {
    const ScaledOptions& o = options.common;
    const Place own = place();
    const u32 warp = own.thread / 32;
    const U32x4 words = ptx::load(tile_memory(own) + 1);
    const ChunkPlace at = ChunkPlace::of(number, staging.c_buffers);
    const ScaledDgluFactors factors{numerics::float_of(words.x), numerics::float_of(words.y),
                                    own.memory.bytes(staging.prob).as<float>() + warp * 32};
    ptx::wait(c_full(own.group) + at.index, at.parity);
    scaled_dglu_chunk(
        options, accumulators, factors, c_box(own, at.index).bytes(box::thread_offset(o.c, own.thread)),
        own.thread % 32,
        [&] {
          const Place here = place();
          return column_sums(here, number) + here.thread / 32 * 64;
        },
        sums(own),
        [&] {
          const Place here = place();
          if (here.thread == 0 && chunk != 0) release_before(here, number);
        },
        [&] {
          const Place here = place();
          if (!options.common.quantize && !staging.in_place) await_d(here);
          const Shared<u8> d = d_box(here, ChunkPlace::of(number, staging.c_buffers).index)
                                   .bytes(box::thread_offset(o.d, here.thread));
          return QuantizedBoxes{d, d.bytes(2 * scaled::box_bytes(o.d))};
        },
        [&](u32 n) {
          const Place here = place();
          const bool apart = scaled::dglu_scratch(o) > scaled::quantize_scratch;
          if (n == 0)
            await_d(here);
          else if (!apart)
            ptx::sync_warp();  // the gate's multipliers have been read
          const u32 in_scratch =
              here.thread / 32 * scaled::dglu_scratch(o) + (apart ? n * scaled::quantize_scratch : 0);
          return ScaleTarget{atoms(here, chunk / 2), chunk % 2 * 2 + n, here.thread,
                             here.memory.bytes(staging.scratch).as<float>() + in_scratch,
                             numerics::float_of(ptx::load(tile_memory(here) + 1).z)};
        });
  }

  /// D may be written: separate, the last chunk's store has read it; quantized in place, every thread has read C.
  GEMMULE_DEVICE void await_d(const Place& own) const {
    if (!staging.in_place && own.thread == 0) ptx::wait_stores_read<0>();
    sync_group(own);
  }

  /// Stores what compute_chunk() has left in shared memory. Returns whether it was the tile's last chunk.
  GEMMULE_DEVICE bool finish_chunk(u32 chunk, u32 number) const {
    ptx::fence_async_shared();
    const Place own = place();
    // Known to be uniform: stores of what is not are issued in a loop over the lanes.
    const Where tile = where(own);
    const i32 x = static_cast<i32>(ptx::shuffle(2 * (tile.column + chunk * fragment::chunk_columns), 0));
    const i32 y = static_cast<i32>(ptx::shuffle(tile.row, 0));
    // Likewise: otherwise the compiler takes the next main loop for divergent, and it takes 25 instructions a stage more.
    const bool last = (chunk + 1) * fragment::chunk_columns >= ptx::shuffle(tile.columns, 0);
    const Shared<u8> d{ptx::shuffle(d_box(own, ChunkPlace::of(number, staging.c_buffers).index).address, 0)};
    sync_group(own);
    const u32 thread = own.thread;
    if (thread == 0) {
      store_chunk(d, d.bytes(2 * scaled::box_bytes(options.common.d)), x, y);
      release_c(own, number);
    }
    if (options.has_dbias && thread < 64) store_column_sum(thread, column_sums(own, number), tile, chunk);
    return last;
  }

  /// By thread 0, when every thread has written D of chunk `number`: its buffer, if the store need not be waited for or there
  /// is no other.
  GEMMULE_DEVICE void release_c(const Place& own, u32 number) const {
    if (staging.in_place && staging.c_buffers > 1) return;
    if (staging.in_place) ptx::wait_stores_read<0>();
    ptx::arrive(c_empty(own.group) + ChunkPlace::of(number, staging.c_buffers).index);
  }
  /// By thread 0, later: the buffer of the chunk before `number`, whose store is the last one issued.
  GEMMULE_DEVICE void release_before(const Place& own, u32 number) const {
    if (!staging.in_place || staging.c_buffers == 1) return;
    ptx::wait_stores_read<0>();
    ptx::arrive(c_empty(own.group) + ChunkPlace::of(number - 1, staging.c_buffers).index);
  }

  /// `end`: chunks that exist.
  GEMMULE_DEVICE void store_tile_scales(const Place& own, const Where& tile, u32 end) const {
    // The barrier of the last chunk has made its codes visible.
    if (end < chunks) {
      for (u32 chunk = end; chunk < chunks; ++chunk) {
        clear_scales(atoms(own, chunk / 2), chunk % 2 * 2, own.thread);
        clear_scales(atoms(own, chunk / 2), chunk % 2 * 2 + 1, own.thread);
      }
      sync_group(own);
    }
    const u32 half = own.thread / 64;
    const u32 column = 2 * tile.column + half * 128;
    const u32 width = 2 * params.common.n;
    if (column < width)
      store_scales(options.common, params.common, atoms(own, half), tile.expert, tile.row, column, width,
                   own.thread % 64);
  }

  GEMMULE_DEVICE void store_boxes(const ptx::TensorMap* map, Shared<u8> from, i32 x, i32 y) const {
    ptx::store_box(map, x, y, from, ptx::CachePolicy::evict_first);
    ptx::store_box(map, x + static_cast<i32>(fragment::chunk_columns), y,
                   from.bytes(scaled::box_bytes(options.common.d)), ptx::CachePolicy::evict_first);
  }

  GEMMULE_DEVICE void store_chunk(Shared<u8> d, Shared<u8> d_col, i32 x, i32 y) const {
    store_boxes(&params.common.d, d, x, y);
    if (options.common.quantize)
      store_boxes(&params.common.d_col, d_col, x, y);
    else if (options.common.has_d_col)
      store_boxes(&params.common.d_col, d, x, y);
    ptx::commit_stores();
  }

  /// Adds the four warps' sums of one of the chunk's 64 columns.
  GEMMULE_DEVICE void store_column_sum(u32 thread, Shared<float> sums, const Where& tile, u32 chunk) const {
    float sum = ptx::load(sums + thread);
#pragma unroll
    for (u32 warp = 1; warp < scaled::warps_per_group; ++warp) sum += ptx::load(sums + (warp * 64 + thread));
    const i64 row_tile = tile.row / scaled::box_rows;
    const u32 column = 2 * (tile.column + chunk * fragment::chunk_columns) + thread;
    ptx::store(params.column_sums + (row_tile * (2 * i64{params.common.n}) + column), sum);
  }

  GEMMULE_DEVICE void add_dprob(const Place& own, const Where& tile, float sum) const {
    const i64 m = tile.row + own.thread / 32 * 32 + scaled_line(own.thread % 32);
    if (options.deterministic)
      ptx::store(params.dprob + (tile.column / scaled::tile_n) * params.common.m + m, sum);
    else
      ptx::reduce_add(params.dprob + m, sum);
  }
};

}  // namespace gemmule::kernels
