// BF16 grouped GEMM + dGLU for sm_90a: D = gradient(A B^T, C), persistent, with the epilogue of one tile under the main
// loop of the next.
//
// A CTA has three warpgroups. Two of them compute whole 128 x tile_n tiles in turn (ping-pong): while one runs its
// epilogue, the other has the tensor cores. The third feeds them:
//   warp 0  A and B of the main loop, through a ring of `stages` buffers; the halves of B are multicast to the cluster
//   warp 1  chunks of C for the epilogue, through a second ring
//   warp 2  the tile scheduler (first CTA of the cluster)
// The two CTAs of a cluster take neighbouring row tiles of one expert and the same columns, so they share B.
//
//   math 0   | main loop t      | epilogue t | wait | main loop t + 2 | ...
//   math 1     wait             | main loop t + 1   | epilogue t + 1  | ...
#pragma once

#include "epilogue/dglu_chunk.hpp"
#include "ptx/fence.hpp"
#include "ptx/grid.hpp"
#include "ptx/tma.hpp"
#include "ptx/wgmma.hpp"
#include "scheduler/tile_scheduler.hpp"
#include "sm90/bf16_dglu_layout.hpp"

namespace gemmule::kernels {

using ptx::Barrier;
using ptx::CachePolicy;

/// The handles of the shared memory described by DgluLayout.
struct DgluShared {
  Shared<u8> a, b, c, d;
  Shared<float> column_sums;
  TileRing tiles;
  Barrier full, empty;          ///< [stages] A and B
  Barrier c_full, c_empty;      ///< [c_buffers]
  Barrier main_turn, end_turn;  ///< [2] whose main loop, whose epilogue

  GEMMULE_DEVICE static DgluShared at(Shared<u8> base, const DgluLayout& layout) {
    const Barrier first = base.bytes(layout.barriers).as<ptx::Mbarrier>();
    DgluShared s{base, base.bytes(layout.b), base.bytes(layout.c), base.bytes(layout.d)};
    s.column_sums = base.bytes(layout.column_sums).as<float>();
    s.full = first;
    s.empty = s.full + layout.stages;
    s.c_full = s.empty + layout.stages;
    s.c_empty = s.c_full + layout.c_buffers;
    s.main_turn = s.c_empty + layout.c_buffers;
    s.end_turn = s.main_turn + 2;
    s.tiles = {base.bytes(layout.tiles).as<U32x4>(), s.end_turn + 2, s.end_turn + (2 + TileRing::size)};
    return s;
  }
};

template <u32 tile_n_, u32 stages_, u32 cluster_>
struct Bf16Dglu {
  static constexpr u32 tile_n = tile_n_;    ///< compact columns of a tile
  static constexpr u32 stages = stages_;    ///< buffers of A and B
  static constexpr u32 cluster = cluster_;  ///< CTAs that share B

  static constexpr u32 threads = 384;
  static constexpr u32 math_warps = 4;  ///< of one warpgroup
  static constexpr u32 tile_k = 64;     ///< 128 bytes: one row of the swizzle
  static constexpr u32 halves = 2;      ///< a tile has two rows of 64-row accumulators
  static constexpr u32 chunks = tile_n / chunk_columns;
  /// Chunks that are unrolled in the epilogue. All six would be 90 to 140 KB of code, past the instruction cache.
  static constexpr u32 chunks_per_pass = 2;
  static constexpr u32 a_bytes = tile_rows * tile_k * 2;
  static constexpr u32 b_bytes = tile_n * tile_k * 2;
  static constexpr u32 feed_registers = 24;
  static constexpr u32 math_registers = 240;

  static_assert(tile_n == 64 || tile_n == 128 || tile_n == 192,
                "accumulators of 128 x 192 leave 48 registers");
  static_assert(chunks % chunks_per_pass == 0, "every pass has as many chunks");
  static_assert(cluster == 1 || cluster == 2, "experts are multiples of 128 or 256 rows");
  static_assert(128 * (feed_registers + 2 * math_registers) <= 65536, "the register file has 65536");

  using Accumulators = ptx::Accumulator<tile_n>[halves];

  const DgluOptions& options;
  const DgluParams& params;
  DgluShared shared;
  u32 thread;  ///< in its warpgroup
  u32 rank;    ///< CTA in the cluster

