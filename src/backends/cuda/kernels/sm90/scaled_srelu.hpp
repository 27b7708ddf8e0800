// Block-scaled grouped GEMM + sReLU for sm_90a: C = alpha A B^T + bias, D = prob relu(C)^2 (or its clamped form), D and D_col
// quantized where wanted. The main loop is scaled_mainloop.hpp; this is what happens to its sums.
//
// A warpgroup's epilogue walks its 128 x 128 tile in chunks of 32 columns: compute, write the boxes of C, D and D_col to
// shared memory, fence, barrier of the warpgroup, TMA stores. With two buffers the stores of one chunk run under the next;
// the barrier of a chunk also says that the buffer of the chunk before has been read.
#pragma once

#include "epilogue/srelu_chunk.hpp"
#include "sm90/scaled_frame.hpp"

namespace gemmule::kernels {

struct ScaledSrelu {
  static constexpr bool feeds_c = false;

  const ScaledSreluOptions& options;
  const ScaledSreluParams& params;
  const ScaledLayout& layout;
  Shared<u8> base;
  Barrier first_barrier;
  u32 thread;

  GEMMULE_DEVICE static void init_barriers(const ScaledLayout&, Barrier) {}

  GEMMULE_DEVICE SreluFactors factors(const RowTile& tile, u32 first_row) const {
    const ScaledParams& common = params.common;
    SreluFactors f{};
    f.alpha = ptx::load(common.alpha + tile.expert);
#pragma unroll
    for (u32 r = 0; r < fragment::rows; ++r) {
      const i64 m = first_row + fragment::row(thread, r);
      f.prob[r] = common.prob == nullptr ? 1.0f : ptx::load(common.prob + m * common.prob_stride);
    }
    if (options.common.quantize) f.norm_const = ptx::load(common.norm_const);
    return f;
  }

  /// Into alpha; into the sums where alpha would overflow.
  GEMMULE_DEVICE void apply_result_factor(ScaledAccumulators& sums, SreluFactors& f) const {
    const float factor = expand::result_factor(options.common);
    if (factor == 1) return;
    const bool apart = expand::overflows(f.alpha, factor);
    // Known to be uniform, lest the compiler take the next main loop for divergent.
    if (ptx::shuffle(apart ? 1u : 0u, 0) != 0) {
      sums[0].scale(factor);
      sums[1].scale(factor);
    } else {
      f.alpha *= factor;
    }
  }

  GEMMULE_DEVICE void start() const {}
  GEMMULE_DEVICE void begin(const RowTile&, u32) const {}

  GEMMULE_DEVICE void epilogue(ScaledAccumulators& sums, const RowTile& tile, u32 group) {
    // Anew: what follows from it occupies no registers before.
    thread = ptx::reread_thread_index() % ptx::warpgroup_size;
    const ScaledOptions& common = options.common;
    const u32 row = tile.row + group * 128;
    SreluFactors f = factors(tile, row);
    apply_result_factor(sums, f);
    const Shared<u8> small = base.bytes(group * layout.small_stride);
    const ScaleAtoms atoms{small.bytes(layout.atoms), small.bytes(layout.atoms + scaled::atom_bytes)};
    float amax = 0;
    if (layout.chunk_buffers == 2) await_stores(group);
    u32 chunk = 0;
    for (;;) {
      finish_chunk({sums}, tile, f, group, row, chunk, atoms, amax);
      chunk += 1;
      // Known to be uniform, so that the next main loop is.
      if (chunk * fragment::chunk_columns >= ptx::shuffle(tile.columns, 0)) break;
      bring_down(sums, chunk);
    }
    if (common.quantize)
      for (; chunk < scaled_chunks; ++chunk) clear_scales(atoms, chunk, thread);
    if (common.has_amax) merge_maximum(params.common.amax + tile.expert, amax);
    if (!common.quantize) return;
    ptx::named_barrier_sync(1 + group, ptx::warpgroup_size);
    // The next tile overwrites the atoms after another barrier (await_stores).
    if (thread < 64)
      store_scales(common, params.common, atoms, tile.expert, row, tile.column, params.common.n, thread);
  }

  GEMMULE_DEVICE void finish_chunk(const ChunkAccumulators& sums, const RowTile& tile, const SreluFactors& f,
                                   u32 group, u32 row, u32 chunk, const ScaleAtoms& atoms, float& amax) {
    const ScaledOptions& common = options.common;
    const u32 buffer = layout.chunk_buffers == 2 ? chunk % 2 : 0;
    const Shared<u8> own = base.bytes(group * layout.box_stride);
    const Shared<u8> c = own.bytes(layout.c + buffer * layout.c_chunk);
    const Shared<u8> d = own.bytes(layout.d + buffer * layout.d_chunk);
    const Shared<u8> d_col = own.bytes(layout.d_col + buffer * layout.d_chunk);
    const u32 column = tile.column + chunk * fragment::chunk_columns;
    if (layout.chunk_buffers == 1) await_stores(group);
    const u32 in_d = box::thread_offset(common.d, thread);
    const SreluBoxes boxes{c.bytes(box::thread_offset(common.c, thread)), d.bytes(in_d), d_col.bytes(in_d)};
    const void* bias = nullptr;
    if (options.has_bias)
      bias = static_cast<const u8*>(params.bias) +
             (i64{tile.expert} * params.common.n + column) * bytes_of(options.bias);
    const Shared<float> scratch = base.bytes(layout.scratch + group * layout.small_stride).as<float>() +
                                  thread / 32 * scaled::quantize_scratch;
    srelu_chunk(options, sums, f, bias, tile.columns - chunk * fragment::chunk_columns, boxes, atoms, chunk,
                thread, scratch, amax);
    ptx::fence_async_shared();
    if (layout.chunk_buffers == 2 && thread == 0) ptx::wait_stores_read<0>();
    ptx::named_barrier_sync(1 + group, ptx::warpgroup_size);
    if (thread == 0) {
      store(params.common.c, common.c, column, row, c);
      store(params.common.d, common.d, column, row, d);
      if (common.has_d_col) store(params.common.d_col, common.d, column, row, common.quantize ? d_col : d);
      ptx::commit_stores();
    }
  }

  /// The warpgroup's boxes have been read.
  GEMMULE_DEVICE void await_stores(u32 group) const {
    if (thread == 0) ptx::wait_stores_read<0>();
    ptx::named_barrier_sync(1 + group, ptx::warpgroup_size);
  }

  /// A box of a matrix whose map counts elements, of e2m1 bytes.
  GEMMULE_DEVICE static void store(const ptx::TensorMap& map, Format format, u32 column, u32 row,
                                   Shared<u8> from) {
    ptx::store_box(&map, coordinate(format, column), static_cast<i32>(row), from, CachePolicy::evict_first);
  }

  /// The CTA's shared memory must outlive its stores.
  GEMMULE_DEVICE void finish(u32) const {
    if (thread == 0) ptx::wait_stores_read<0>();
  }

  GEMMULE_DEVICE static void run(const ScaledSreluOptions& options, const ScaledSreluParams& params) {
    const ScaledLayout layout = scaled_layout(options.common);
    run_scaled<ScaledSrelu>(options, params, layout);
  }
};

}  // namespace gemmule::kernels
