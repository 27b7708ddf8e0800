// The main loop of the sm_100 kernels: TMA brings A, B and scale factors, one thread multiplies, accumulators in tensor
// memory. Both operators and all formats share it.
//
//   warp 0  A, B and their scales, through a ring of `stages` buffers
//   warp 1  tensor memory, and the multiplications of the CTA or pair
//   warp 2  the tile scheduler (first CTA of the cluster)
//   warp 3  the epilogue's input, where there is one
//   warps 4..11  the epilogue: two warpgroups that take the 32-column chunks of a tile in turn
//
// A tile is 128 rows per CTA x tile_n columns. Tensor memory holds two accumulators, so that the epilogue of one tile
// runs under the multiplications of the next, and behind them two sets of scale factors. In a pair (ctas = 2) both CTAs
// load their rows of A and half the rows of B; the even one multiplies.
#pragma once

#include "ptx/fence.hpp"
#include "ptx/tcgen05.hpp"
#include "ptx/tma_pair.hpp"
#include "scheduler/tile_scheduler.hpp"
#include "sm100/layout.hpp"

namespace gemmule::kernels {

using ptx::Barrier;
using ptx::CachePolicy;
using ptx::Shared;
using ptx::TensorAddress;

namespace sm100 {

inline constexpr u32 feed_registers = 80;
inline constexpr u32 epilogue_registers = 208;
static_assert(128 * feed_registers + 256 * epilogue_registers <= threads * 168,
              "registers come from what the launch bound of 168 gives");

}  // namespace sm100

/// Handles of the main loop's barriers.
struct MainloopShared {
  Shared<u8> a, b, scales, tail;
  TileRing tiles;
  Barrier full, empty;          ///< [stages]; full: of the even CTA in a pair
  Barrier acc_full, acc_empty;  ///< [2] accumulators; acc_empty: of the even CTA in a pair
  /// The scales of a tile's last stage, where they must be corrected: loaded; corrected in the odd CTA; multiplied.
  Barrier tail_full, tail_ready, tail_empty;
  Shared<u32> tensor;  ///< address of the first column of tensor memory

  GEMMULE_DEVICE static MainloopShared at(Shared<u8> base, const Sm100Layout& layout, u32 stages) {
    MainloopShared s;
    s.a = base;
    s.b = base.bytes(layout.operands.b);
    s.scales = base.bytes(layout.operands.scales);
    s.tail = base.bytes(layout.operands.tail);
    s.full = base.bytes(layout.words).as<ptx::Mbarrier>();
    s.empty = s.full + stages;
    s.acc_full = s.empty + stages;
    s.acc_empty = s.acc_full + 2;
    s.tiles.records = base.bytes(layout.records).as<U32x4>();
    s.tiles.full = s.acc_empty + 2;
    s.tiles.empty = s.tiles.full + TileRing::size;
    s.tail_full = s.tiles.empty + TileRing::size;
    s.tail_ready = s.tail_full + 1;
    s.tail_empty = s.tail_ready + 1;
    s.tensor = (s.tail_empty + 1).as<u32>();
    return s;
  }
};

/// Position of a reader of accumulators: which of the two, and the parity of its round.
struct AccumulatorState {
  u32 index = 0, parity = 0;

  GEMMULE_DEVICE void advance() {
    parity ^= index;
    index ^= 1;
  }
};

template <u32 tile_n_, u32 stages_, u32 ctas_>
struct Mainloop {
  static constexpr u32 tile_n = tile_n_;  ///< columns of a tile
  static constexpr u32 stages = stages_;
  static constexpr u32 ctas = ctas_;  ///< that multiply together: a cluster

  static_assert(ctas == 1 || ctas == 2, "tcgen05 multiplies in one CTA or a pair");
  static_assert(TileRing::size == sm100::tile_ring);
  static_assert(tile_n % 64 == 0 && tile_n >= 64 && tile_n <= 256,
                "a pair's N is a multiple of 32 up to 256; a tile starts at half an atom of scales");

  const OperandOptions& options;
  OperandMaps maps;
  u32 n, k;
  MainloopShared shared;
  OperandLayout layout;
  u32 rank;  ///< CTA in the pair

