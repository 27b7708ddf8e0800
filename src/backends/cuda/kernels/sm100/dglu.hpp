// Grouped GEMM + dGLU for sm_100: D = gradient(A B^T, C), BF16 or block-scaled operands, persistent, with the epilogue of
// one tile under the main loop of the next. The roles are those of sm100/mainloop.hpp; warp 3 brings C.
//
// Thread t of an epilogue group owns row t of the tile, which is lane t of tensor memory. Per chunk of 32 columns of the
// product: accumulator row from tensor memory, gates and inputs from two panels of C, D to two panels, stored by TMA.
#pragma once

#include "sm100/frame.hpp"
#include "sm100/quantize.hpp"

namespace gemmule::kernels {

template <u32 tile_n, u32 stages, u32 ctas>
struct Sm100Dglu {
  using Loop = Mainloop<tile_n, stages, ctas>;
  static constexpr u32 group_threads = ptx::warpgroup_size;
  static constexpr bool feeds_c = true;

  const ScaledDgluOptions& options;
  const ScaledDgluParams& params;
  const Loop& loop;
  Shared<u8> base;
  const Sm100Layout& layout;

  GEMMULE_DEVICE const ScaledOptions& common() const { return options.common; }
  GEMMULE_DEVICE Barrier c_full() const {
    return base.bytes(layout.input_words).template as<ptx::Mbarrier>();
  }
  GEMMULE_DEVICE Barrier c_empty() const { return c_full() + sm100::epilogue_groups; }
  GEMMULE_DEVICE Shared<u8> c_buffer(u32 group) const {
    return base.bytes(layout.input + group * layout.epilogue.input);
  }

  /// Warp 3: gates and inputs of every chunk, by one lane.
  GEMMULE_DEVICE void feed_c() const {
    const bool leader = ptx::elect_one();
    if (leader) {
      ptx::prefetch(&params.common.c);
      ptx::prefetch(&params.common.d);
    }
    RingState tile_at;
    u32 parity[sm100::epilogue_groups] = {0, 0};
    const u32 panel_bytes = panel::bytes(common().c);
    for (;;) {
      const Tile tile = loop.read_next(tile_at);
      if (tile.row == end_of_tiles) return;
      if (!leader) continue;
      for (u32 chunk = 0; chunk * panel::columns < tile.columns; chunk += sm100::epilogue_groups) {
#pragma unroll
        for (u32 group = 0; group < sm100::epilogue_groups; ++group) {
          const u32 column = (chunk + group) * panel::columns;
          if (column >= tile.columns) break;
          ptx::wait(c_empty() + group, parity[group] ^ 1);
          parity[group] ^= 1;
          const Barrier full = c_full() + group;
          ptx::arrive_expect_bytes(full, 2 * panel_bytes);
          const i32 x = static_cast<i32>(2 * (tile.column + column));
          const i32 y = static_cast<i32>(tile.row);
          const Shared<u8> to = c_buffer(group);
          ptx::load_box(to, &params.common.c, x, y, full, CachePolicy::evict_first);
          ptx::load_box(to.bytes(panel_bytes), &params.common.c, x + i32{panel::columns}, y, full,
                        CachePolicy::evict_first);
        }
      }
    }
  }

  // ---------------------------------------------------------------------------------------------- epilogue

  /// What a thread knows about its row and the tile.
  struct RowState {
    float alpha_squared, beta, prob, norm_const;
    float dprob = 0;
    float amax_gate = 0, amax_input = 0;
    ColumnScales scales;
  };

  GEMMULE_DEVICE RowState row_state(const Tile& tile, u32 thread) const {
    RowState s;
    const float alpha = ptx::load(params.common.alpha + tile.expert);
    s.alpha_squared = alpha * alpha;
    s.beta = ptx::load(params.beta + tile.expert);
    const i64 m = i64{tile.row} + thread;
    s.prob =
        params.common.prob == nullptr ? 1.0f : ptx::load(params.common.prob + m * params.common.prob_stride);
    s.norm_const = common().quantize ? ptx::load(params.common.norm_const) : 1.0f;
    if (common().quantize) s.scales = ColumnScales::of(common(), params.common, tile.expert);
    return s;
  }

  GEMMULE_DEVICE numerics::Gradient gradient(float r, float gate, float input, float prob) const {
    if (options.activation == ScaledActivation::dgeglu)
      return numerics::dgeglu(r, gate, input, prob, options.geglu);
    if (options.activation == ScaledActivation::dsituglu)
      return numerics::dsituglu(r, gate, input, prob, options.situ);
    return numerics::dswiglu(r, gate, input, prob);
  }

