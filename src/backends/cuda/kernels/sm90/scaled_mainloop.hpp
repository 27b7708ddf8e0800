// The main loop of the block-scaled sm_90a kernels: raw operands and scales by TMA, expansion to BF16, multiplication. The
// epilogue is the operator's (scaled_srelu.hpp, scaled_dglu.hpp).
//
// A CTA computes tiles of 256 rows x 128 columns. Warpgroups:
//   0  warp 0 brings raw A and B, warp 3 their scales (ring of `stages`), warp 1 the operator's C, warp 2 schedules tiles
//   1  expands B to BF16 in shared memory (ring of `b_buffers` tiles of 64 k)
//   2, 3  128 rows each: expand A into registers and multiply, A from registers, B from shared memory
//
// Order of k. Thread t of the four that share a row of a wgmma fragment expands 16 consecutive bytes of it, whose values
// serve all slices: of slice s, pairs 2 s and 2 s + 1 (sm90/expand.hpp). So wgmma's k = 2 t + {0, 1} of slice s is pair
// 2 s of piece t, and k = 8 + 2 t + {0, 1} is pair 2 s + 1. B is written in the same order. Order of rows and columns:
// sm90/scaled_fragment.hpp.
//
// A math warpgroup works on units of 64 rows x 64 k (4 wgmma), the two halves of its rows in turns: while one is multiplied, the
// next is expanded. An FP8 stage has 2 units, an FP4 stage (128 k) 4.
//   multiply   | half 0 of stage i | half 1           | half 0 of stage i + 1 | ...
//   expand     | half 1            | half 0, i + 1    | half 1                | ...
#pragma once

#include "epilogue/chunk_accumulators.hpp"
#include "ptx/fence.hpp"
#include "ptx/grid.hpp"
#include "ptx/tma.hpp"
#include "ptx/wgmma.hpp"
#include "scheduler/row_tile_scheduler.hpp"
#include "sm90/expand.hpp"
#include "sm90/scale_window.hpp"
#include "sm90/scaled_fragment.hpp"
#include "sm90/scaled_layout.hpp"

namespace gemmule::kernels {

using ptx::Barrier;
using ptx::CachePolicy;
using ptx::Shared;
using ptx::U32x2;

/// The handles of the shared memory described by ScaledLayout. `first_free` barriers are the operator's.
struct ScaledShared {
  Shared<u8> a, b, expanded, scales;
  TileRing tiles;
  Barrier full, empty;      ///< [stages] raw operands
  Barrier b_full, b_empty;  ///< [b_buffers] expanded B
  Barrier first_free;

  GEMMULE_DEVICE static ScaledShared at(Shared<u8> base, const ScaledLayout& layout) {
    ScaledShared s{base, base.bytes(layout.b), base.bytes(layout.expanded), base.bytes(layout.scales)};
    s.full = base.bytes(layout.barriers).as<ptx::Mbarrier>();
    s.empty = s.full + layout.stages;
    s.b_full = s.empty + layout.stages;
    s.b_empty = s.b_full + layout.b_buffers;
    const Barrier tiles = s.b_empty + layout.b_buffers;
    s.tiles = {base.bytes(layout.tiles).as<U32x4>(), tiles, tiles + TileRing::size};
    s.first_free = tiles + 2 * TileRing::size;
    return s;
  }
};

struct ScaledMainloop {
  static constexpr u32 warps_per_group = scaled::warps_per_group;
  static constexpr u32 math_warps = scaled::groups * warps_per_group, math_threads = 32 * math_warps;
  static constexpr u32 slices = scaled::tile_k / 16;
  // Registers of the warpgroups. FP4 needs more for the expansion of B, FP8 for the feeding warps (scale_window.hpp).
  static constexpr u32 math_registers = 216;
  static constexpr u32 feed_registers = 32, expand_registers = 48;
  static constexpr u32 fp4_feed_registers = 24, fp4_expand_registers = 56;
  static_assert(128 * (feed_registers + expand_registers + 2 * math_registers) <= 65536 &&
                    128 * (fp4_feed_registers + fp4_expand_registers + 2 * math_registers) <= 65536,
                "the register file has 65536");

  const ScaledOptions& options;
  const ScaledParams& params;
  const ScaledLayout& layout;
  ScaledShared shared;
  u32 thread;  ///< in its warpgroup

  // ---------------------------------------------------------------------------------------------- barriers

