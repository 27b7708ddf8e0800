// Everything after the product, on blocks of 32 x 32 columns of N that are still in the first-level cache.
#pragma once

#include "backends/cpu/formats.hpp"
#include "layout/interleave.hpp"
#include "layout/scale_factors.hpp"
#include "numerics/activation.hpp"
#include "numerics/quantization.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

using numerics::i32;

struct Tile {
  alignas(64) float v[block][block];
};

/// Where a tile lies in C and D.
struct Place {
  std::int64_t row;
  int rows;          ///< 1..32
  std::int64_t col;  ///< of C and D
  int cols;          ///< 1..32
};

/// Bytes between the scales of neighbours among 32 aligned rows (or columns).
constexpr std::int64_t scale_pitch = layout::atom_offset(1, 0);

GEMMULE_INLINE std::int64_t width_of(const Problem& problem) {
  return problem.op == Op::srelu ? problem.n : 2 * problem.n;
}

/// Stores value(r, j) for the tile's rows and columns. The scratch row serves the last, narrower block of N.
template <class Format, class Value>
GEMMULE_INLINE void store_tile(void* base, std::int64_t width, const Place& at, const Value& value) {
  u8* out = static_cast<u8*>(base) + bytes<Format>(at.row * width + at.col);
  const std::int64_t pitch = bytes<Format>(width);
  if (at.cols == block) {
    for (int r = 0; r < at.rows; ++r) encode_row<Format>(out + r * pitch, [&](int j) { return value(r, j); });
    return;
  }
  u8 line[block * sizeof(float)];
  for (int r = 0; r < at.rows; ++r) {
    encode_row<Format>(line, [&](int j) { return value(r, j); });
    __builtin_memcpy(out + r * pitch, line, static_cast<std::size_t>(bytes<Format>(at.cols)));
  }
}

inline void store_plain(DType dtype, void* base, std::int64_t width, const Place& at, const Tile& tile) {
  with_format(dtype, [&](auto format) {
    store_tile<decltype(format)>(base, width, at, [&](int r, int j) { return tile.v[r][j]; });
  });
}

/// Scale codes and multipliers of 32 blocks of 32 values, from the bits of their largest magnitudes.
struct BlockScales {
  u8 code[block];
  float multiplier[block];
};

template <class ScaleOf>
GEMMULE_INLINE BlockScales block_scales(const i32 (&amax)[block], float norm_const, const ScaleOf& scale_of) {
  BlockScales out;
  for (int i = 0; i < block; ++i) {
    const u8 code = numerics::encode_e8m0(scale_of(numerics::float_of(static_cast<numerics::u32>(amax[i]))));
    out.code[i] = code;
    out.multiplier[i] = numerics::multiplier(norm_const, code);
  }
  return out;
}

/// D and SFD_row: one scale per row of the tile.
template <class Format>
inline void quantize_rows(const Call& call, const Place& at, const Tile& tile, float rcp_max) {
  const Problem& problem = call.problem;
  const Operands& operands = call.operands;
  const std::int64_t width = width_of(problem);
  const float norm_const = operands.norm_const[0];
  i32 amax[block] = {};
  for (int r = 0; r < at.rows; ++r) {
    i32 largest = 0;
    for (int j = 0; j < block; ++j) {
      const i32 bits = numerics::amax_bits(tile.v[r][j]);
      largest = bits > largest ? bits : largest;
    }
    amax[r] = largest;
  }
  const BlockScales scales = block_scales(
      amax, norm_const, [&](float largest) { return numerics::row_scale(largest, rcp_max, norm_const); });
  u8* sfd =
      operands.sfd_row + layout::scale_offset(at.row, at.col / block, layout::block_atoms(width, block));
  for (int r = 0; r < at.rows; ++r) sfd[r * scale_pitch] = scales.code[r];
  store_tile<Format>(operands.d, width, at,
                     [&](int r, int j) { return tile.v[r][j] * scales.multiplier[r]; });
}