  // ---------------------------------------------------------------------------------------------- operands

  GEMMULE_DEVICE void load(Shared<u8> to, const ptx::TensorMap* map, u32 x, u32 y, Barrier full) const {
    if constexpr (ctas == 1)
      ptx::load_box(to, map, static_cast<i32>(x), static_cast<i32>(y), full, CachePolicy::normal);
    else
      ptx::load_box_pair(to, map, static_cast<i32>(x), static_cast<i32>(y), full, 0, CachePolicy::normal);
  }
  GEMMULE_DEVICE void load(Shared<u8> to, const ptx::TensorMap* map, u32 x, u32 y, u32 z,
                           Barrier full) const {
    if constexpr (ctas == 1)
      ptx::load_box(to, map, static_cast<i32>(x), static_cast<i32>(y), static_cast<i32>(z), full,
                    CachePolicy::normal);
    else
      ptx::load_box_pair(to, map, static_cast<i32>(x), static_cast<i32>(y), static_cast<i32>(z), full, 0,
                         CachePolicy::normal);
  }

  /// N of the instruction: what a tile has of columns, rounded up to what a pair can halve.
  GEMMULE_DEVICE static u32 width(const Tile& tile) { return (tile.columns + 31) / 32 * 32; }

  /// Warp 0.
  GEMMULE_DEVICE void feed() const {
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(maps.a);
      if (!options.discrete) ptx::prefetch(maps.b);
    }
    RingState tile_at, at;
    for (;;) {
      const Tile tile = read_tile<ctas>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      const ptx::TensorMap* b_map = maps.b;
      const ptx::TensorMap* sfb_map = maps.sfb;
      if (options.discrete) {
        b_map += tile.expert;
        ptx::fence_tensor_map_acquire(b_map);
        if (options.vec != 0) {
          sfb_map += tile.expert;
          ptx::fence_tensor_map_acquire(sfb_map);
        }
      }
      const u32 slab = options.discrete ? 0 : tile.expert;
      for (u32 first = 0; first < k; first += options.stage_k()) {
        ptx::wait(shared.empty + at.index, at.parity ^ 1);
        const Barrier full = shared.full + at.index;
        const bool padded = is_padded(k - first);
        if (rank == 0)
          ptx::arrive_expect_bytes(full, ctas * (layout.stage_bytes() - (padded ? layout.scale_bytes() : 0)));
        load(shared.a.bytes(at.index * layout.a_bytes), maps.a, first / options.values_per_element(),
             tile.row, full);
        load_b(b_map, tile, first, slab, at.index, full);
        if (options.vec != 0 && !padded) {
          const u32 atom = first / options.stage_k() * options.stage_atoms();
          const Shared<u8> to = shared.scales.bytes(at.index * layout.scale_bytes());
          load(to, maps.sfa, 0, atom, tile.row / 128, full);
          load(to.bytes(layout.sfa_bytes), sfb_map, 0, atom, b_scale_row(tile, slab), full);
        }
        at.template advance<stages>();
      }
    }
  }

  GEMMULE_DEVICE void load_b(const ptx::TensorMap* map, const Tile& tile, u32 first, u32 slab, u32 stage,
                             Barrier full) const {
    const Shared<u8> b = shared.b.bytes(stage * layout.b_bytes);
    const u32 column = tile.column + (ctas == 1 ? 0 : rank * (width(tile) / ctas));
    if (!options.b_n_major) return load(b, map, first / options.values_per_element(), column, slab, full);
    const u32 span = options.span_columns();
    for (u32 i = 0; i * span < tile_n / ctas; ++i)
      load(b.bytes(i * options.stage_k() * 128), map, column + i * span, first, slab, full);
  }

  /// Atom of the tile's first row of B.
  GEMMULE_DEVICE u32 b_scale_row(const Tile& tile, u32 slab) const {
    return slab * ((n + 127) / 128) + tile.column / 128;
  }

  // ---------------------------------------------------------------------------------------------- multiplications

  /// Columns of one set of scales: those of A, then those of B.
  GEMMULE_DEVICE u32 scale_columns() const { return (1 + b_scale_rows(tile_n)) * options.stage_atoms() * 4; }