  /// `tile_readers`: warps that read tile records besides those of the main loop (feed, expansion, math).
  GEMMULE_DEVICE void init_barriers(u32 tile_readers) const {
    for (u32 i = 0; i < layout.stages; ++i) {
      ptx::init(shared.full + i, 1);
      ptx::init(shared.empty + i, warps_per_group * expander_arrivals() + math_threads);
    }
    for (u32 i = 0; i < layout.b_buffers; ++i) {
      ptx::init(shared.b_full + i, warps_per_group * expander_arrivals());
      ptx::init(shared.b_empty + i, math_threads);
    }
    for (u32 i = 0; i < TileRing::size; ++i) {
      ptx::init(shared.tiles.full + i, 1);
      ptx::init(shared.tiles.empty + i, 2 + warps_per_group + math_warps + tile_readers);
    }
  }

  /// Arrivals of an expanding warp: of all its threads, as of the math warps, or, 2 % faster with FP8, of one after all are through.
  GEMMULE_DEVICE u32 expander_arrivals() const { return options.ab == Format::e2m1 ? 32 : 1; }

  /// Arrival of a thread on a barrier that tells of a buffer from which it has loaded: `values` is made of a value of every load. The
  /// address of the arrival depends on it (`none` is 0, which the compiler does not know), so that the arrival waits for the
  /// loads: on H200 it was seen to overtake loads that queued behind multiplications with operands in registers, and TMA refilled
  /// the buffer before they read it.
  GEMMULE_DEVICE static void release_loaded(Barrier barrier, u32 values, u32 none) {
    ptx::arrive(barrier.bytes(values & none));
  }
  GEMMULE_DEVICE void expander_release_loaded(Barrier barrier, u32 values, u32 none) const {
    if (expander_arrivals() == 1) ptx::sync_warp();
    if (expander_arrivals() != 1 || ptx::lane_index() == 0) release_loaded(barrier, values, none);
  }

  GEMMULE_DEVICE u32 stage_count() const {
    const u32 k = scaled::raw_tile_k(options.ab);
    return (params.k + k - 1) / k;
  }

  // ---------------------------------------------------------------------------------------------- feed

  /// Raw operands of every tile, by one lane.
  GEMMULE_DEVICE void feed_operands() const {
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(&params.a);
      if (!options.discrete) ptx::prefetch(&params.b);
    }
    RingState tile_at;
    ScaledRing at;
    for (;;) {
      const RowTile tile = read_row_tile(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      const ptx::TensorMap* b_map = &params.b;
      if (options.discrete) {
        b_map = params.b_maps + tile.expert;
        ptx::fence_tensor_map_acquire(b_map);
      }
      const i32 slab = options.discrete ? 0 : static_cast<i32>(tile.expert);
      const i32 row = static_cast<i32>(tile.row), column = static_cast<i32>(tile.column);
      // Maps count bytes, of which FP4 has two values each.
      const i32 bytes = static_cast<i32>(stage_count() * scaled::raw_row_bytes);
#pragma unroll 1
      for (i32 x = 0; x < bytes; x += static_cast<i32>(scaled::raw_row_bytes)) {
        ptx::wait_asleep(shared.empty + at.index, at.parity ^ 1);
        const Barrier full = shared.full + at.index;
        ptx::arrive_expect_bytes(full, scaled::stage_bytes(options));
        const Shared<u8> a = shared.a.bytes(at.index * scaled::raw_a_bytes);
        ptx::load_box(a, &params.a, x, row, full, CachePolicy::normal);
        ptx::load_box(a.bytes(scaled::raw_a_bytes / 2), &params.a, x, row + 128, full, CachePolicy::normal);
        const Shared<u8> b = shared.b.bytes(at.index * scaled::raw_b_bytes);
        if (options.b_n_major)
          ptx::load_box(b, b_map, column, x, slab, full, CachePolicy::normal);
        else
          ptx::load_box(b, b_map, x, column, slab, full, CachePolicy::normal);
        at.advance(layout.stages);
      }
    }
  }