  // ---------------------------------------------------------------------------------------------- feeding warps

  /// The main loop's operands, by one lane.
  GEMMULE_DEVICE void feed_operands() const {
    constexpr u16 everyone = static_cast<u16>((1u << cluster) - 1);
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(&params.a);
      if (!options.discrete) ptx::prefetch(&params.b);
    }
    RingState tile_at, at;
    for (;;) {
      const Tile tile = read_tile<cluster>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      const ptx::TensorMap* b_map = &params.b;
      if (options.discrete) {
        b_map = params.b_maps + tile.expert;
        ptx::fence_tensor_map_acquire(b_map);
      }
      const i32 slab = options.discrete ? 0 : static_cast<i32>(tile.expert);
      for (u32 k = 0; k < params.k; k += tile_k) {
        ptx::wait(shared.empty + at.index, at.parity ^ 1);
        const Barrier full = shared.full + at.index;
        ptx::arrive_expect_bytes(full, a_bytes + b_bytes);
        ptx::load_box(shared.a.bytes(at.index * a_bytes), &params.a, static_cast<i32>(k),
                      static_cast<i32>(tile.row), full, CachePolicy::normal);
        const Shared<u8> b = shared.b.bytes(at.index * b_bytes);
        if (options.b_n_major) {
          constexpr u32 rows = tile_k / cluster;
#pragma unroll
          for (u32 span = 0; span < tile_n / 64; ++span)
            load_b(b.bytes((span * tile_k + rank * rows) * 128), b_map, tile.column + 64 * span,
                   k + rank * rows, slab, full, everyone);
        } else {
          constexpr u32 rows = tile_n / cluster;
          load_b(b.bytes(rank * rows * 128), b_map, k, tile.column + rank * rows, slab, full, everyone);
        }
        at.advance<stages>();
      }
    }
  }

  GEMMULE_DEVICE void load_b(Shared<u8> to, const ptx::TensorMap* map, u32 x, u32 y, i32 slab, Barrier full,
                             u16 ctas) const {
    if constexpr (cluster == 1)
      ptx::load_box(to, map, static_cast<i32>(x), static_cast<i32>(y), slab, full, CachePolicy::normal);
    else
      ptx::load_box_multicast(to, map, static_cast<i32>(x), static_cast<i32>(y), slab, full, ctas,
                              CachePolicy::normal);
  }