/// Byte of SFD_col for a column of D and the 32 rows from `row`, in either layout.
GEMMULE_INLINE std::int64_t sfd_col_offset(const Call& call, const Unit& unit, std::int64_t col,
                                           std::int64_t row) {
  if (call.problem.discrete_col_sfd)
    return layout::sfd_col_offset(col, row, unit.group_start, unit.group_rows, width_of(call.problem));
  return layout::sfd_col_offset(col, row, call.operands.m);
}

/// D_col and SFD_col: one scale per column of the tile.
template <class Format>
inline void quantize_cols(const Call& call, const Unit& unit, const Place& at, const Tile& tile,
                          float rcp_max) {
  const Operands& operands = call.operands;
  const float norm_const = operands.norm_const[0];
  i32 amax[block] = {};
  for (int r = 0; r < at.rows; ++r) {
    for (int j = 0; j < block; ++j) {
      const i32 bits = numerics::amax_bits(tile.v[r][j]);
      amax[j] = bits > amax[j] ? bits : amax[j];
    }
  }
  const BlockScales scales = block_scales(
      amax, norm_const, [&](float largest) { return numerics::col_scale(largest, rcp_max, norm_const); });
  u8* sfd = operands.sfd_col + sfd_col_offset(call, unit, at.col, at.row);
  for (int j = 0; j < at.cols; ++j) sfd[j * scale_pitch] = scales.code[j];
  store_tile<Format>(operands.d_col, width_of(call.problem), at,
                     [&](int r, int j) { return tile.v[r][j] * scales.multiplier[j]; });
}

/// The scale bytes of the last 128-wide column tile that lie beyond the last column: code 0x00.
inline void clear_padding_scales(const Call& call, const Unit& unit, std::int64_t row, int rows) {
  const Problem& problem = call.problem;
  const std::int64_t width = width_of(problem);
  const std::int64_t end = layout::ceil_div(width, layout::atom_rows) * layout::atom_rows;
  const std::int64_t atoms = layout::block_atoms(width, block);
  for (std::int64_t b = layout::ceil_div(width, block); b < end / block; ++b)
    for (int r = 0; r < rows; ++r) call.operands.sfd_row[layout::scale_offset(row + r, b, atoms)] = 0;
  for (std::int64_t col = width; col < end; ++col)
    call.operands.sfd_col[sfd_col_offset(call, unit, col, row)] = 0;
}

inline void store_d(const Call& call, const Unit& unit, const Place& at, const Tile& tile) {
  const Problem& problem = call.problem;
  const Operands& operands = call.operands;
  if (!problem.quantize) {
    store_plain(problem.d, operands.d, width_of(problem), at, tile);
    if (problem.has_d_col) store_plain(problem.d, operands.d_col, width_of(problem), at, tile);
    return;
  }
  const auto quantize = [&](auto format, float rcp_max) {
    quantize_rows<decltype(format)>(call, at, tile, rcp_max);
    quantize_cols<decltype(format)>(call, unit, at, tile, rcp_max);
  };
  if (problem.d == DType::float8_e4m3fn)
    quantize(Float8E4m3{}, numerics::rcp_max_e4m3);
  else if (problem.d == DType::float8_e5m2)
    quantize(Float8E5m2{}, numerics::rcp_max_e5m2_output);
  else
    quantize(Float4E2m1{}, numerics::rcp_max_e2m1);
}

/// Largest magnitudes seen so far, one per lane.
struct LaneMaxima {
  i32 bits[block] = {};

  GEMMULE_INLINE void add(const Tile& tile, int rows) {
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < block; ++j) {
        const i32 value = numerics::amax_bits(tile.v[r][j]);
        bits[j] = value > bits[j] ? value : bits[j];
      }
    }
  }
  GEMMULE_INLINE i32 largest() const {
    i32 out = 0;
    for (const i32 value : bits) out = value > out ? value : out;
    return out;
  }
};

/// What the epilogue keeps from block to block of one unit.
struct State {
  LaneMaxima amax[2];
  float bias[max_unit_cols / block][2][block];  ///< dbias of the current 128 rows: gate, input
};