  /// The scales of every tile, by one lane of another warp. They count among the bytes that feed_operands() expects.
  GEMMULE_DEVICE void feed_scales() const {
    constexpr u32 size = scaled::atom_bytes;
    const u32 atoms = scaled::stage_atoms(options);
    const bool leader = ptx::elect_one();
    u32 tiles_read = 0;
    ScaledRing at;
    for (;;) {
      RingState tile_at{tiles_read % TileRing::size, tiles_read / TileRing::size % 2};
      const RowTile tile = read_row_tile(shared.tiles, tile_at);
      tiles_read += 1;
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      const u32 row_bytes = static_cast<u32>(layout::block_atoms(params.k, options.vec)) * size;
      const u8* a = params.sfa + i64{tile.row / 128} * row_bytes;
      const u32 b_rows = (params.n + scaled::tile_n - 1) / scaled::tile_n;
      const u8* b = options.discrete ? reinterpret_cast<const u8*>(ptx::load(params.sfb_ptrs + tile.expert))
                                     : params.sfb + i64{tile.expert * b_rows} * row_bytes;
      b += i64{tile.column / scaled::tile_n} * row_bytes;
      // Rows or blocks that do not exist: something is read twice, and nobody uses it.
      const u64 from[3] = {ptx::computed_here(reinterpret_cast<u64>(a)),
                           ptx::computed_here(reinterpret_cast<u64>(a + (tile.rows > 128 ? row_bytes : 0))),
                           ptx::computed_here(reinterpret_cast<u64>(b))};
      const u32 step = scaled::raw_tile_k(options.ab) * size / (4 * options.vec);  // half an atom, one or two
      const u32 end = options.ab == Format::e2m1 ? row_bytes : stage_count() * step;
#pragma unroll 1
      for (u32 at_byte = 0; at_byte < end; at_byte += step) {
        ptx::wait_asleep(shared.empty + at.index, at.parity ^ 1);
        const Barrier full = shared.full + at.index;
        const Shared<u8> to = shared.scales.bytes(at.index * scaled::stage_scale_bytes(options));
        u32 offset = at_byte / size * size;
#pragma unroll 1
        for (u32 i = 0; i < atoms; ++i) {
#pragma unroll
          for (u32 operand = 0; operand < 3; ++operand)
            ptx::load_bytes(to.bytes((operand * atoms + i) * size),
                            reinterpret_cast<const u8*>(from[operand]) + offset, size, full);
          if (offset + size < row_bytes) offset += size;
        }
        at.advance(layout.stages);
      }
    }
  }

  // ---------------------------------------------------------------------------------------------- scales

  /// Which of the 4 scale bytes that a thread reads per row serves its piece t (16 bytes of a row), and where in k the stage begins.
  struct Selection {
    u32 block;  ///< scale_selector() of the first step
    u32 k;

    GEMMULE_DEVICE static Selection of(const ScaledOptions& options, u32 t) {
      return {expand::scale_selector(options, t * (scaled::raw_tile_k(options.ab) / 4) / options.vec % 4), 0};
    }
    GEMMULE_DEVICE u32 at(const ScaledOptions& options, u32 step) const {
      return options.vec == 32 ? block : block + step * expand::next_scale(options);
    }
    /// An FP8 stage has 2 blocks of 32 values, so that every other one needs the upper two.
    GEMMULE_DEVICE void advance(const ScaledOptions& options) {
      k += scaled::raw_tile_k(options.ab);
      if (options.ab != Format::e2m1) block ^= 2 * expand::next_scale(options);
    }
  };

  /// The 4 scale bytes that a thread reads for piece t in the stage that begins at k, zeros for blocks that do not exist.
  GEMMULE_DEVICE u32 existing_scales(u32 scales, u32 k, u32 t) const {
    const u32 first = options.ab != Format::e2m1          ? k / 128 * 128
                      : scaled::stage_atoms(options) == 2 ? k + t / 2 * 64
                                                          : k;
    const u32 left = params.k > first ? params.k - first : 0;
    return expand::existing_scales(scales, (left + options.vec - 1) / options.vec);
  }
  /// Whether that changes anything.
  GEMMULE_DEVICE bool has_absent_scales(u32 k) const {
    return k + scaled::raw_tile_k(options.ab) > params.k;
  }

  /// Of FP8, in the last stage: selects zero in place of a block that does not exist. Here, k is where the block begins.
  GEMMULE_DEVICE void drop_absent(Selection& selection) const {
    if (selection.k >= params.k) selection.block = 0x4444;
  }

  /// Offset in a stage's scales of the 4 bytes of row 0 of row tile `tile` (2: B) for piece t; row 32 w + r is 4 w + 16 r
  /// further on.
  GEMMULE_DEVICE u32 scale_offset(u32 tile, u32 t) const {
    const u32 atoms = scaled::stage_atoms(options);
    return (tile * atoms + (atoms == 2 ? t / 2 : 0)) * scaled::atom_bytes;
  }

  // ---------------------------------------------------------------------------------------------- the two ways

