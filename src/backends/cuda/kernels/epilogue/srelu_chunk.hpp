// C and D of 32 columns of a 128-row tile of grouped_gemm_srelu.
#pragma once

#include "epilogue/quantize_chunk.hpp"
#include "numerics/activation.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

/// What the epilogue of one tile needs besides the accumulators.
struct SreluFactors {
  float alpha;
  float prob[fragment::rows];
  float norm_const;  ///< with quantize
};

/// Boxes of one chunk, each plus box::thread_offset() of its format. d_col is used with quantize; without, D_col receives
/// the box of D.
struct SreluBoxes {
  Shared<u8> c, d, d_col;
};

/// Element `index` of the expert's bias.
GEMMULE_DEVICE float load_bias(Format format, const void* bias, i64 index) {
  if (format == Format::f32) return ptx::load(static_cast<const float*>(bias) + index);
  const u16 code = ptx::load(static_cast<const u16*>(bias) + index);
  return format == Format::bf16 ? numerics::decode_bf16(code) : numerics::decode_fp16(code);
}

/// relu(x)^2 of a chunk, or its clamped form, times prob.
GEMMULE_DEVICE float srelu_value(const ScaledSreluOptions& options, float x, float prob) {
  const float u = options.clamp ? numerics::srelu_clamped(x, options.clamp_scale, options.clamp_scale_rcp)
                                : numerics::srelu(x);
  return u * prob;
}

/// One thread's part of chunk `chunk` of a tile. `accumulators.get(half, element)` counts from the chunk's first element.
/// `bias` points at the expert's bias of the chunk's first column (null without). `columns` of the chunk exist: the rest
/// must not reach a maximum. `amax` is a running maximum (has_amax). With quantize, a barrier at least of the warp comes between
/// two chunks.
template <class Accumulators>
GEMMULE_DEVICE void srelu_chunk(const ScaledSreluOptions& options, const Accumulators& accumulators,
                                const SreluFactors& factors, const void* bias, u32 columns,
                                const SreluBoxes& boxes, const ScaleAtoms& atoms, u32 chunk, u32 thread,
                                Shared<float> scratch, float& amax) {
  const u32 own = fragment::column(thread % 32);
  float offset[fragment::columns];
#pragma unroll
  for (u32 i = 0; i < fragment::columns; ++i)
    offset[i] = options.has_bias && own + i < columns ? load_bias(options.bias, bias, own + i) : 0.0f;
  const bool whole = columns >= fragment::chunk_columns;
  ChunkValues y;
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r) {
    float x[fragment::columns];
#pragma unroll
    for (u32 i = 0; i < fragment::columns; ++i) {
      const float sum = accumulators.get(r / 2, fragment::element(r, i));
      x[i] = options.has_bias ? numerics::fma(factors.alpha, sum, offset[i]) : factors.alpha * sum;
      y.row[r][i] = srelu_value(options, x[i], factors.prob[r]);
    }
    box::store(box::row_address(boxes.c, options.common.c, r), options.common.c, x);
    if (!options.common.quantize)
      box::store(box::row_address(boxes.d, options.common.d, r), options.common.d, y.row[r]);
    if (!whole) {
#pragma unroll
      for (u32 i = 0; i < fragment::columns; ++i) y.row[r][i] = own + i < columns ? y.row[r][i] : 0.0f;
    }
    // Row by row, so that without `quantize` no row outlives its turn.
    if (options.common.has_amax) amax = maximum(y.row[r], amax);
  }
  if (options.common.quantize)
    quantize_chunk(
        options.common.d, y,
        [&] {
          return ScaleTarget{atoms, chunk, thread, scratch, factors.norm_const};
        },
        [&] {
          return QuantizedBoxes{boxes.d, boxes.d_col};
        });
}

}  // namespace gemmule::kernels