/// The product's rows and columns of one block, and the factors that go with them.
struct BlockInput {
  const float* sum;
  std::int64_t sum_stride;
  float alpha;
  float beta;
  float prob[block];
};

inline void srelu_tile(const Call& call, const Unit& unit, const BlockInput& in, std::int64_t col,
                       const Place& at, Tile& out) {
  const Problem& problem = call.problem;
  Tile x;
  if (problem.bias == DType::none) {
    for (int r = 0; r < at.rows; ++r)
      for (int j = 0; j < block; ++j) x.v[r][j] = in.alpha * in.sum[r * in.sum_stride + j];
  } else {
    alignas(64) float bias[block] = {};
    with_format(problem.bias, [&](auto format) {
      using Format = decltype(format);
      typename Format::Code codes[block] = {};
      const u8* data =
          static_cast<const u8*>(call.operands.bias) + bytes<Format>(unit.expert * problem.n + col);
      __builtin_memcpy(codes, data, static_cast<std::size_t>(bytes<Format>(at.cols)));
      for (int j = 0; j < block; ++j) bias[j] = Format::decode(codes[j]);
    });
    const Vec alpha = splat(in.alpha);
    for (int r = 0; r < at.rows; ++r)
      for (int j = 0; j < block; j += lanes)
        store(&x.v[r][j], fma(alpha, load(in.sum + r * in.sum_stride + j), load(bias + j)));
  }
  store_plain(problem.c, call.operands.c_out, problem.n, at, x);
  if (problem.tanh_clamp_scale != 0.0f) {
    const float s = problem.tanh_clamp_scale;
    const float s_rcp = numerics::finite_reciprocal(s);
    for (int r = 0; r < at.rows; ++r)
      for (int j = 0; j < block; ++j) out.v[r][j] = numerics::srelu_clamped(x.v[r][j], s, s_rcp) * in.prob[r];
  } else {
    for (int r = 0; r < at.rows; ++r)
      for (int j = 0; j < block; ++j) out.v[r][j] = numerics::srelu(x.v[r][j]) * in.prob[r];
  }
  // Columns past N must not reach a maximum.
  for (int r = 0; r < at.rows; ++r)
    for (int j = at.cols; j < block; ++j) out.v[r][j] = 0.0f;
}

/// x = beta * C.
inline void load_c(const Call& call, const Place& at, float beta, Tile& out) {
  with_format(call.problem.c, [&](auto format) {
    using Format = decltype(format);
    const std::int64_t width = width_of(call.problem);
    const u8* in = static_cast<const u8*>(call.operands.c_in) + bytes<Format>(at.row * width + at.col);
    for (int r = 0; r < at.rows; ++r)
      decode_row<Format>(in + r * bytes<Format>(width), out.v[r], [&](float x, int) { return x * beta; });
  });
}

/// One row of gradient_tile; its parameters tell the compiler that nothing overlaps.
template <class Activation>
GEMMULE_INLINE void gradient_row(const float* __restrict sum, float alpha_squared, float prob,
                                 float* __restrict gate, float* __restrict input, float* __restrict dprob,
                                 const Activation& activation) {
  for (int j = 0; j < block; ++j) {
    const numerics::Gradient d = activation(sum[j] * alpha_squared, gate[j], input[j], prob);
    gate[j] = d.gate;
    input[j] = d.input;
    dprob[j] += d.dprob;
  }
}

/// Replaces gate and input by the gradients; adds the terms of dprob. `activation` is captured by value, so that its
/// constants stay in registers.
template <class Activation>
inline void gradient_tile(const BlockInput& in, int rows, Tile& gate, Tile& input, Tile& dprob,
                          const Activation activation) {
  const float alpha_squared = in.alpha * in.alpha;
  for (int r = 0; r < rows; ++r)
    gradient_row(in.sum + r * in.sum_stride, alpha_squared, in.prob[r], gate.v[r], input.v[r], dprob.v[r],
                 activation);
}