  template <bool fp16>
  using PairFactor = typename expand::PairFactor<fp16>::Type;

  /// The factor of both values of a pair. `base`: of FP16.
  template <bool fp16>
  GEMMULE_DEVICE PairFactor<fp16> pair_factor(u32 scales, u32 select, u32 base) const {
    if constexpr (fp16)
      return expand::fp16_factor(options, scales, select, base * 0x00010001u);
    else
      return expand::factor(options, scales, select);
  }
  template <bool fp16>
  GEMMULE_DEVICE U32x2 slice_pairs(const U32x4& words, u32 step, u32 slice,
                                   const PairFactor<fp16>& factor) const {
    if constexpr (fp16)
      return expand::fp16_slice_pairs(options, words, step, slice, factor);
    else
      return expand::slice_pairs(options, words, step, slice, factor);
  }

  // ---------------------------------------------------------------------------------------------- expansion of B

  /// The expanding warpgroup: every tile. With two buffers to spare, a tile of B is published while the next one is being
  /// loaded, so that the fence does not wait for its last stores.
  GEMMULE_DEVICE void expand_b() const {
    const u32 stages = stage_count();
    RingState tile_at;
    ScaledRing at, b_at;
    for (;;) {
      const RowTile tile = read_row_tile(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      Selection selection = Selection::of(options, options.b_n_major ? thread / 32 : 0);
      for (u32 stage = 0; stage < stages; ++stage) {
        ptx::wait(shared.full + at.index, at.parity);
        const bool unpublished = publishes_late() && stage != 0;
        if (options.b_n_major && tile.fp16.use)
          expand_n_major<true>(at.index, selection, tile.fp16.base_b, b_at, unpublished);
        else if (options.b_n_major)
          expand_n_major<false>(at.index, selection, 0, b_at, unpublished);
        else if (expand::always_fp16(options) || (options.ab != Format::e2m1 && tile.fp16.use))
          expand_k_major<true>(at.index, selection, tile.fp16.base_b, b_at, unpublished);
        else
          expand_k_major<false>(at.index, selection, 0, b_at, unpublished);
        at.advance(layout.stages);
        selection.advance(options);
      }
      if (publishes_late()) publish_b(b_at);
    }
  }

  GEMMULE_DEVICE bool publishes_late() const {
    return layout.b_buffers > scaled::steps_per_stage(options) + 1;
  }

  /// Piece t of a row of B, of those that share a scale block: FP8 has 2 blocks (pieces 0, 1 and 2, 3), FP4 4.
  GEMMULE_DEVICE u32 block_of(u32 t) const {
    return options.ab == Format::e2m1 ? t : t / 2;
  }
  /// The selector of that block, where `selection` is that of piece 0.
  GEMMULE_DEVICE u32 block_selector(const Selection& selection, u32 t, u32 step) const {
    return selection.block + (Selection::of(options, t).at(options, step) - Selection::of(options, 0).block);
  }

  /// Waits for room for the tile of expanded B at b_at.
  GEMMULE_DEVICE Shared<u8> acquire_b(const ScaledRing& b_at) const {
    ptx::wait(shared.b_empty + b_at.index, b_at.parity ^ 1);
    return shared.expanded.bytes(b_at.index * scaled::expanded_bytes);
  }
  /// The tile at b_at is complete.
  GEMMULE_DEVICE void publish_b(ScaledRing& b_at) const {
    ptx::fence_async_shared();
    if (expander_arrivals() == 1) ptx::sync_warp();
    ptx::arrive_if(expander_arrivals() != 1 || ptx::lane_index() == 0, shared.b_full + b_at.index);
    b_at.advance(layout.b_buffers);
  }

  /// A thread expands one row of B: 128-byte rows with the 128-byte swizzle, piece 2 s + i holds pair 2 s + i of pieces 0..3.
  /// `unpublished`: the tile at b_at is complete and not published.
  template <bool fp16>
  GEMMULE_DEVICE void expand_k_major(u32 stage_index, const Selection& selection, u32 base, ScaledRing& b_at,
                                     bool unpublished) const {
    const Shared<u8> raw = shared.b.bytes(stage_index * scaled::raw_b_bytes);
    const Shared<u8> scales = shared.scales.bytes(stage_index * scaled::stage_scale_bytes(options));
    const u32 row = fragment::expander_row(thread);
    const u32 position = fragment::position(row);
    const u32 in_atom = row % 32 * 16 + row / 32 * 4;
    u32 scale[2];
    scale[0] = ptx::load(scales.bytes(scale_offset(2, 0) + in_atom).as<u32>());
    scale[1] = scaled::stage_atoms(options) == 2
                   ? ptx::load(scales.bytes(scale_offset(2, 2) + in_atom).as<u32>())
                   : scale[0];
    // Rows are aligned to the span of their swizzle.
    const u32 from = raw.address + row * scaled::raw_row_bytes + (row / 2 % 4 << 4);
    U32x4 words[4];
#pragma unroll
    for (u32 t = 0; t < 4; ++t) words[t] = ptx::load(Shared<U32x4>{from ^ t << 4});
    if (unpublished) publish_b(b_at);
    expander_release_loaded(shared.empty + stage_index,
                            words[0].x ^ words[1].x ^ words[2].x ^ words[3].x ^ (scale[0] | scale[1]),
                            params.k >> 31);
    if (has_absent_scales(selection.k)) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) scale[i] = existing_scales(scale[i], selection.k, 2 * i);
    }
#pragma unroll
    for (u32 step = 0; step < scaled::steps_per_stage(options); ++step) {
      PairFactor<fp16> factors[4];
#pragma unroll
      for (u32 t = 0; t < 4; ++t)
        factors[block_of(t)] = pair_factor<fp16>(scale[t / 2], block_selector(selection, t, step), base);
      const u32 to = acquire_b(b_at).address + position * 128 + (position % 8 << 4);
#pragma unroll
      for (u32 s = 0; s < slices; ++s) {
        U32x2 pairs[4];
#pragma unroll
        for (u32 t = 0; t < 4; ++t) pairs[t] = slice_pairs<fp16>(words[t], step, s, factors[block_of(t)]);
        ptx::store(Shared<U32x4>{to ^ 2 * s << 4}, U32x4{pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x});
        ptx::store(Shared<U32x4>{to ^ (2 * s + 1) << 4},
                   U32x4{pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y});
      }
      if (!publishes_late()) publish_b(b_at);
    }
  }