  /// Scales of a stage, from shared to tensor memory.
  GEMMULE_DEVICE void copy_stage_scales(Shared<u8> from, TensorAddress to) const {
    constexpr u32 rows = b_scale_rows(tile_n);
    const u32 atoms = options.stage_atoms();
    for (u32 atom = 0; atom < atoms; ++atom) {
      copy_atom(from.bytes(atom * 512), to.columns(atom * 4));
#pragma unroll
      for (u32 row = 0; row < rows; ++row)
        copy_atom(from.bytes(layout.sfa_bytes + (row * atoms + atom) * 512),
                  to.columns((atoms + atom * rows + row) * 4));
    }
  }
  GEMMULE_DEVICE void copy_atom(Shared<u8> from, TensorAddress to) const {
    ptx::copy_scales<ctas>(to, ptx::OperandDescriptor::of(from, 0, 128, ptx::OperandSwizzle::none));
  }

  /// The instructions of a stage with `slices` x slice_k values of k.
  GEMMULE_DEVICE void multiply_stage(const Tile& tile, u32 stage, u32 slices, TensorAddress d,
                                     TensorAddress scales, bool accumulate) const {
    const ptx::OperandDescriptor a = ptx::OperandDescriptor::of(shared.a.bytes(stage * layout.a_bytes), 16,
                                                                1024, ptx::OperandSwizzle::b128);
    const u32 b_leading = options.b_n_major ? options.stage_k() * 128 : 16;
    const u32 b_step = options.b_n_major ? options.slice_k() * 128 : 32;
    const ptx::OperandDescriptor b = ptx::OperandDescriptor::of(shared.b.bytes(stage * layout.b_bytes),
                                                                b_leading, 1024, ptx::OperandSwizzle::b128);
#pragma unroll
    for (u32 slice = 0; slice < 4; ++slice) {
      if (slice >= slices) break;
      multiply_slice(tile, slice, d, a.advance(slice * 32), b.advance(slice * b_step), scales,
                     accumulate || slice != 0);
    }
  }

