// The gradient of 32 compact columns of a 128-row tile of grouped_gemm_dglu with block-scaled operands: C from shared
// memory, D to shared memory. A chunk is two boxes of C and of D (and D_col): the gate's 32 columns, then the input's.
#pragma once

#include "epilogue/quantize_chunk.hpp"
#include "numerics/activation.hpp"

namespace gemmule::kernels {

/// What turns the sums of a chunk and C into gradients.
struct ScaledDgluFactors {
  float alpha_squared;
  float beta;
  Shared<float> prob;  ///< of the warp's 32 rows
};

/// Where D goes. Gate boxes plus box::thread_offset() of D's format; the input's box follows each of them. The rest is used
/// with quantize; without, D_col receives the boxes of D.
struct ScaledDgluTarget {
  u32 thread;
  Shared<u8> d, d_col;
  ScaleAtoms atoms;  ///< of the chunk's blocks
  Shared<float> scratch;
  float norm_const;
};

/// What a thread sums up over the chunks of a tile, in shared memory: registers are scarce.
struct ScaledDgluSums {
  Shared<float> dprob;    ///< of row scaled_line() of the warp
  Shared<float> amax[2];  ///< |gate|, |input|
};

GEMMULE_DEVICE numerics::Gradient gradient(const ScaledDgluOptions& options, float r, float gate, float input,
                                           float prob) {
  if (options.activation == ScaledActivation::dgeglu)
    return numerics::dgeglu(r, gate, input, prob, options.geglu);
  if (options.activation == ScaledActivation::dsituglu)
    return numerics::dsituglu(r, gate, input, prob, options.situ);
  return numerics::dswiglu(r, gate, input, prob);
}

GEMMULE_DEVICE float post_operation(PostOperation operation, float d) {
  if (operation == PostOperation::relu) return numerics::relu(d);
  if (operation == PostOperation::srelu) return numerics::srelu(d);
  return d;
}

/// One row of a chunk: gate and input of D before the post operation, and the terms of dprob added up.
template <class Accumulators>
GEMMULE_DEVICE void gradient_row(const ScaledDgluOptions& options, const Accumulators& accumulators,
                                 const ScaledDgluFactors& factors, const box::Raw& raw_gate,
                                 const box::Raw& raw_input, float prob, u32 r, float (&gate)[8],
                                 float (&input)[8], float& dprob) {
  const auto one = [&](u32 i, float c_gate, float c_input) {
    const float sum = accumulators.get(r / 2, fragment::element(r, i)) * factors.alpha_squared;
    const numerics::Gradient d = gradient(options, sum, c_gate * factors.beta, c_input * factors.beta, prob);
    gate[i] = d.gate;
    input[i] = d.input;
    if (options.has_dprob) dprob = d.dprob.added_to(dprob);
  };
#pragma unroll
  for (u32 pair = 0; pair < fragment::columns / 2; ++pair) {
    const F32x2 c_gate = box::decode(raw_gate, options.common.c, pair);
    const F32x2 c_input = box::decode(raw_input, options.common.c, pair);
    one(2 * pair, c_gate.x, c_input.x);
    one(2 * pair + 1, c_gate.y, c_input.y);
  }
}

/// Sums over a warp's 32 rows of one gate or input column per lane: that of scaled_line().
GEMMULE_DEVICE void store_column_sums(Shared<float> to, const ChunkValues& y) {
  float sum[fragment::columns];
#pragma unroll
  for (u32 i = 0; i < fragment::columns; ++i) {
    sum[i] = y.row[0][i];
#pragma unroll
    for (u32 r = 1; r < fragment::rows; ++r) sum[i] += y.row[r][i];
  }
  ptx::store(to + scaled_line(ptx::lane_index()), join_octet(sum, JoinSum{}));
}

GEMMULE_DEVICE void apply(PostOperation operation, ChunkValues& y) {
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r)
#pragma unroll
    for (u32 i = 0; i < fragment::columns; ++i) y.row[r][i] = post_operation(operation, y.row[r][i]);
}