  /// FP8 with n contiguous: warp w expands k = 16 w .. 16 w + 15, a lane 4 neighbouring columns. Raw rows are 128 columns
  /// of one k; expanded rows 64 columns of one k, the two halves of the columns one after the other (wgmma's
  /// MN-major form), all with the 128-byte swizzle. Lanes of the two halves take k in another order, so that they do not
  /// meet in a bank.
  template <bool fp16>
  GEMMULE_DEVICE void expand_n_major(u32 stage_index, const Selection& selection, u32 base, ScaledRing& b_at,
                                     bool unpublished) const {
    const Shared<u8> raw = shared.b.bytes(stage_index * scaled::raw_b_bytes);
    const Shared<u8> scales = shared.scales.bytes(stage_index * scaled::stage_scale_bytes(options));
    const u32 warp = thread / 32, lane = thread % 32, column = 4 * lane;
    const u32 in_atom = scale_offset(2, 0) + column % 32 * 16 + column / 32 * 4;
    u32 codes[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) codes[i] = ptx::load(scales.bytes(in_atom + 16 * i).as<u32>());
    if (has_absent_scales(selection.k)) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) codes[i] = existing_scales(codes[i], selection.k, warp);
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) codes[i] = ptx::permute_bytes(codes[i], 0, selection.block);
    // Two columns share a pair.
    PairFactor<fp16> factors[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 two = ptx::permute_bytes(codes[2 * i], codes[2 * i + 1], 0x5410);
      if constexpr (fp16)
        factors[i] = expand::fp16_factor_of(two, base * 0x00010001u);
      else
        factors[i] = expand::e8m0_factor(options, two);
    }
    const u32 late = lane / 16;
    const u32 from = raw.address + warp * 2048 + late * 128 + ((lane / 4 ^ late) << 4) + lane % 4 * 4;
    u32 words[16];
#pragma unroll
    for (u32 i = 0; i < 16; ++i)  // k = i ^ late of the warp's 16
      words[i] = ptx::load(Shared<u32>{(from ^ i % 8 * (128 + 16)) + i / 8 * 1024});
    if (unpublished) publish_b(b_at);
    u32 loaded = codes[0] ^ codes[1] ^ codes[2] ^ codes[3];