template <bool value_filter>
inline void dgeglu_tile(const Problem& problem, const BlockInput& in, int rows, Tile& gate, Tile& input,
                        Tile& dprob) {
  const float offset = problem.linear_offset, alpha = problem.geglu_alpha;
  const float high = problem.glu_clamp_max, low = problem.glu_clamp_min;
  gradient_tile(
      in, rows, gate, input,
      dprob, [=](float r, float g, float u, float prob) __attribute__((always_inline)) {
        return numerics::dgeglu(r, g, u, prob, {offset, alpha, high, low, value_filter});
      });
}

inline void dglu_gradient(const Problem& problem, const BlockInput& in, int rows, Tile& gate, Tile& input,
                          Tile& dprob) {
  if (problem.act == ActFunc::dswiglu) {
    gradient_tile(
        in, rows, gate, input, dprob,
        [](float r, float g, float u, float prob)
            __attribute__((always_inline)) { return numerics::dswiglu(r, g, u, prob); });
  } else if (problem.act == ActFunc::dgeglu) {
    if (problem.geglu_value_filter)
      dgeglu_tile<true>(problem, in, rows, gate, input, dprob);
    else
      dgeglu_tile<false>(problem, in, rows, gate, input, dprob);
  } else {
    const float beta1 = problem.situ_beta1, beta2 = problem.situ_beta2;
    const numerics::SituParams params{beta1, beta2, numerics::finite_reciprocal(beta1),
                                      numerics::finite_reciprocal(beta2)};
    if (beta1 == 4.0f) {
      gradient_tile(
          in, rows, gate, input,
          dprob, [params](float r, float g, float u, float prob) __attribute__((always_inline)) {
            return numerics::dsituglu_packed(r, g, u, prob, params);
          });
    } else {
      gradient_tile(
          in, rows, gate, input,
          dprob, [params](float r, float g, float u, float prob) __attribute__((always_inline)) {
            return numerics::dsituglu_general(r, g, u, prob, params);
          });
    }
  }
}

/// Adds the tile's rows in ascending order.
inline void add_rows(const Tile& tile, int rows, float (&sum)[block]) {
  float total[block];
  __builtin_memcpy(total, sum, sizeof total);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < block; ++j) total[j] += tile.v[r][j];
  __builtin_memcpy(sum, total, sizeof total);
}

inline void apply_epilogue_op(EpilogueOp op, int rows, Tile& tile) {
  if (op == EpilogueOp::relu) {
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < block; ++j) tile.v[r][j] = numerics::relu(tile.v[r][j]);
  } else if (op == EpilogueOp::srelu) {
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < block; ++j) tile.v[r][j] = numerics::srelu(tile.v[r][j]);
  }
}

/// Sum of 32 lanes as a binary tree.
GEMMULE_INLINE float sum_lanes(const float (&lane)[block]) {
  float part[block / 2];
  for (int j = 0; j < 16; ++j) part[j] = lane[j] + lane[j + 16];
  for (int j = 0; j < 8; ++j) part[j] += part[j + 8];
  for (int j = 0; j < 4; ++j) part[j] += part[j + 4];
  return (part[0] + part[2]) + (part[1] + part[3]);
}

inline void dglu_block(const Call& call, const Unit& unit, const BlockInput& in, std::int64_t col,
                       std::int64_t row, int rows, Tile& dprob, float (&bias)[2][block], State& state) {
  const Problem& problem = call.problem;
  const Place at_gate{row, rows, layout::gate_column(col), block};
  const Place at_input{row, rows, layout::input_column(col), block};
  Tile gate, input;
  load_c(call, at_gate, in.beta, gate);
  load_c(call, at_input, in.beta, input);
  dglu_gradient(problem, in, rows, gate, input, dprob);
  if (problem.has_dbias) {
    add_rows(gate, rows, bias[0]);
    add_rows(input, rows, bias[1]);
  }
  apply_epilogue_op(problem.epilogue_op, rows, gate);
  apply_epilogue_op(problem.epilogue_op, rows, input);
  if (problem.has_amax) {
    state.amax[0].add(gate, rows);
    state.amax[1].add(input, rows);
  }
  store_d(call, unit, at_gate, gate);
  store_d(call, unit, at_input, input);
}