  GEMMULE_DEVICE float post(float d) const {
    if (options.post == PostOperation::relu) return numerics::relu(d);
    return options.post == PostOperation::srelu ? numerics::srelu(d) : d;
  }

  /// Gates and inputs become their gradients.
  GEMMULE_DEVICE void differentiate(const ptx::TensorRow<32>& acc, RowState& s, panel::Values& gate,
                                    panel::Values& input) const {
#pragma unroll
    for (u32 i = 0; i < panel::columns; ++i) {
      const numerics::Gradient g = gradient(acc.get(static_cast<int>(i)) * s.alpha_squared,
                                            gate.at[i] * s.beta, input.at[i] * s.beta, s.prob);
      gate.at[i] = g.gate;
      input.at[i] = g.input;
      if (options.has_dprob) s.dprob = g.dprob.added_to(s.dprob);
    }
  }

  /// Sums over the warp's rows of 64 columns of D.
  GEMMULE_DEVICE void sum_columns(const panel::Values& gate, const panel::Values& input,
                                  Shared<float> sums) const {
    const u32 lane = ptx::lane_index();
    ptx::store(sums + lane, join_lanes(gate, JoinSum{}));
    ptx::store(sums + (32 + lane), join_lanes(input, JoinSum{}));
  }

  /// D of one panel, and D_col; `index` 0 gates, 1 inputs. Returns the row's scale code.
  GEMMULE_DEVICE u32 store_panel(const panel::Values& v, const RowState& s, Shared<u8> output, u32 index,
                                 u32 thread, u32 warp, Shared<u32> codes) const {
    const u32 bytes = panel::bytes(common().d);
    if (!common().quantize) {
      panel::store(output.bytes(index * bytes), common().d, thread, v);
      return 0;
    }
    const Shared<float> multipliers = base.bytes(layout.multipliers).template as<float>() + warp * 32;
    quantize_columns(common().d, v, s.norm_const, output.bytes((2 + index) * bytes), thread, multipliers,
                     codes + (warp % 4 * 64 + index * 32));
    return quantize_row(common().d, v, s.norm_const, output.bytes(index * bytes), thread);
  }

  /// By one thread: the panels of a chunk, to D and D_col.
  GEMMULE_DEVICE void store_boxes(Shared<u8> output, const Tile& tile, u32 chunk) const {
    const u32 bytes = panel::bytes(common().d);
    const i32 x = static_cast<i32>(2 * (tile.column + chunk * panel::columns));
    const i32 y = static_cast<i32>(tile.row);
#pragma unroll
    for (u32 index = 0; index < 2; ++index) {
      const i32 column = x + static_cast<i32>(index * panel::columns);
      ptx::store_box(&params.common.d, column, y, output.bytes(index * bytes), CachePolicy::evict_first);
      if (common().has_d_col)
        ptx::store_box(&params.common.d_col, column, y,
                       output.bytes(((common().quantize ? 2 : 0) + index) * bytes), CachePolicy::evict_first);
    }
    ptx::commit_stores();
  }

  /// Adds the four warps' sums of one of the chunk's 64 columns.
  GEMMULE_DEVICE void store_column_sum(Shared<float> sums, const Tile& tile, u32 chunk, u32 thread) const {
    float sum = ptx::load(sums + thread);
#pragma unroll
    for (u32 warp = 1; warp < 4; ++warp) sum += ptx::load(sums + (warp * 64 + thread));
    const i64 row_tile = tile.row / sm100::tile_rows;
    const u32 column = 2 * (tile.column + chunk * panel::columns) + thread;
    ptx::store(params.column_sums + (row_tile * (2 * i64{params.common.n}) + column), sum);
  }

