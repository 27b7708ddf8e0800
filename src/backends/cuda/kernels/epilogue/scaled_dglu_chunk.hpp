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

GEMMULE_DEVICE void apply(PostOperation operation, float (&y)[fragment::columns]) {
#pragma unroll
  for (u32 i = 0; i < fragment::columns; ++i) y[i] = post_operation(operation, y[i]);
}

/// One thread's part of a chunk. `accumulators.get(half, element)` counts from the chunk's first element. `from`
/// is the gate box of C plus box::thread_offset() of its format; D may overwrite C if both formats are of the same size.
/// `column_sums()` points at this warp's 64 sums (has_dbias): gates, then inputs. `midway()` is called between the rows;
/// `boxes()`, the gate's boxes of D and D_col, before D is written; the input's follow each of them. `scales(n)`, as of
/// quantize_chunk(), of the gate (n = 0, when every thread has read C) and then of the input.
template <class Accumulators, class ColumnSums, class Midway, class Boxes, class Scales>
GEMMULE_DEVICE void scaled_dglu_chunk(const ScaledDgluOptions& options, const Accumulators& accumulators,
                                      const ScaledDgluFactors& factors, Shared<u8> from, u32 lane,
                                      const ColumnSums& column_sums, const ScaledDgluSums& sums,
                                      const Midway& midway, const Boxes& boxes, const Scales& scales) {
  // dbias is the sum of what the post operation is applied to.
  const bool finished_by_row = !options.has_dbias || options.post == PostOperation::none;
  const bool by_row = !options.common.quantize && finished_by_row;
  Shared<u8> to{};
  if (by_row) to = boxes().d;
  const Format c = options.common.c, d = options.common.d;
  const u32 c_box = scaled::box_bytes(c), d_box = scaled::box_bytes(d);
  const Shared<float> prob = factors.prob + lane / 4;
  float dprob[fragment::rows] = {0, 0, 0, 0};
  float amax[2] = {0, 0};
  ChunkValues y[2];  // gate, input
  const auto finish_row = [&](u32 r) {
    apply(options.post, y[0].row[r]);
    apply(options.post, y[1].row[r]);
    if (!options.common.has_amax) return;
    amax[0] = maximum(y[0].row[r], amax[0]);
    amax[1] = maximum(y[1].row[r], amax[1]);
  };
  const auto write_row = [&](u32 r) {
    const Shared<u8> row = box::row_address(to, d, r);
    box::store(row, d, y[0].row[r]);
    box::store(row.bytes(d_box), d, y[1].row[r]);
  };
  // With quantize, all values of a chunk are there at once and registers are scarce: the first rows of the input's wait where the
  // thread has read C, until the gate's maxima are on their way.
  const bool parks = options.common.quantize && finished_by_row && bits_of(c) == 16;
  const u32 parked_rows = parks ? 3 : 0;
  // A row of C is loaded ahead, so that its latency is not idle time; of f32, and where nothing waits, there are not the registers.
  const bool ahead = c != Format::f32 && (by_row || parks);
  const auto slot = [&](u32 r, u32 half) {
    return box::row_address(from.bytes(half * c_box), c, r).as<U32x4>();
  };
  const auto park = [&](u32 r) {
    const auto& v = y[1].row[r];
    using numerics::bits_of;
    ptx::store(slot(r, 0), U32x4{bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])});
    ptx::store(slot(r, 1), U32x4{bits_of(v[4]), bits_of(v[5]), bits_of(v[6]), bits_of(v[7])});
  };
  box::Raw raw_gate = box::load_raw(from, c);
  box::Raw raw_input = box::load_raw(from.bytes(c_box), c);
#pragma unroll
  for (u32 r = 0; r < fragment::rows; ++r) {
    if (r == fragment::rows / 2) midway();
    const u32 loaded = ahead ? r + 1 : r;
    const box::Raw this_gate = raw_gate, this_input = raw_input;
    const float row_prob = ptx::load(prob + 8 * r);
    if (loaded < fragment::rows && loaded > 0) {
      const Shared<u8> next = box::row_address(from, c, loaded);
      raw_gate = box::load_raw(next, c);
      raw_input = box::load_raw(next.bytes(c_box), c);
    }
    gradient_row(options, accumulators, factors, ahead ? this_gate : raw_gate, ahead ? this_input : raw_input,
                 row_prob, r, y[0].row[r], y[1].row[r], dprob[r]);
    if (finished_by_row) finish_row(r);
    if (by_row) write_row(r);
    if (r < parked_rows) park(r);
  }
  if (options.has_dprob) ptx::store(sums.dprob, ptx::load(sums.dprob) + join_quad(dprob, JoinSum{}));
  if (options.has_dbias) {
    store_column_sums(column_sums(), y[0]);
    if (!parks) store_column_sums(column_sums() + 32, y[1]);
  }
  if (!finished_by_row) {
#pragma unroll
    for (u32 r = 0; r < fragment::rows; ++r) finish_row(r);
  }
  if (options.common.has_amax) {
    ptx::store(sums.amax[0], numerics::amax_step(ptx::load(sums.amax[0]), amax[0]));
    ptx::store(sums.amax[1], numerics::amax_step(ptx::load(sums.amax[1]), amax[1]));
  }
  if (by_row) return;
  if (options.common.quantize) {
    const auto scales_after_fetch = [&] {
#pragma unroll
      for (u32 r = 0; r < parked_rows; ++r) {
        const U32x4 low = ptx::load(slot(r, 0)), high = ptx::load(slot(r, 1));
        const u32 bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (u32 i = 0; i < 8; ++i) y[1].row[r][i] = numerics::float_of(bits[i]);
      }
      return scales(0);
    };
    quantize_chunk(d, y[0], scales_after_fetch, boxes);
    if (options.has_dbias && parks) store_column_sums(column_sums() + 32, y[1]);
    quantize_chunk(
        d, y[1], [&] { return scales(1); },
        [&] {
          const QuantizedBoxes gate = boxes();
          return QuantizedBoxes{gate.d.bytes(d_box), gate.d_col.bytes(d_box)};
        });
  } else {
    to = boxes().d;
#pragma unroll
    for (u32 r = 0; r < fragment::rows; ++r) write_row(r);
  }
}

}  // namespace gemmule::kernels