/// The unit's partial sums of dbias for the 128 rows that end with `row`.
inline void store_dbias(const Call& call, const Unit& unit, std::int64_t row, const State& state) {
  const std::int64_t index = unit.wave_group + (row - unit.row) / group;
  float* out = call.dbias_partial + index * 2 * call.problem.n;
  for (std::int64_t b = 0; b * block < unit.cols; ++b) {
    __builtin_memcpy(out + layout::gate_column(unit.col + b * block), state.bias[b][0],
                     sizeof state.bias[b][0]);
    __builtin_memcpy(out + layout::input_column(unit.col + b * block), state.bias[b][1],
                     sizeof state.bias[b][1]);
  }
}

/// dGLU of up to 32 rows and all columns of the unit.
inline void dglu_rows(const Call& call, const Unit& unit, BlockInput& in, std::int64_t row, int rows,
                      const float* sum, State& state) {
  const Problem& problem = call.problem;
  const std::int64_t i = row - unit.row;
  const std::int64_t pitch = layout::ceil_div(problem.n, group);
  if (i % group == 0) __builtin_memset(state.bias, 0, sizeof state.bias);
  for (std::int64_t strip = 0; strip < unit.cols; strip += group) {
    Tile dprob;
    __builtin_memset(&dprob, 0, sizeof dprob);
    for (std::int64_t j = strip; j < unit.cols && j < strip + group; j += block) {
      in.sum = sum + j;
      dglu_block(call, unit, in, unit.col + j, row, rows, dprob, state.bias[j / block], state);
    }
    if (problem.has_dprob) {
      float* out = call.dprob_partial + (unit.wave_group * group + i) * pitch + (unit.col + strip) / group;
      for (int r = 0; r < rows; ++r) out[r * pitch] = sum_lanes(dprob.v[r]);
    }
  }
  if (problem.has_dbias && (i % group == group - block || i + rows == unit.rows))
    store_dbias(call, unit, row, state);
}

/// sReLU of up to 32 rows and all columns of the unit.
inline void srelu_rows(const Call& call, const Unit& unit, BlockInput& in, std::int64_t row, int rows,
                       const float* sum, State& state) {
  for (std::int64_t j = 0; j < unit.cols; j += block) {
    const Place at{row, rows, unit.col + j, static_cast<int>(unit.cols - j < block ? unit.cols - j : block)};
    in.sum = sum + j;
    Tile d;
    srelu_tile(call, unit, in, at.col, at, d);
    if (call.problem.has_amax) state.amax[0].add(d, rows);
    store_d(call, unit, at, d);
  }
}

/// The rows [begin, end) of the unit, counted from its first, whose product is complete.
inline void epilogue(const Call& call, const Unit& unit, const Scratch& scratch, std::int64_t begin,
                     std::int64_t end, State& state) {
  const Problem& problem = call.problem;
  const Operands& operands = call.operands;
  BlockInput in;
  in.sum_stride = call.blocking.sum_stride;
  in.alpha = operands.alpha[unit.expert];
  in.beta = problem.op == Op::dglu ? operands.beta[unit.expert] : 1.0f;
  for (std::int64_t i = begin; i < end; i += block) {
    const std::int64_t row = unit.row + i;
    const int rows = static_cast<int>(end - i < block ? end - i : block);
    const float* sum = scratch.sum + i * in.sum_stride;
    for (int r = 0; r < rows; ++r)
      in.prob[r] = problem.has_prob ? operands.prob[(row + r) * operands.prob_stride] : 1.0f;
    if (problem.op == Op::dglu)
      dglu_rows(call, unit, in, row, rows, sum, state);
    else
      srelu_rows(call, unit, in, row, rows, sum, state);
    if (problem.quantize && unit.col + unit.cols == problem.n) clear_padding_scales(call, unit, row, rows);
  }
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