#pragma unroll
    for (u32 i = 0; i < 16; ++i) loaded ^= words[i];
    expander_release_loaded(shared.empty + stage_index, loaded, params.k >> 31);
    // wgmma's k of the warp's k is 16 (k / 4) + 8 (k % 4 / 2) + 2 warp + k % 2.
    const u32 to = acquire_b(b_at).address + late * (scaled::tile_k * 128) + (2 * warp + late) * 128;
    u32 first[2];
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      const u32 byte = fragment::position(column % 64 + 2 * half) * 2;
      first[half] = to + ((byte / 16 ^ (2 * warp + late)) << 4) + byte % 16;
    }
    // Even k first, then odd: half as many addresses at a time.
#pragma unroll
    for (u32 turn = 0; turn < 16; ++turn) {
      const u32 i = turn % 8 * 2 + turn / 8;
#pragma unroll
      for (u32 half = 0; half < 2; ++half) {
        u32 pair;
        if constexpr (fp16)
          pair = ptx::multiply_fp16(expand::fp8_as_fp16(options.ab, words[i], half), factors[half]);
        else
          pair = expand::scaled(options,
                                half == 0 ? expand::fp8_pair<0>(options.ab, words[i])
                                          : expand::fp8_pair<1>(options.ab, words[i]),
                                factors[half]);
        ptx::store(Shared<u32>{(first[half] ^ i % 2 * (128 + 16)) + i / 4 * 2048 + i % 4 / 2 * 1024}, pair);
      }
    }
    if (!publishes_late()) publish_b(b_at);
  }

  // ---------------------------------------------------------------------------------------------- math warpgroups

  /// Raw bytes of a thread's two rows of one half, and their scales.
  struct RawRows {
    U32x4 words[2];
    u32 scales[2];
  };
  using Operands = ptx::OperandA[slices];

  /// Where a thread finds its row 0 in a stage: of the 128 rows, row r is 8 r further on.
  struct RowOffsets {
    u32 a, scales;
  };
  GEMMULE_DEVICE RowOffsets row_offsets(u32 group) const {
    const u32 warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    return {(group * 128 + 32 * warp + g) * scaled::raw_row_bytes + ((t ^ g / 2) << 4),
            scale_offset(group, t) + 16 * g + 4 * warp};
  }

  /// The same as addresses.
  GEMMULE_DEVICE RowOffsets row_addresses(const RowOffsets& offsets, u32 stage_index) const {
    return {shared.a.address + offsets.a + stage_index * scaled::raw_a_bytes,
            shared.scales.address + offsets.scales + stage_index * scaled::stage_scale_bytes(options)};
  }

  GEMMULE_DEVICE static RawRows load_rows(const RowOffsets& addresses, u32 half) {
    const Shared<u8> a{addresses.a}, scales{addresses.scales};
    RawRows rows;
#pragma unroll
    for (u32 u = 0; u < 2; ++u) {
      const u32 row = 8 * (2 * half + u);
      rows.words[u] = ptx::load(a.bytes(row * scaled::raw_row_bytes).as<U32x4>());
      rows.scales[u] = ptx::load(scales.bytes(row * 16).as<u32>());
    }
    return rows;
  }

  /// The first step of `rows` comes first.
  template <bool fp16>
  GEMMULE_DEVICE void expand_rows(Operands& operands, RawRows& rows, const Selection& selection, u32 base,
                                  u32 step) const {
    if (options.ab == Format::e2m1 && step == 0 && has_absent_scales(selection.k)) {
#pragma unroll
      for (u32 u = 0; u < 2; ++u) rows.scales[u] = existing_scales(rows.scales[u], selection.k, thread % 4);
    }
    const u32 select = selection.at(options, step);
#pragma unroll
    for (u32 u = 0; u < 2; ++u) {
      const PairFactor<fp16> factor = pair_factor<fp16>(rows.scales[u], select, base);
#pragma unroll
      for (u32 s = 0; s < slices; ++s) {
        const U32x2 pairs = slice_pairs<fp16>(rows.words[u], step, s, factor);
        operands[s].set(static_cast<int>(u), pairs.x);
        operands[s].set(static_cast<int>(2 + u), pairs.y);
      }
    }
  }

  template <bool fp16>
  GEMMULE_DEVICE void multiply_unit(ptx::Accumulator<scaled::tile_n>& sums, const Operands& operands,
                                    u64 b_descriptor) const {
    const auto b = __builtin_bit_cast(ptx::MatrixDescriptor, b_descriptor);
    ptx::fence_accumulators();
#pragma unroll
    for (u32 s = 0; s < slices; ++s) {
      if (options.b_n_major)
        ptx::multiply<scaled::tile_n, fp16, true>(sums, operands[s], b.advance(s * 16 * 128), true);
      else
        ptx::multiply<scaled::tile_n, fp16, false>(sums, operands[s], b.advance(s * 32), true);
    }
    ptx::commit_multiplications();
  }

  /// The bits of the matrix descriptor of a tile of expanded B, computed where this is called.
  GEMMULE_DEVICE u64 descriptor(u32 b_index) const {
    return ptx::computed_here(
        __builtin_bit_cast(u64, ptx::swizzled_128(shared.expanded.bytes(b_index * scaled::expanded_bytes),
                                                  options.b_n_major ? scaled::tile_k * 128 : 16, 1024)));
  }

  /// Waits for the tile of expanded B at b_at.
  GEMMULE_DEVICE u32 await_b(ScaledRing& b_at) const {
    const u32 index = b_at.index;
    ptx::wait(shared.b_full + index, b_at.parity);
    b_at.advance(layout.b_buffers);
    return index;
  }

  /// One word of every load.
  GEMMULE_DEVICE static u32 loaded(const RawRows& rows) {
    return rows.words[0].x ^ rows.words[1].x ^ rows.scales[0] ^ rows.scales[1];
  }

  /// Multiplies the group's 128 rows of a tile of FP8. Nothing is in flight afterwards.
  template <bool fp16>
  GEMMULE_DEVICE void fp8_loop(const RowTile& tile, u32 group, ScaledAccumulators& sums,
                               u32 tiles_before) const {
    const u32 base = tile.fp16.base_a, none = tile.row >> 31;
    const RowOffsets offsets = row_offsets(group);
    const u32 stages = stage_count();
    ScaledRing at = ScaledRing::after(tiles_before * stages, layout.stages);
    ScaledRing b_at = ScaledRing::after(tiles_before * stages, layout.b_buffers);
    Selection selection = Selection::of(options, thread % 4);
    selection.k = thread % 4 * 16 / options.vec * options.vec;  // where the thread's block begins
    drop_absent(selection);
    Operands operands[2];
    // Not by the first multiplications: those of the second half would find registers that the compiler defines under those
    // of the first.
    sums[0].clear();
    sums[1].clear();
    ptx::wait(shared.full + at.index, at.parity);
    RowOffsets from = row_addresses(offsets, at.index);
    RawRows rows = load_rows(from, 0);
    expand_rows<fp16>(operands[0], rows, selection, base, 0);
    ptx::wait(shared.b_full + b_at.index, b_at.parity);
    u32 last_b = 0;
    Selection second = selection;
    for (u32 stage = 1;; ++stage) {
      const bool more = stage != stages;
      const u64 b = descriptor(b_at.index);
      // Bytes of a unit are loaded before the multiplications of the unit before it, which hide their way. Barriers are tested
      // there and asked for the answer when it is needed.
      rows = load_rows(from, 1);
      multiply_unit<fp16>(sums[0], operands[0], b);
      const u32 this_index = at.index;
      at.advance(layout.stages);
      at.index = ptx::computed_here(at.index);
      const bool raw_ready = ptx::test(shared.full + at.index, at.parity);
      ptx::wait_multiplications<1>();  // for the unit before this one
      if (stage != 1) {
        // What reads the loaded scales waits for `second`, so that the compiler cannot put it between the multiplications.
        second = selection;
        ptx::arrive(shared.b_empty + last_b);
      }
      last_b = b_at.index;
      expand_rows<fp16>(operands[1], rows, second, base, 0);
      // All of the thread's loads are in these two.
      release_loaded(shared.empty + this_index, operands[1][0].get(0) ^ operands[1][0].get(1), none);
      if (more) {
        if (!raw_ready) ptx::wait(shared.full + at.index, at.parity);
        from = row_addresses(offsets, at.index);
        rows = load_rows(from, 0);
      }
      multiply_unit<fp16>(sums[1], operands[1], b);
      if (!more) break;
      b_at.advance(layout.b_buffers);
      b_at.index = ptx::computed_here(b_at.index);
      selection.advance(options);
      drop_absent(selection);
      ptx::wait_multiplications<1>();
      const bool b_ready = ptx::test(shared.b_full + b_at.index, b_at.parity);
      expand_rows<fp16>(operands[0], rows, selection, base, 0);
      if (!b_ready) ptx::wait(shared.b_full + b_at.index, b_at.parity);
    }
    ptx::wait_multiplications<0>();
    ptx::arrive(shared.b_empty + last_b);
  }

  /// The same of FP4. Nothing comes between the expansion of a unit and its multiplication; all else takes its time while the
  /// tensor cores are busy, the bytes of a unit are loaded one unit ahead.
  template <bool fp16>
  GEMMULE_DEVICE void fp4_loop(const RowTile& tile, u32 group, ScaledAccumulators& sums,
                               u32 tiles_before) const {
    constexpr u32 units = 4;
    const u32 none = tile.row >> 31;
    const RowOffsets offsets = row_offsets(group);
    const u32 stages = stage_count();
    ScaledRing at = ScaledRing::after(tiles_before * stages, layout.stages);
    ScaledRing b_at = ScaledRing::after(tiles_before * stages * (units / 2), layout.b_buffers);
    Selection selection = Selection::of(options, thread % 4);
    Operands operands[2];
    sums[0].clear();
    sums[1].clear();
    RawRows rows[2];
    ptx::wait(shared.full + at.index, at.parity);
    rows[0] = load_rows(row_addresses(offsets, at.index), 0);
    rows[1] = load_rows(row_addresses(offsets, at.index), 1);
    expand_rows<fp16>(operands[0], rows[0], selection, 0, 0);
    u32 b_index = await_b(b_at), last_b = 0;
    u64 b = descriptor(b_index);
    for (u32 stage = 0;;) {
      const bool last = stage + 1 == stages;
#pragma unroll
      for (u32 unit = 0; unit < units; ++unit) {
        const u32 half = unit % 2, next = (unit + 1) % units;
        multiply_unit<fp16>(sums[half], operands[half], b);
        if (unit == 0) {
          release_loaded(shared.empty + at.index, loaded(rows[0]) ^ loaded(rows[1]), none);
          at.advance(layout.stages);
        }
        // In place of the half that needs no more expansion.
        if (unit >= 2 && !last) {
          if (half == 0) ptx::wait(shared.full + at.index, at.parity);
          rows[half] = load_rows(row_addresses(offsets, at.index), half);
        }
        if (next == 0 && last) break;
        if (next == 0) selection.advance(options);
        ptx::wait_multiplications<1>();  // for the unit before this one
        if (half == 0) {
          if (unit != 0 || stage != 0) ptx::arrive(shared.b_empty + last_b);
          last_b = b_index;
        } else {
          b_index = await_b(b_at);
          b = descriptor(b_index);
        }
        expand_rows<fp16>(operands[next % 2], rows[next % 2], selection, 0, next / 2);
      }
      if (last) {
        ptx::wait_multiplications<0>();
        ptx::arrive(shared.b_empty + b_index);
        return;
      }
      stage += 1;
    }
  }

  /// More than two loops would not find registers for the sums that they share, and a choice within the loop costs a tenth of
  /// its speed: FP8 has one loop for BF16 and one for FP16; FP4 has the one that its scales ask for.
  GEMMULE_DEVICE void multiply_tile(const RowTile& tile, u32 group, ScaledAccumulators& sums,
                                    u32 tiles_before) const {
    if (options.ab == Format::e2m1) {
      if (expand::always_fp16(options))
        fp4_loop<true>(tile, group, sums, tiles_before);
      else
        fp4_loop<false>(tile, group, sums, tiles_before);
    } else if (tile.fp16.use) {
      fp8_loop<true>(tile, group, sums, tiles_before);
      const i32 exponent = expand::result_exponent(tile.fp16.base_a, tile.fp16.base_b);
      const float factor = numerics::float_of(static_cast<u32>(127 + exponent) << 23);
      sums[0].scale(factor);
      sums[1].scale(factor);
    } else {
      fp8_loop<false>(tile, group, sums, tiles_before);
    }
  }

  /// A tile of 128 rows, of which the second warpgroup has none: it lets all buffers pass.
  GEMMULE_DEVICE void skip_tile(u32 tiles_before) const {
    const u32 stages = stage_count();
    const u32 steps = scaled::steps_per_stage(options);
    ScaledRing at = ScaledRing::after(tiles_before * stages, layout.stages);
    ScaledRing b_at = ScaledRing::after(tiles_before * stages * steps, layout.b_buffers);
#pragma unroll 1
    for (u32 i = 0; i < stages; ++i) {
#pragma unroll
      for (u32 step = 0; step < steps; ++step) {
        const u32 b = await_b(b_at);
        if (step == 0) ptx::arrive(shared.empty + at.index);
        ptx::arrive(shared.b_empty + b);
      }
      at.advance(layout.stages);
    }
  }
};

}  // namespace gemmule::kernels
