// Grouped GEMM + sReLU for sm_100, block-scaled operands: C = alpha A B^T + bias, D = prob relu(C)^2 (or its tanh clamp),
// persistent, with the epilogue of one tile under the main loop of the next. The roles are those of sm100/mainloop.hpp.
//
// Thread t of an epilogue group owns row t of the tile, which is lane t of tensor memory. Per chunk of 32 columns:
// accumulator row from tensor memory, panels of C, D and D_col to shared memory, stored by TMA.
#pragma once

#include "epilogue/srelu_chunk.hpp"
#include "sm100/frame.hpp"
#include "sm100/quantize.hpp"

namespace gemmule::kernels {

template <u32 tile_n, u32 stages, u32 ctas>
struct Sm100Srelu {
  using Loop = Mainloop<tile_n, stages, ctas>;
  static constexpr u32 group_threads = ptx::warpgroup_size;
  static constexpr bool feeds_c = false;

  const ScaledSreluOptions& options;
  const ScaledSreluParams& params;
  const Loop& loop;
  Shared<u8> base;
  const Sm100Layout& layout;

  GEMMULE_DEVICE const ScaledOptions& common() const { return options.common; }

  /// What a thread knows about its row and the tile.
  struct RowState {
    float alpha, prob, norm_const;
    float amax = 0;
    ColumnScales scales;
    i64 bias;  ///< index of the expert's first
  };

  GEMMULE_DEVICE RowState row_state(const Tile& tile, u32 thread) const {
    RowState s;
    s.alpha = ptx::load(params.common.alpha + tile.expert);
    const i64 m = i64{tile.row} + thread;
    s.prob =
        params.common.prob == nullptr ? 1.0f : ptx::load(params.common.prob + m * params.common.prob_stride);
    s.norm_const = common().quantize ? ptx::load(params.common.norm_const) : 1.0f;
    if (common().quantize) s.scales = ColumnScales::of(common(), params.common, tile.expert);
    s.bias = i64{tile.expert} * params.common.n;
    return s;
  }

  /// C (without rounding) and y of a row. Columns past the last are 0 in y, so that no maximum sees them.
  GEMMULE_DEVICE void activate(const ptx::TensorRow<32>& acc, const RowState& s, i64 column, u32 columns,
                               panel::Values& c, panel::Values& y) const {
#pragma unroll
    for (u32 i = 0; i < panel::columns; ++i) {
      const float sum = acc.get(static_cast<int>(i));
      float x = s.alpha * sum;
      if (options.has_bias) {
        const float bias = i < columns ? load_bias(options.bias, params.bias, s.bias + column + i) : 0.0f;
        x = numerics::fma(s.alpha, sum, bias);
      }
      c.at[i] = x;
      y.at[i] = i < columns ? srelu_value(options, x, s.prob) : 0.0f;
    }
  }

  /// By one thread: the panels of a chunk, to C, D and D_col.
  GEMMULE_DEVICE void store_boxes(Shared<u8> output, const Tile& tile, u32 chunk) const {
    const u32 column = tile.column + chunk * panel::columns;
    const i32 x = coordinate(common().d, column);
    const i32 y = static_cast<i32>(tile.row);
    const Shared<u8> d = output.bytes(panel::bytes(common().c));
    ptx::store_box(&params.common.c, coordinate(common().c, column), y, output, CachePolicy::evict_first);
    ptx::store_box(&params.common.d, x, y, d, CachePolicy::evict_first);
    if (common().has_d_col)
      ptx::store_box(&params.common.d_col, x, y, d.bytes(common().quantize ? panel::bytes(common().d) : 0),
                     CachePolicy::evict_first);
    ptx::commit_stores();
  }

  GEMMULE_DEVICE void finish_chunk(const ptx::TensorRow<32>& acc, const Tile& tile, u32 chunk, u32 group,
                                   u32 thread, RowState& s) const {
    const i64 first = i64{tile.column} + chunk * panel::columns;
    const u32 left = tile.columns - chunk * panel::columns;
    const u32 columns = left < panel::columns ? left : panel::columns;
    panel::Values c, y;
    activate(acc, s, first, columns, c, y);
    if (common().has_amax) add_row_maximum(y, s.amax);

    const Shared<u8> output = base.bytes(layout.output + group * layout.epilogue.output);
    const Shared<u8> d = output.bytes(panel::bytes(common().c));
    const Shared<u32> codes = base.bytes(layout.codes).template as<u32>() + group * 256;
    if (thread == 0) ptx::wait_stores_read<0>();
    ptx::named_barrier_sync(1 + group, group_threads);  // the last chunk's output has been read
    panel::store(output, common().c, thread, c);
    if (common().quantize) {
      const Shared<float> multipliers =
          base.bytes(layout.multipliers).template as<float>() + (group * 4 + thread / 32) * 32;
      quantize_columns(common().d, y, s.norm_const, d.bytes(panel::bytes(common().d)), thread, multipliers,
                       codes + thread / 32 * 64);
      const u32 code = quantize_row(common().d, y, s.norm_const, d, thread);
      const i64 atoms = layout::block_atoms(params.common.n, layout::output_block);
      ptx::store(params.common.sfd_row + layout::scale_offset(i64{tile.row} + thread, first / 32, atoms),
                 static_cast<u8>(code));
    } else {
      panel::store(d, common().d, thread, y);
    }
    ptx::fence_async_shared();
    ptx::named_barrier_sync(1 + group, group_threads);
    if (thread == 0) store_boxes(output, tile, chunk);
    if (common().quantize)
      store_column_codes(common(), params.common, s.scales, params.common.n, codes, first, columns, tile.row,
                         thread);
  }

  /// One epilogue group: every other chunk of every tile.
  GEMMULE_DEVICE void compute(u32 group, TensorAddress tensor) const {
    const u32 thread = ptx::thread_index() % group_threads;
    RingState tile_at;
    AccumulatorState acc;
    for (;;) {
      const Tile tile = loop.read_next(tile_at);
      if (tile.row == end_of_tiles) break;
      const u32 chunks = (tile.columns + panel::columns - 1) / panel::columns;
      RowState s = row_state(tile, thread);
      loop.wait_accumulator(acc);
#pragma unroll 1
      for (u32 chunk = group; chunk < chunks; chunk += sm100::epilogue_groups) {
        ptx::TensorRow<32> row;
        ptx::load_tensor(row, Loop::chunk(tensor, acc, chunk * panel::columns));
        ptx::wait_tensor_load(row);
        if (chunk + sm100::epilogue_groups >= chunks) loop.release_accumulator(acc);
        finish_chunk(row, tile, chunk, group, thread, s);
      }
      if (group >= chunks) loop.release_accumulator(acc);
      if (common().quantize && group == 0 && tile.column + tile.columns == params.common.n)
        clear_padding_codes(common(), params.common, s.scales, params.common.n, tile.row, thread);
      if (common().has_amax) merge_maximum(params.common.amax + tile.expert, s.amax);
      acc.advance();
    }
    if (thread == 0) ptx::wait_stores_read<0>();
  }

  GEMMULE_DEVICE static void run(const ScaledSreluOptions& options, u32 width,
                                 const Sm100SreluParams& params) {
    run_sm100<Sm100Srelu, tile_n, stages, ctas>(options, width, params, srelu_epilogue_bytes(options.common));
  }
};

}  // namespace gemmule::kernels