  GEMMULE_DEVICE void multiply_slice(const Tile& tile, u32 slice, TensorAddress d, ptx::OperandDescriptor a,
                                     ptx::OperandDescriptor b, TensorAddress scales, bool accumulate) const {
    constexpr u32 m = sm100::tile_rows * ctas;
    if (options.vec == 0) {
      ptx::multiply_f16<ctas>(d, a, b, ptx::InstructionDescriptor::bf16(m, width(tile), options.b_n_major),
                              accumulate);
      return;
    }
    const u32 block = slice * options.slice_scales();  // of the stage; four make an atom
    const TensorAddress a_scales = scales.columns(block / 4 * 4);
    const TensorAddress b_scales = scales.columns(
        (options.stage_atoms() + block / 4 * b_scale_rows(tile_n)) * 4 + tile.column % 128 / 32);
    const u32 format = options.ab == Format::e4m3 ? 0 : 1;
    const ptx::ScaledInstructionDescriptor instruction = ptx::ScaledInstructionDescriptor::of(
        format, options.scale == ScaleFormat::e8m0 ? 1 : 0, m, width(tile), options.b_n_major, block % 4);
    if (options.ab != Format::e2m1)
      ptx::multiply_scaled<ptx::ScaledKind::mxf8f6f4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
    else if (options.vec == 32)
      ptx::multiply_scaled<ptx::ScaledKind::mxf4, 32, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                            accumulate);
    else
      ptx::multiply_scaled<ptx::ScaledKind::mxf4nvf4, 16, ctas>(d, a, b, instruction, a_scales, b_scales,
                                                                accumulate);
  }

  // The last instruction of a tile may read scales of blocks past the end of K, and 0 * NaN is NaN: whatever the caller
  // left there must become 2^-127 or 0. That stage's scales have a buffer of their own (tail), where warp 1 of each CTA
  // corrects them. K is a multiple of half an instruction of e2m1; an instruction on 8-bit values has one scale.

  GEMMULE_DEVICE bool has_padding() const {
    return options.ab == Format::e2m1 && k % options.slice_k() != 0;
  }
  /// Of a stage; `left`: values of k from its first on.
  GEMMULE_DEVICE bool is_padded(u32 left) const {
    return has_padding() && left < options.stage_k();
  }

  /// One lane. The last tile's must have been multiplied.
  GEMMULE_DEVICE void load_tail(const Tile& tile, u32 parity) const {
    const ptx::TensorMap* sfb_map = maps.sfb;
    if (options.discrete) {
      sfb_map += tile.expert;
      ptx::fence_tensor_map_acquire(sfb_map);
    }
    const i32 atom = static_cast<i32>(k / options.stage_k() * options.stage_atoms());
    ptx::wait(shared.tail_empty, parity ^ 1);
    ptx::arrive_expect_bytes(shared.tail_full, layout.scale_bytes());
    ptx::load_box(shared.tail, maps.sfa, 0, atom, static_cast<i32>(tile.row / 128), shared.tail_full,
                  CachePolicy::normal);
    ptx::load_box(shared.tail.bytes(layout.sfa_bytes), sfb_map, 0, atom,
                  static_cast<i32>(b_scale_row(tile, options.discrete ? 0 : tile.expert)), shared.tail_full,
                  CachePolicy::normal);
  }

  /// A whole warp.
  GEMMULE_DEVICE void correct_tail(u32 parity) const {
    const u32 left = k % options.stage_k();
    const u32 scales = options.slice_scales();
    const u32 block = left / options.slice_k() * scales;
    // The upper half of the instruction's bytes in each word of four scales.
    const u32 half = ((1u << 8 * (scales / 2)) - 1) << 8 * (block % 4 + scales / 2);
    ptx::wait(shared.tail_full, parity);
    clear_words(shared.tail.bytes(block / 4 * 512), half);
#pragma unroll
    for (u32 row = 0; row < b_scale_rows(tile_n); ++row)
      clear_words(shared.tail.bytes(layout.sfa_bytes + (row * options.stage_atoms() + block / 4) * 512),
                  half);
    ptx::fence_async_shared();
    ptx::sync_warp();
  }
  GEMMULE_DEVICE static void clear_words(Shared<u8> atom, u32 bits) {
#pragma unroll 1
    for (u32 word = ptx::lane_index(); word < 128; word += 32) {
      const Shared<u32> at = atom.as<u32>() + word;
      ptx::store(at, ptx::load(at) & ~bits);
    }
  }

  /// Arrives on a barrier of this CTA, or of both in a pair, once what was issued so far is complete.
  GEMMULE_DEVICE static void commit(Barrier barrier) {
    if constexpr (ctas == 1)
      ptx::commit_tensor_work<1>(barrier);
    else
      ptx::commit_tensor_work_multicast<2>(barrier, 3);
  }

  /// Warp 1 of the even CTA.
  GEMMULE_DEVICE void multiply(TensorAddress tensor) const {
    const bool leader = ptx::elect_one();
    RingState tile_at, at;
    AccumulatorState acc;
    u32 set = 0, tail_parity = 0;
    for (;; acc.advance()) {
      const Tile tile = read_tile<ctas>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (leader && has_padding()) load_tail(tile, tail_parity);
      if (leader) ptx::wait(shared.acc_empty + acc.index, acc.parity ^ 1);
      const TensorAddress d = tensor.columns(acc.index * tile_n);
      for (u32 first = 0; first < k; first += options.stage_k()) {
        const u32 left = k - first;
        const bool padded = is_padded(left);
        if (padded) correct_tail(tail_parity);
        if (leader) {
          if (padded && ctas == 2) ptx::wait(shared.tail_ready, tail_parity);
          ptx::wait(shared.full + at.index, at.parity);
          ptx::fence_tensor_after_sync();
          const TensorAddress scales = tensor.columns(2 * tile_n + set * scale_columns());
          if (options.vec != 0)
            copy_stage_scales(padded ? shared.tail : shared.scales.bytes(at.index * layout.scale_bytes()),
                              scales);
          multiply_stage(tile, at.index, (left + options.slice_k() - 1) / options.slice_k(), d, scales,
                         first != 0);
          commit(shared.empty + at.index);
          if (padded) commit(shared.tail_empty);
        }
        set ^= 1;
        at.template advance<stages>();
      }
      tail_parity ^= 1;
      if (leader) commit(shared.acc_full + acc.index);
    }
  }

  /// Warp 1 of the odd CTA, if has_padding().
  GEMMULE_DEVICE void correct_tails() const {
    const bool leader = ptx::elect_one();
    RingState tile_at;
    for (u32 parity = 0;; parity ^= 1) {
      const Tile tile = read_tile<ctas>(shared.tiles, tile_at);
      if (tile.row == end_of_tiles) return;
      if (leader) load_tail(tile, parity);
      correct_tail(parity);
      if (leader) ptx::arrive_remote(shared.tail_ready, 0);
    }
  }

  /// Warp 1.
  GEMMULE_DEVICE void run_multiplier(TensorAddress tensor) const {
    if (rank == 0) return multiply(tensor);
    if constexpr (ctas == 2) {
      if (has_padding()) correct_tails();
    }
  }

  // ---------------------------------------------------------------------------------------------- epilogue's side

  GEMMULE_DEVICE void wait_accumulator(const AccumulatorState& acc) const {
    ptx::wait(shared.acc_full + acc.index, acc.parity);
    ptx::fence_tensor_after_sync();
  }
  /// A whole warp has read its part of the accumulator.
  GEMMULE_DEVICE void release_accumulator(const AccumulatorState& acc) const {
    ptx::fence_tensor_before_sync();
    ptx::sync_warp();
    if (ptx::lane_index() == 0) arrive_at<ctas>(shared.acc_empty + acc.index, 0);
  }
  /// 32 columns of this warp's lanes.
  GEMMULE_DEVICE static TensorAddress chunk(TensorAddress tensor, const AccumulatorState& acc, u32 column) {
    return tensor.columns(acc.index * tile_n + column).lanes(ptx::warp_index() % 4 * 32);
  }

  // ---------------------------------------------------------------------------------------------- set-up

  /// One thread. `readers`: warps per CTA that read tile records, besides warp 1.
  GEMMULE_DEVICE void init_barriers(u32 readers) const {
    const MainloopShared& s = shared;
    for (u32 i = 0; i < stages; ++i) {
      ptx::init(s.full + i, 1);
      ptx::init(s.empty + i, 1);
    }
    for (u32 i = 0; i < 2; ++i) {
      ptx::init(s.acc_full + i, 1);
      ptx::init(s.acc_empty + i, ctas * sm100::epilogue_warps);
    }
    for (u32 i = 0; i < TileRing::size; ++i) {
      ptx::init(s.tiles.full + i, 1);
      ptx::init(s.tiles.empty + i, ctas * readers + (ctas == 2 && has_padding() ? 2 : 1));
    }
    ptx::init(s.tail_full, 1);
    ptx::init(s.tail_ready, 1);
    ptx::init(s.tail_empty, 1);
    ptx::fence_barrier_init();
  }

  /// Cluster barriers are an illegal instruction in a launch without clusters.
  GEMMULE_DEVICE static void sync_all() {
    if constexpr (ctas == 1)
      ptx::sync_cta();
    else
      ptx::sync_cluster();
  }

  /// All threads, after the barriers were initialised by warp 0: tensor memory, whose address all learn.
  GEMMULE_DEVICE static TensorAddress set_up(const MainloopShared& s, u32 warp) {
    if (warp == 1) {
      ptx::allocate_tensor<ctas>(s.tensor, ptx::tensor_columns);
      ptx::relinquish_tensor_allocation<ctas>();
    }
    ptx::fence_tensor_before_sync();
    sync_all();
    ptx::fence_tensor_after_sync();
    return {ptx::load(s.tensor)};
  }

  /// All threads, at the end. No CTA may leave while another can still reach its shared memory.
  GEMMULE_DEVICE static void tear_down(TensorAddress tensor, u32 warp) {
    ptx::fence_tensor_before_sync();
    sync_all();
    ptx::fence_tensor_after_sync();
    if (warp == 1) ptx::free_tensor<ctas>(tensor, ptx::tensor_columns);
  }
};

}  // namespace gemmule::kernels
