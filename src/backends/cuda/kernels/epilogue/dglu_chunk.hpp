// The gradient of 32 compact columns of a 128-row tile: C from shared memory, D to shared memory.
//
// A chunk holds 128 rows of the gate's and the input's 32 columns, as TMA copies it with the 128-byte swizzle (16-byte
// pieces of a 128-byte row are permuted by exclusive or with the row modulo 8):
//   16-bit formats: one box, a row is 32 gates and 32 inputs;  f32: a box of gates, then a box of inputs (16 KB each).
#pragma once

#include "numerics/activation.hpp"
#include "ptx/convert.hpp"
#include "ptx/identity.hpp"
#include "ptx/shared.hpp"
#include "ptx/warp.hpp"
#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::kernels {

using ptx::F32x2;
using ptx::Shared;

inline constexpr u32 tile_rows = 128;
inline constexpr u32 chunk_columns = 32;               ///< compact columns
inline constexpr u32 f32_box_bytes = tile_rows * 128;  ///< gates, or inputs

GEMMULE_HD constexpr u32 chunk_bytes(Format format) {
  return tile_rows * 2 * chunk_columns * bytes_of(format);
}

/// Where a thread of a warpgroup finds its elements of an accumulator tile in a chunk. With g = lane / 4 and t = lane % 4
/// it owns rows 64 half + 16 warp + g + 8 upper and, for each j < 4, columns 8 j + 2 t and the next.
struct ChunkLane {
  u32 offset;  ///< of (half 0, upper 0, j = 0, gate), before the exclusive or with the piece

  GEMMULE_DEVICE static ChunkLane of(u32 thread, Format format) {
    const u32 g = thread % 32 / 4;
    const u32 t = thread % 4;
    const u32 row = thread / 32 * 16 + g;
    if (format == Format::f32) return {row * 128 + ((g ^ (t / 2)) << 4) + t % 2 * 8};
    return {row * 128 + (g << 4) + t * 4};
  }

  GEMMULE_DEVICE static u32 row_offset(u32 half, u32 upper) { return half * 8192 + upper * 1024; }

  /// Byte address of the pair of columns j of the gate or the input, in row (half 0, upper 0).
  GEMMULE_DEVICE u32 pair(Shared<u8> chunk, Format format, u32 j, bool input) const {
    if (format == Format::f32) return ((chunk.address + offset) ^ (j << 5)) + (input ? f32_box_bytes : 0);
    return (chunk.address + offset) ^ ((j + (input ? 4 : 0)) << 4);
  }
};

/// Two neighbouring elements as they are in memory: 16-bit formats use x only.
struct RawPair {
  u32 x, y;
};

GEMMULE_DEVICE RawPair load_pair(u32 address, Format format) {
  if (format == Format::f32) {
    const F32x2 pair = ptx::load(Shared<F32x2>{address});
    return {numerics::bits_of(pair.x), numerics::bits_of(pair.y)};
  }
  return {ptx::load(Shared<u32>{address}), 0};
}

GEMMULE_DEVICE F32x2 decode_pair(RawPair raw, Format format) {
  if (format == Format::f32) return {numerics::float_of(raw.x), numerics::float_of(raw.y)};
  return format == Format::bf16 ? ptx::unpack_bf16(raw.x) : ptx::unpack_fp16(raw.x);
}

GEMMULE_DEVICE void store_pair(u32 address, Format format, float low, float high) {
  if (format == Format::f32) {
    ptx::store(Shared<F32x2>{address}, F32x2{low, high});
  } else {
    ptx::store(Shared<u32>{address},
               format == Format::bf16 ? ptx::pack_bf16(low, high) : ptx::pack_fp16(low, high));
  }
}

GEMMULE_DEVICE numerics::Gradient gradient(const DgluOptions& options, float r, float gate, float input,
                                           float prob) {
  if (options.activation == Activation::dgeglu) return numerics::dgeglu(r, gate, input, prob, options.geglu);
  return numerics::dswiglu(r, gate, input, prob);
}

/// Factors of one tile. Row 2 half + upper of the four a thread owns.
struct RowFactors {
  float alpha_squared;
  float beta;
  float prob[4];
};