  /// The epilogue's C, by one lane.
  GEMMULE_DEVICE void feed_c(const DgluLayout& layout) const {
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(&params.c);
      ptx::prefetch(&params.d);
    }
    RingState tile_at;
    u32 index = 0, parity = 0;
    const u32 bytes = chunk_bytes(options.c);
    for (;;) {
      const Tile tile = read_tile<cluster>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      for (u32 column = 0; column < tile.columns; column += chunk_columns) {
        ptx::wait(shared.c_empty + index, parity ^ 1);
        const Barrier full = shared.c_full + index;
        ptx::arrive_expect_bytes(full, bytes);
        const Shared<u8> to = shared.c.bytes(index * bytes);
        const i32 x = static_cast<i32>(2 * (tile.column + column));
        const i32 y = static_cast<i32>(tile.row);
        ptx::load_box(to, &params.c, x, y, full, CachePolicy::evict_first);
        if (options.c == Format::f32)
          ptx::load_box(to.bytes(f32_box_bytes), &params.c, x + static_cast<i32>(chunk_columns), y, full,
                        CachePolicy::evict_first);
        index += 1;
        if (index == layout.c_buffers) {
          index = 0;
          parity ^= 1;
        }
      }
    }
  }

  // ---------------------------------------------------------------------------------------------- math warpgroups

  GEMMULE_DEVICE void release(Barrier empty) const {
    const u32 lane = ptx::lane_index();
    if (lane < cluster) arrive_at<cluster>(empty, lane);
  }

  /// Multiplies a whole tile. Returns with the last stage's multiplications in flight; `at` is the stage after it.
  template <u32 width>
  GEMMULE_DEVICE void main_loop(Accumulators& accumulators, RingState& at) const {
    const u32 b_step = options.b_n_major ? 16 * 128 : 32;  // bytes between slices of 16 k
    const u32 b_leading = options.b_n_major ? tile_k * 128 : 16;
    RingState previous = at;
    for (u32 k = 0; k < params.k; k += tile_k) {
      ptx::wait(shared.full + at.index, at.parity);
      const ptx::MatrixDescriptor a = ptx::swizzled_128(shared.a.bytes(at.index * a_bytes), 16, 1024);
      const ptx::MatrixDescriptor b = ptx::swizzled_128(shared.b.bytes(at.index * b_bytes), b_leading, 1024);
      ptx::fence_accumulators();
#pragma unroll
      for (u32 slice = 0; slice < tile_k / 16; ++slice) {
#pragma unroll
        for (u32 half = 0; half < halves; ++half) {
          const ptx::MatrixDescriptor a_slice = a.advance(half * 64 * 128 + slice * 32);
          const ptx::MatrixDescriptor b_slice = b.advance(slice * b_step);
          if (options.b_n_major)
            ptx::multiply<width, true>(accumulators[half], a_slice, b_slice, k != 0 || slice != 0);
          else
            ptx::multiply<width, false>(accumulators[half], a_slice, b_slice, k != 0 || slice != 0);
        }
      }
      ptx::commit_multiplications();
      if (k != 0) {
        ptx::wait_multiplications<1>();
        release(shared.empty + previous.index);
      }
      previous = at;
      at.advance<stages>();
    }
  }

  /// The last tile of a row may be narrower: it is multiplied at its own width, rounded up to 64.
  GEMMULE_DEVICE void multiply_tile(u32 columns, Accumulators& accumulators, RingState& at) const {
    if constexpr (tile_n > 128) {
      if (columns > 128) return main_loop<192>(accumulators, at);
    }
    if constexpr (tile_n > 64) {
      if (columns > 64) return main_loop<128>(accumulators, at);
    }
    main_loop<64>(accumulators, at);
  }

  /// Accumulators of one chunk.
  struct ChunkAccumulators {
    const Accumulators& all;
    u32 first;
    GEMMULE_DEVICE float get(u32 half, u32 element) const {
      return all[half].get(static_cast<int>(first + element));
    }
  };

  GEMMULE_DEVICE RowFactors row_factors(const Tile& tile) const {
    RowFactors f;
    const float alpha = ptx::load(params.alpha + tile.expert);
    f.alpha_squared = alpha * alpha;
    f.beta = ptx::load(params.beta + tile.expert);
#pragma unroll
    for (u32 row = 0; row < 4; ++row) {
      const i64 m = tile.row + owned_row(row);
      f.prob[row] = params.prob == nullptr ? 1.0f : ptx::load(params.prob + m * params.prob_stride);
    }
    return f;
  }

  /// The four rows of a tile in which this thread holds accumulators.
  GEMMULE_DEVICE u32 owned_row(u32 row) const {
    return row / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + row % 2 * 8;
  }

  /// Position in the ring of C and in the pair of D buffers, the same in both warpgroups.
  struct ChunkRing {
    u32 index = 0, parity = 0;
    GEMMULE_DEVICE void advance(u32 count, u32 size) {
      index += count;
      while (index >= size) {
        index -= size;
        parity ^= 1;
      }
    }
  };

  /// What the epilogue carries from chunk to chunk.
  struct EpilogueState {
    RowFactors factors;
    float dprob[4] = {0, 0, 0, 0};
    u32 unreleased = end_of_tiles;  ///< in place: the C buffer whose store was committed last
  };

  /// Gradient, D, dprob and column sums of a tile.
  GEMMULE_DEVICE void epilogue(Accumulators& accumulators, const Tile& tile, const DgluLayout& layout,
                               u32 group, ChunkRing& at) const {
    EpilogueState state{row_factors(tile)};
#pragma unroll 1
    for (u32 first = 0; first * chunk_columns < tile.columns; first += chunks_per_pass) {
#pragma unroll
      for (u32 i = 0; i < chunks_per_pass; ++i) {
        if ((first + i) * chunk_columns >= tile.columns) break;
        finish_chunk(ChunkAccumulators{accumulators, i * 16}, tile, layout, group, first + i, at, state);
      }
      bring_down(accumulators, first + chunks_per_pass);
    }
    if (thread == 0) {
      ptx::wait_stores_read<0>();
      if (options.in_place()) ptx::arrive(shared.c_empty + state.unreleased);
    }
    if (options.has_dprob) add_dprob(tile, state.dprob);
  }

  /// Puts the accumulators of chunks first, first + 1, ... where pass 0 has found its own: registers cannot be indexed.
  GEMMULE_DEVICE static void bring_down(Accumulators& accumulators, u32 first) {
#pragma unroll
    for (u32 next = chunks_per_pass; next < chunks; next += chunks_per_pass) {
      if (first != next) continue;
#pragma unroll
      for (u32 half = 0; half < halves; ++half)
        accumulators[half].bring_down(static_cast<int>(next * 16), static_cast<int>(chunks_per_pass * 16));
    }
  }

  GEMMULE_DEVICE void finish_chunk(const ChunkAccumulators& accumulators, const Tile& tile,
                                   const DgluLayout& layout, u32 group, u32 chunk, ChunkRing& at,
                                   EpilogueState& state) const {
    const bool storing = thread == 0;
    const Shared<u8> c = shared.c.bytes(at.index * chunk_bytes(options.c));
    const Shared<u8> d = options.in_place() ? c : shared.d.bytes(chunk % 2 * chunk_bytes(options.d));
    const Shared<float> sums = shared.column_sums + (chunk % 2 * (math_warps * 64));
    ptx::wait(shared.c_full + at.index, at.parity);
    dglu_chunk(options, accumulators, state.factors, c, d, thread, sums + thread / 32 * 64, state.dprob);
    ptx::fence_async_shared();
    // Without this a D buffer could still be read by the store of two chunks ago.
    if (!options.in_place() && storing) ptx::wait_stores_read<0>();
    ptx::named_barrier_sync(1 + group, ptx::warpgroup_size);
    if (storing) {
      store_chunk(d, tile, chunk);
      if (options.in_place()) {
        if (state.unreleased != end_of_tiles) {
          ptx::wait_stores_read<1>();
          ptx::arrive(shared.c_empty + state.unreleased);
        }
        state.unreleased = at.index;
      } else {
        ptx::arrive(shared.c_empty + at.index);
      }
    }
    if (options.has_dbias && thread < 64) store_column_sum(sums, tile, chunk);
    at.advance(1, layout.c_buffers);
  }

  /// Adds the four warps' sums of one of the chunk's 64 columns.
  GEMMULE_DEVICE void store_column_sum(Shared<float> sums, const Tile& tile, u32 chunk) const {
    float sum = ptx::load(sums + thread);
#pragma unroll
    for (u32 warp = 1; warp < math_warps; ++warp) sum += ptx::load(sums + (warp * 64 + thread));
    const i64 row_tile = tile.row / tile_rows;
    const u32 column = 2 * (tile.column + chunk * chunk_columns) + thread;
    ptx::store(params.column_sums + (row_tile * (2 * i64{params.n}) + column), sum);
  }

  GEMMULE_DEVICE void store_chunk(Shared<u8> d, const Tile& tile, u32 chunk) const {
    const i32 x = static_cast<i32>(2 * (tile.column + chunk * chunk_columns));
    const i32 y = static_cast<i32>(tile.row);
    ptx::store_box(&params.d, x, y, d, CachePolicy::evict_first);
    if (options.d == Format::f32)
      ptx::store_box(&params.d, x + static_cast<i32>(chunk_columns), y, d.bytes(f32_box_bytes),
                     CachePolicy::evict_first);
    ptx::commit_stores();
  }

  /// Sums over the four lanes that share a row.
  GEMMULE_DEVICE void add_dprob(const Tile& tile, const float (&dprob)[4]) const {
#pragma unroll
    for (u32 row = 0; row < 4; ++row) {
      float sum = dprob[row] + ptx::shuffle_xor(dprob[row], 1);
      sum += ptx::shuffle_xor(sum, 2);
      if (thread % 4 != 0) continue;
      const i64 m = tile.row + owned_row(row);
      if (options.deterministic)
        ptx::store(params.dprob + (tile.column / tile_n) * params.m + m, sum);
      else
        ptx::reduce_add(params.dprob + m, sum);
    }
  }

  /// One math warpgroup: every other tile.
  GEMMULE_DEVICE void compute(u32 group, const DgluLayout& layout) const {
    const u32 k_blocks = (params.k + tile_k - 1) / tile_k;
    RingState tile_at, at;
    ChunkRing chunk_at;
    u32 turn_parity = group == 0 ? 1 : 0;  // a fresh barrier counts as the other group having arrived
    u32 tile_number = 0;
    for (;; ++tile_number) {
      const Tile tile = read_tile<cluster>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (tile_number % 2 != group) {
        at_skip(at, k_blocks);
        chunk_at.advance(tile.columns / chunk_columns, layout.c_buffers);
        continue;
      }
      Accumulators accumulators;
      ptx::wait(shared.main_turn + group, turn_parity);
      multiply_tile(tile.columns, accumulators, at);
      if (ptx::lane_index() == 0) ptx::arrive(shared.main_turn + (group ^ 1));
      ptx::wait_multiplications<0>();
      release(shared.empty + (at.index == 0 ? stages - 1 : at.index - 1));
      ptx::wait(shared.end_turn + group, turn_parity);
      epilogue(accumulators, tile, layout, group, chunk_at);
      // By every thread for itself: the other group overwrites C, D and column sums that this one has touched.
      ptx::arrive(shared.end_turn + (group ^ 1));
      turn_parity ^= 1;
    }
  }

  /// The other warpgroup's main loop passes `blocks` stages.
  GEMMULE_DEVICE static void at_skip(RingState& at, u32 blocks) {
    const u32 index = at.index + blocks;
    at.parity ^= index / stages & 1;
    at.index = index % stages;
  }

  // ---------------------------------------------------------------------------------------------- kernel

  GEMMULE_DEVICE static void init_barriers(const DgluShared& s, const DgluLayout& layout) {
    for (u32 i = 0; i < stages; ++i) {
      ptx::init(s.full + i, 1);
      ptx::init(s.empty + i, math_warps * cluster);
    }
    for (u32 i = 0; i < layout.c_buffers; ++i) {
      ptx::init(s.c_full + i, 1);
      ptx::init(s.c_empty + i, 1);
    }
    for (u32 i = 0; i < 2; ++i) {
      ptx::init(s.main_turn + i, math_warps);
      ptx::init(s.end_turn + i, ptx::warpgroup_size);
    }
    for (u32 i = 0; i < TileRing::size; ++i) {
      ptx::init(s.tiles.full + i, 1);
      ptx::init(s.tiles.empty + i, cluster * (2 + 2 * math_warps));
    }
    ptx::fence_barrier_init();
  }

  /// Cluster barriers are an illegal instruction in a launch without clusters.
  GEMMULE_DEVICE static void sync_all() {
    if constexpr (cluster == 1)
      ptx::sync_cta();
    else
      ptx::sync_cluster();
  }

  GEMMULE_DEVICE static void run(const DgluOptions& options, const DgluParams& params) {
    const DgluLayout layout = dglu_layout(options, tile_n, stages);
    const DgluShared shared = DgluShared::at(ptx::dynamic_shared(), layout);
    const u32 warp = ptx::warp_index();
    const u32 role = warp / 4;  // 0 feeds, 1 and 2 compute
    if (warp == 0 && ptx::elect_one()) init_barriers(shared, layout);
    ptx::sync_warp();
    sync_all();
    ptx::launch_next_grid();
    ptx::wait_for_previous_grid();
    const Bf16Dglu kernel{options, params, shared, ptx::thread_index() % ptx::warpgroup_size,
                          cluster == 1 ? 0 : ptx::cluster_cta_rank()};
    if (role == 0) {
      ptx::lower_registers<feed_registers>();
      if (warp == 0) {
        kernel.feed_operands();
      } else if (warp == 1) {
        kernel.feed_c(layout);
      } else if (warp == 2 && kernel.rank == 0) {
        schedule_tiles<tile_n, cluster>(
            {params.offsets, params.experts, params.n, options.dynamic ? params.next_tile : nullptr},
            shared.tiles);
      }
    } else {
      ptx::raise_registers<math_registers>();
      kernel.compute(role - 1, layout);
    }
    // No CTA may leave while another can still write to its shared memory or arrive on its barriers.
    if constexpr (cluster > 1) ptx::sync_cluster();
  }
};

}  // namespace gemmule::kernels