  GEMMULE_DEVICE void finish_chunk(const ptx::TensorRow<32>& acc, const Tile& tile, u32 chunk, u32 c_parity,
                                   u32 group, u32 thread, RowState& s) const {
    const u32 warp = group * 4 + thread / 32;
    panel::Values gate, input;
    ptx::wait(c_full() + group, c_parity);
    panel::load(c_buffer(group), common().c, thread, gate);
    panel::load(c_buffer(group).bytes(panel::bytes(common().c)), common().c, thread, input);
    ptx::fence_async_shared();  // an arrival may overtake loads; the next copy writes what they read
    ptx::sync_warp();
    if (ptx::lane_index() == 0) ptx::arrive(c_empty() + group);
    differentiate(acc, s, gate, input);

    const Shared<u8> output = base.bytes(layout.output + group * layout.epilogue.output);
    const Shared<float> sums = base.bytes(layout.sums).template as<float>() + group * 256;
    const Shared<u32> codes = base.bytes(layout.codes).template as<u32>() + group * 256;
    if (thread == 0) ptx::wait_stores_read<0>();
    ptx::named_barrier_sync(1 + group, group_threads);  // the last chunk's output has been read
    if (options.has_dbias) sum_columns(gate, input, sums + thread / 32 * 64);
    if (options.post != PostOperation::none) {
#pragma unroll
      for (u32 i = 0; i < panel::columns; ++i) {
        gate.at[i] = post(gate.at[i]);
        input.at[i] = post(input.at[i]);
      }
    }
    if (common().has_amax) {
      add_row_maximum(gate, s.amax_gate);
      add_row_maximum(input, s.amax_input);
    }
    const u32 gate_code = store_panel(gate, s, output, 0, thread, warp, codes);
    const u32 input_code = store_panel(input, s, output, 1, thread, warp, codes);
    const i64 width = 2 * i64{params.common.n};
    const i64 first = 2 * (i64{tile.column} + chunk * panel::columns);
    if (common().quantize) {
      const i64 offset =
          layout::scale_offset(i64{tile.row} + thread, first / 32, layout::block_atoms(width, 32));
      ptx::store(reinterpret_cast<u16*>(params.common.sfd_row + offset),
                 static_cast<u16>(gate_code | input_code << 8));
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(1 + group, group_threads);
    if (thread == 0) store_boxes(output, tile, chunk);
    if (options.has_dbias && thread < 64) store_column_sum(sums, tile, chunk, thread);
    if (common().quantize)
      store_column_codes(common(), params.common, s.scales, width, codes, first, 64, tile.row, thread);
  }

  GEMMULE_DEVICE void finish_tile(const Tile& tile, u32 group, u32 thread, const RowState& s) const {
    const i64 width = 2 * i64{params.common.n};
    if (common().quantize && group == 0 && tile.column + tile.columns == params.common.n)
      clear_padding_codes(common(), params.common, s.scales, width, tile.row, thread);
    if (common().has_amax) {
      merge_maximum(params.common.amax + 2 * tile.expert, s.amax_gate);
      merge_maximum(params.common.amax + (2 * tile.expert + 1), s.amax_input);
    }
    if (!options.has_dprob) return;
    const i64 m = i64{tile.row} + thread;
    if (options.deterministic)
      ptx::store(params.dprob + ((2 * (tile.column / tile_n) + group) * params.common.m + m), s.dprob);
    else
      ptx::reduce_add(params.dprob + m, s.dprob);
  }

  /// One epilogue group: every other chunk of every tile.
  GEMMULE_DEVICE void compute(u32 group, TensorAddress tensor) const {
    const u32 thread = ptx::thread_index() % group_threads;
    RingState tile_at;
    AccumulatorState acc;
    u32 c_parity = 0;
    for (;;) {
      const Tile tile = loop.read_next(tile_at);
      if (tile.row == end_of_tiles) break;
      const u32 chunks = tile.columns / panel::columns;
      RowState s = row_state(tile, thread);
      loop.wait_accumulator(acc);
#pragma unroll 1
      for (u32 chunk = group; chunk < chunks; chunk += sm100::epilogue_groups) {
        ptx::TensorRow<32> row;
        ptx::load_tensor(row, Loop::chunk(tensor, acc, chunk * panel::columns));
        ptx::wait_tensor_load(row);
        if (chunk + sm100::epilogue_groups >= chunks) loop.release_accumulator(acc);
        finish_chunk(row, tile, chunk, c_parity, group, thread, s);
        c_parity ^= 1;
      }
      if (group >= chunks) loop.release_accumulator(acc);
      finish_tile(tile, group, thread, s);
      acc.advance();
    }
    if (thread == 0) ptx::wait_stores_read<0>();
  }

  // ---------------------------------------------------------------------------------------------- kernel

  GEMMULE_DEVICE void init_input_barriers() const {
    for (u32 i = 0; i < sm100::epilogue_groups; ++i) {
      ptx::init(c_full() + i, 1);
      ptx::init(c_empty() + i, 4);
    }
  }

  GEMMULE_DEVICE static void run(const ScaledDgluOptions& options, u32 width, const Sm100DgluParams& params) {
    run_sm100<Sm100Dglu, tile_n, stages, ctas>(options, width, params, dglu_epilogue_bytes(options.common));
  }
};

}  // namespace gemmule::kernels
