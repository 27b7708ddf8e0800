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
//
// In a cluster of `width` tiles side by side the CTAs that need the same rows of A load 1 / width of them each, into the
// shared memory of all. So a buffer of the ring is free when every tile of the cluster has been multiplied with it: each
// tells all CTAs. (A tile cannot be a round ahead: its A comes from all CTAs, each of which waited for all tiles.) Tiles
// beyond N take part in that, and in nothing else.
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
using ptx::u16;

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
  Barrier full, empty;  ///< [stages]; full: of the even CTA in a pair; empty: counts the tiles of the cluster
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
  static constexpr u32 ctas = ctas_;  ///< that multiply together

  static_assert(ctas == 1 || ctas == 2, "tcgen05 multiplies in one CTA or a pair");
  static_assert(TileRing::size == sm100::tile_ring);
  static_assert(tile_n % 64 == 0 && tile_n >= 64 && tile_n <= 256,
                "a pair's N is a multiple of 32 up to 256; a tile starts at half an atom of scales");

  const OperandOptions& options;
  OperandMaps maps;
  u32 n, k;
  MainloopShared shared;
  OperandLayout layout;
  ClusterPlace place;

  // ---------------------------------------------------------------------------------------------- tiles

  GEMMULE_DEVICE bool in_cluster() const { return place.size() > 1; }
  GEMMULE_DEVICE bool has_columns(const Tile& tile) const { return place.width == 1 || tile.columns != 0; }

  /// A whole warp: the next record.
  GEMMULE_DEVICE Tile read(RingState& at) const {
    return in_cluster() ? read_tile<2>(shared.tiles, at) : read_tile<1>(shared.tiles, at);
  }
  /// The next that has columns, or the end.
  GEMMULE_DEVICE Tile read_next(RingState& at) const {
    for (;;) {
      const Tile tile = read(at);
      if (has_columns(tile) || tile.row == end_of_tiles) return tile;
    }
  }

  // ---------------------------------------------------------------------------------------------- operands

  /// Into this CTA.
  GEMMULE_DEVICE void load(Shared<u8> to, const ptx::TensorMap* map, Barrier full, auto... at) const {
    if constexpr (ctas == 1)
      ptx::load_box(to, map, static_cast<i32>(at)..., full, CachePolicy::normal);
    else
      ptx::load_box_pair(to, map, static_cast<i32>(at)..., full, place.leader(), CachePolicy::normal);
  }
  /// Into those of the same rows.
  GEMMULE_DEVICE void load_for_rows(Shared<u8> to, const ptx::TensorMap* map, Barrier full,
                                    auto... at) const {
    const u16 targets = static_cast<u16>(place.own_rows());
    if (place.width == 1)
      load(to, map, full, at...);
    else if constexpr (ctas == 1)
      ptx::load_box_multicast(to, map, static_cast<i32>(at)..., full, targets, CachePolicy::normal);
    else
      ptx::load_box_pair_multicast(to, map, static_cast<i32>(at)..., full, place.leader(), targets,
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
      const Tile tile = read(tile_at);
      if (tile.row == end_of_tiles) break;
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
        const bool scales = options.vec != 0 && !is_padded(k - first);
        if (place.part() == 0) ptx::arrive_expect_bytes(full, ctas * loaded_bytes(tile, scales));
        load_a(tile, first, at.index, full);
        if (has_columns(tile)) load_b(b_map, tile, first, slab, at.index, full);
        if (scales) {
          const u32 atom = first / options.stage_k() * options.stage_atoms();
          const Shared<u8> to = shared.scales.bytes(at.index * layout.scale_bytes());
          const ScaleSlice slice = sfa_slice(layout, place.width, place.tile());
          load_for_rows(to.bytes(slice.offset), maps.sfa, full, slice.pair, atom + slice.atom,
                        tile.row / 128);
          if (has_columns(tile))
            load(to.bytes(layout.sfa_bytes), sfb_map, full, 0, atom, b_scale_row(tile, slab));
        }
        at.template advance<stages>();
      }
    }
    // Other CTAs arrive here until they have multiplied the last tile.
    if (leader && in_cluster()) {
      for (u32 i = 0; i < stages; ++i) {
        ptx::wait(shared.empty + at.index, at.parity ^ 1);
        at.template advance<stages>();
      }
    }
  }

  /// Of a stage, into this CTA, by all.
  GEMMULE_DEVICE u32 loaded_bytes(const Tile& tile, bool scales) const {
    const u32 a = layout.a_bytes + (scales ? layout.sfa_bytes : 0);
    return has_columns(tile) ? a + layout.b_bytes + (scales ? layout.sfb_bytes : 0) : a;
  }

  GEMMULE_DEVICE void load_a(const Tile& tile, u32 first, u32 stage, Barrier full) const {
    const u32 slice = place.tile() * a_slice_rows(place.width);
    load_for_rows(shared.a.bytes(stage * layout.a_bytes + slice * 128), maps.a, full,
                  first / options.values_per_element(), tile.row + slice);
  }

  GEMMULE_DEVICE void load_b(const ptx::TensorMap* map, const Tile& tile, u32 first, u32 slab, u32 stage,
                             Barrier full) const {
    const Shared<u8> b = shared.b.bytes(stage * layout.b_bytes);
    const u32 column = tile.column + (ctas == 1 ? 0 : place.part() * (width(tile) / ctas));
    if (!options.b_n_major) return load(b, map, full, first / options.values_per_element(), column, slab);
    const u32 span = options.span_columns();
    for (u32 i = 0; i * span < tile_n / ctas; ++i)
      load(b.bytes(i * options.stage_k() * 128), map, full, column + i * span, first, slab);
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
    const u32 atom = k / options.stage_k() * options.stage_atoms();
    ptx::wait(shared.tail_empty, parity ^ 1);
    ptx::arrive_expect_bytes(shared.tail_full, layout.scale_bytes());
    for (u32 i = 0; i < place.width; ++i) {
      const ScaleSlice slice = sfa_slice(layout, place.width, i);
      ptx::load_box(shared.tail.bytes(slice.offset), maps.sfa, static_cast<i32>(slice.pair),
                    static_cast<i32>(atom + slice.atom), static_cast<i32>(tile.row / 128), shared.tail_full,
                    CachePolicy::normal);
    }
    ptx::load_box(shared.tail.bytes(layout.sfa_bytes), sfb_map, 0, static_cast<i32>(atom),
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

  /// Arrives on a barrier of some CTAs (a mask) once what was issued so far is complete.
  GEMMULE_DEVICE void commit(Barrier barrier, u32 to) const {
    if (in_cluster())
      ptx::commit_tensor_work_multicast<ctas>(barrier, static_cast<u16>(to));
    else
      ptx::commit_tensor_work<ctas>(barrier);
  }

  /// One lane: a tile beyond N lets the others have their stages back.
  GEMMULE_DEVICE void pass_stages(RingState& at) const {
    for (u32 first = 0; first < k; first += options.stage_k()) {
      ptx::wait(shared.full + at.index, at.parity);
      for (u32 cta = 0; cta < place.size(); ++cta) ptx::arrive_remote(shared.empty + at.index, cta);
      at.template advance<stages>();
    }
  }

  /// Warp 1 of the even CTA.
  GEMMULE_DEVICE void multiply(TensorAddress tensor) const {
    const bool leader = ptx::elect_one();
    RingState tile_at, at;
    AccumulatorState acc;
    u32 set = 0, tail_parity = 0;
    for (;;) {
      const Tile tile = read(tile_at);
      if (tile.row == end_of_tiles) break;
      if (!has_columns(tile)) {
        if (leader) pass_stages(at);
        continue;
      }
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
          commit(shared.empty + at.index, place.all());
          if (padded) commit(shared.tail_empty, place.own_tile());
        }
        set ^= 1;
        at.template advance<stages>();
      }
      tail_parity ^= 1;
      if (leader) commit(shared.acc_full + acc.index, place.own_tile());
      acc.advance();
    }
    if (leader) finish_tails(tail_parity);
  }

  /// A commit may arrive after the multiplications it waits for were seen to be over.
  GEMMULE_DEVICE void finish_tails(u32 parity) const {
    if (ctas == 2 && has_padding()) ptx::wait(shared.tail_empty, parity ^ 1);
  }

  /// Warp 1 of the odd CTA, if has_padding().
  GEMMULE_DEVICE void correct_tails() const {
    const bool leader = ptx::elect_one();
    RingState tile_at;
    for (u32 parity = 0;; parity ^= 1) {
      const Tile tile = read_next(tile_at);
      if (tile.row == end_of_tiles) {
        if (leader) finish_tails(parity);
        return;
      }
      if (leader) load_tail(tile, parity);
      correct_tail(parity);
      if (leader) ptx::arrive_remote(shared.tail_ready, place.leader());
    }
  }

  /// Warp 1.
  GEMMULE_DEVICE void run_multiplier(TensorAddress tensor) const {
    if (place.part() == 0) return multiply(tensor);
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
    if (ptx::lane_index() == 0) arrive_at<ctas>(shared.acc_empty + acc.index, place.leader());
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
      ptx::init(s.empty + i, place.width);
    }
    for (u32 i = 0; i < 2; ++i) {
      ptx::init(s.acc_full + i, 1);
      ptx::init(s.acc_empty + i, ctas * sm100::epilogue_warps);
    }
    for (u32 i = 0; i < TileRing::size; ++i) {
      ptx::init(s.tiles.full + i, 1);
      ptx::init(s.tiles.empty + i, place.width * (ctas * readers + (ctas == 2 && has_padding() ? 2 : 1)));
    }
    ptx::init(s.tail_full, 1);
    ptx::init(s.tail_ready, 1);
    ptx::init(s.tail_empty, 1);
    ptx::fence_barrier_init();
  }

  // Cluster barriers are an illegal instruction in a launch without clusters.

  /// All threads, after the barriers were initialised by warp 0: tensor memory, whose address all learn.
  GEMMULE_DEVICE TensorAddress set_up(u32 warp) const {
    if (warp == 1) {
      ptx::allocate_tensor<ctas>(shared.tensor, ptx::tensor_columns);
      ptx::relinquish_tensor_allocation<ctas>();
    }
    ptx::fence_tensor_before_sync();
    if (in_cluster())
      ptx::sync_cluster();
    else
      ptx::sync_cta();
    ptx::fence_tensor_after_sync();
    return {ptx::load(shared.tensor)};
  }

  /// All threads, at the end. No CTA may leave while another can still reach its shared memory.
  GEMMULE_DEVICE void tear_down(TensorAddress tensor, u32 warp) const {
    ptx::fence_tensor_before_sync();
    if (in_cluster())
      ptx::sync_cluster();
    else
      ptx::sync_cta();
    ptx::fence_tensor_after_sync();
    if (warp == 1) ptx::free_tensor<ctas>(tensor, ptx::tensor_columns);
  }
};

}  // namespace gemmule::kernels