/// One thread's part of chunk `chunk` of a tile. `accumulators.get(half, element)` counts from the chunk's first element. `from`
/// is the gate box of C plus box::thread_offset() of its format; D may overwrite C if both formats are of the same size.
/// `column_sums` points at this warp's 64 sums (has_dbias): gates, then inputs. `midway()` is called between the rows;
/// `target()` before D is written, late, so that what it computes occupies no registers meanwhile.
template <class Accumulators, class Midway, class Target>
GEMMULE_DEVICE void scaled_dglu_chunk(const ScaledDgluOptions& options, const Accumulators& accumulators,
                                      const ScaledDgluFactors& factors, Shared<u8> from, u32 chunk, u32 lane,
                                      Shared<float> column_sums, const ScaledDgluSums& sums,
                                      const Midway& midway, const Target& target) {
  const bool by_row = !options.common.quantize && options.post == PostOperation::none;
  ScaledDgluTarget to;
  if (by_row) to = target();
  const Format c = options.common.c, d = options.common.d;
  const u32 c_box = scaled::box_bytes(c), d_box = scaled::box_bytes(d);
  const Shared<float> prob = factors.prob + lane / 4;
  float dprob[fragment::rows] = {0, 0, 0, 0};
  ChunkValues gate, input;
  // A row of C is loaded ahead, so that its latency is not idle time; of f32 there are not the registers.
  const bool ahead = by_row && c != Format::f32;
  box::Raw raw_gate = box::load_raw(from, c);
  box::Raw raw_input = box::load_raw(from.bytes(c_box), c);
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r) {
    if (r == fragment::rows / 2) midway();
    const u32 loaded = ahead ? r + 1 : r;
    const box::Raw this_gate = raw_gate, this_input = raw_input;
    if (loaded < fragment::rows && loaded > 0) {
      const Shared<u8> next = box::row_address(from, c, loaded);
      raw_gate = box::load_raw(next, c);
      raw_input = box::load_raw(next.bytes(c_box), c);
    }
    gradient_row(options, accumulators, factors, ahead ? this_gate : raw_gate, ahead ? this_input : raw_input,
                 ptx::load(prob + 8 * r), r, gate.row[r], input.row[r], dprob[r]);
    if (by_row) {
      const Shared<u8> row = box::row_address(to.d, d, r);
      box::store(row, d, gate.row[r]);
      box::store(row.bytes(d_box), d, input.row[r]);
    }
  }
  if (options.has_dprob) ptx::store(sums.dprob, ptx::load(sums.dprob) + join_quad(dprob, JoinSum{}));
  if (options.has_dbias) {
    store_column_sums(column_sums, gate);
    store_column_sums(column_sums + 32, input);
  }
  apply(options.post, gate);
  apply(options.post, input);
  if (options.common.has_amax) {
    ptx::store(sums.amax[0], maximum(gate, ptx::load(sums.amax[0])));
    ptx::store(sums.amax[1], maximum(input, ptx::load(sums.amax[1])));
  }
  if (by_row) return;
  to = target();
  if (options.common.quantize) {
    const u32 block = chunk % 2 * 2;
    quantize_chunk(d, gate, to.norm_const, to.d, to.d_col, to.atoms, block, to.thread, to.scratch);
    quantize_chunk(d, input, to.norm_const, to.d.bytes(d_box), to.d_col.bytes(d_box), to.atoms, block + 1,
                   to.thread, to.scratch);
  } else {
#pragma unroll
    for (u32 r = 0; r < fragment::rows; ++r) {
      const Shared<u8> row = box::row_address(to.d, d, r);
      box::store(row, d, gate.row[r]);
      box::store(row.bytes(d_box), d, input.row[r]);
    }
  }
}

}  // namespace gemmule::kernels