/// Sums over the eight lanes that share lane % 4, of eight values each: two column pairs of the gate (values 0..3) and the
/// same of the input (4..7). Lane bits 16, 8, 4 select the value whose total the lane returns. The order of additions
/// is fixed.
GEMMULE_DEVICE float sum_over_rows(const float (&value)[8]) {
  const u32 lane = ptx::lane_index();
  const bool upper4 = (lane & 16) != 0;
  float four[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    const float received = ptx::shuffle_xor(upper4 ? value[i] : value[i + 4], 16);
    four[i] = (upper4 ? value[i + 4] : value[i]) + received;
  }
  const bool upper2 = (lane & 8) != 0;
  float two[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const float received = ptx::shuffle_xor(upper2 ? four[i] : four[i + 2], 8);
    two[i] = (upper2 ? four[i + 2] : four[i]) + received;
  }
  const bool upper1 = (lane & 4) != 0;
  const float received = ptx::shuffle_xor(upper1 ? two[0] : two[1], 4);
  return (upper1 ? two[1] : two[0]) + received;
}

/// Column of a chunk (gates, then inputs) whose sum sum_over_rows() returns in this lane, for column pairs j = 0 and 1.
GEMMULE_DEVICE u32 summed_column(u32 lane) {
  return ((lane & 16) != 0 ? chunk_columns : 0) + ((lane & 8) != 0 ? 8 : 0) + lane % 4 * 2 +
         ((lane & 4) != 0 ? 1 : 0);
}

/// One thread's part. `accumulators` gives element 4 j + 2 upper + column of half `half`. `column_sums` points at the 64
/// sums of this warp (options.has_dbias). A row of C is loaded four rows ahead: a warp is alone on its scheduler here, so
/// the latency of shared memory would otherwise be idle time.
template <class Accumulators>
GEMMULE_DEVICE void dglu_chunk(const DgluOptions& options, const Accumulators& accumulators,
                               const RowFactors& factors, Shared<u8> c, Shared<u8> d, u32 thread,
                               Shared<float> column_sums, float (&dprob)[4]) {
  const ChunkLane c_lane = ChunkLane::of(thread, options.c);
  const ChunkLane d_lane = ChunkLane::of(thread, options.d);
  RawPair raw_gate[4], raw_input[4];
#pragma unroll
  for (u32 row = 0; row < 4; ++row) {
    const u32 offset = ChunkLane::row_offset(row / 2, row % 2);
    raw_gate[row] = load_pair(c_lane.pair(c, options.c, 0, false) + offset, options.c);
    raw_input[row] = load_pair(c_lane.pair(c, options.c, 0, true) + offset, options.c);
  }
  float sums[8];
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
    const u32 next_gate = c_lane.pair(c, options.c, j + 1, false);
    const u32 next_input = c_lane.pair(c, options.c, j + 1, true);
    const u32 d_gate = d_lane.pair(d, options.d, j, false);
    const u32 d_input = d_lane.pair(d, options.d, j, true);
    F32x2 gate_sum{0, 0}, input_sum{0, 0};
#pragma unroll
    for (u32 row = 0; row < 4; ++row) {
      const u32 offset = ChunkLane::row_offset(row / 2, row % 2);
      const F32x2 gate = decode_pair(raw_gate[row], options.c);
      const F32x2 input = decode_pair(raw_input[row], options.c);
      if (j < 3) {
        raw_gate[row] = load_pair(next_gate + offset, options.c);
        raw_input[row] = load_pair(next_input + offset, options.c);
      }
      const u32 element = 4 * j + 2 * (row % 2);
      const numerics::Gradient x =
          gradient(options, accumulators.get(row / 2, element) * factors.alpha_squared, gate.x * factors.beta,
                   input.x * factors.beta, factors.prob[row]);
      const numerics::Gradient y =
          gradient(options, accumulators.get(row / 2, element + 1) * factors.alpha_squared,
                   gate.y * factors.beta, input.y * factors.beta, factors.prob[row]);
      store_pair(d_gate + offset, options.d, x.gate, y.gate);
      store_pair(d_input + offset, options.d, x.input, y.input);
      if (options.has_dprob) dprob[row] = y.dprob.added_to(x.dprob.added_to(dprob[row]));
      if (options.has_dbias) {
        gate_sum = {gate_sum.x + x.gate, gate_sum.y + y.gate};
        input_sum = {input_sum.x + x.input, input_sum.y + y.input};
      }
    }
    if (options.has_dbias) {
      sums[j % 2 * 2] = gate_sum.x;
      sums[j % 2 * 2 + 1] = gate_sum.y;
      sums[4 + j % 2 * 2] = input_sum.x;
      sums[4 + j % 2 * 2 + 1] = input_sum.y;
      if (j % 2 == 1)
        ptx::store(column_sums + (summed_column(ptx::lane_index()) + 8 * (j - 1)), sum_over_rows(sums));
    }
  }
}

}  // namespace gemmule::kernels
