// Dequantizes one block of k of a unit's A and B into scratch. Every value times its scale is one FP32 product.
#pragma once

#include "backends/cpu/formats.hpp"
#include "layout/scale_factors.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

/// Scale factors of one operand, a byte per `vec` values of k.
struct Scales {
  const u8* data;  ///< null: every scale is 1
  std::int64_t atoms;
  int shift;  ///< log2(vec)
  bool e4m3;

  GEMMULE_INLINE float at(std::int64_t row, std::int64_t k) const {
    const u8 code = data[layout::scale_offset(row, k >> shift, atoms)];
    return e4m3 ? numerics::decode_e4m3(code) : numerics::decode_e8m0(code);
  }
};

GEMMULE_INLINE Scales make_scales(const Problem& problem, const void* data) {
  if (problem.scale == DType::none) return {nullptr, 0, 0, false};
  return {static_cast<const u8*>(data), layout::block_atoms(problem.k, problem.vec),
          problem.vec == 16 ? 4 : 5, problem.scale == DType::float8_e4m3fn};
}

/// out[0..count) = the values k .. k+count of one row whose values are contiguous; count <= 32, k a multiple of 32.
template <class Format>
GEMMULE_INLINE void dequantize(const u8* row_data, const Scales& scales, std::int64_t row, std::int64_t k,
                               std::int64_t count, float* __restrict out) {
  const u8* in = row_data + bytes<Format>(k);
  u8 padded[block * Format::bits / 8] = {};
  if (count < block) {
    __builtin_memcpy(padded, in, static_cast<std::size_t>(bytes<Format>(count)));
    in = padded;
  }
  if (scales.data == nullptr) {
    decode_row<Format>(in, out, [](float x, int) { return x; });
    return;
  }
  const float low = scales.at(row, k);
  const float high = count > 16 ? scales.at(row, k + 16) : 0.0f;
  decode_row<Format>(in, out, [=](float x, int i) { return x * (i < 16 ? low : high); });
}

/// A of rows row .. row+rows, k .. k+count, row by row.
template <class Format>
inline void pack_a(const Call& call, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t count,
                   float* out) {
  const Scales scales = make_scales(call.problem, call.operands.sfa);
  const u8* data = static_cast<const u8*>(call.operands.a) + bytes<Format>(row * call.problem.k);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t p = 0; p < count; p += block) {
      const std::int64_t n = count - p < block ? count - p : block;
      dequantize<Format>(data, scales, row + i, k + p, n, out + i * a_stride + p);
    }
    data += bytes<Format>(call.problem.k);
  }
}

/// B of one expert.
struct Weights {
  const u8* data;
  Scales scales;
};

template <class Format>
GEMMULE_INLINE Weights weights_of(const Call& call, int expert) {
  const Problem& problem = call.problem;
  const Operands& operands = call.operands;
  if (problem.discrete) {
    const auto pointer = [&](const std::int64_t* list) {
      return list == nullptr ? nullptr
                             : reinterpret_cast<const u8*>(static_cast<std::uintptr_t>(list[expert]));
    };
    return {pointer(operands.b_ptrs), make_scales(problem, pointer(operands.sfb_ptrs))};
  }
  const u8* scales = static_cast<const u8*>(operands.sfb);
  if (scales != nullptr) scales += expert * layout::scale_buffer_bytes(problem.n, problem.k, problem.vec);
  return {static_cast<const u8*>(operands.b) + bytes<Format>(expert * (problem.n * problem.k)),
          make_scales(problem, scales)};
}

/// Columns of B with k contiguous: decoded row by row, 32 values of k at a time, then transposed.
template <class Format>
inline void pack_panel_k_major(const Weights& weights, const Problem& problem, std::int64_t col,
                               std::int64_t k, std::int64_t count, float* __restrict out) {
  alignas(64) float rows[tile_width][block];
  const std::int64_t cols = problem.n - col < tile_width ? problem.n - col : tile_width;
  for (std::int64_t p = 0; p < count; p += block) {
    const std::int64_t n = count - p < block ? count - p : block;
    for (std::int64_t j = 0; j < cols; ++j)
      dequantize<Format>(weights.data + bytes<Format>((col + j) * problem.k), weights.scales, col + j, k + p,
                         n, rows[j]);
    for (std::int64_t j = cols; j < tile_width; ++j)
      for (int i = 0; i < block; ++i) rows[j][i] = 0.0f;
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t steps = n - i < lanes ? n - i : lanes;
      for (int v = 0; v < tile_vectors; ++v) {
        Vec t[lanes];
        for (int j = 0; j < lanes; ++j) t[j] = load(&rows[v * lanes + j][i]);
        transpose(t);
        float* to = out + (p + i) * tile_width + v * lanes;
        for (int j = 0; j < steps; ++j) store(to + j * tile_width, t[j]);
      }
    }
  }
}

/// Columns of B with n contiguous (8- and 16-bit types only).
template <class Format>
inline void pack_panel_n_major(const Weights& weights, const Problem& problem, std::int64_t col,
                               std::int64_t k, std::int64_t count, float* __restrict out) {
  using Code = typename Format::Code;
  const std::int64_t cols = problem.n - col < tile_width ? problem.n - col : tile_width;
  const std::int64_t within_block = (std::int64_t{1} << weights.scales.shift) - 1;
  float scale[tile_width] = {};
  for (std::int64_t p = 0; p < count; ++p) {
    if (weights.scales.data == nullptr) {
      for (float& s : scale) s = 1.0f;
    } else if ((p & within_block) == 0) {
      for (std::int64_t j = 0; j < cols; ++j) scale[j] = weights.scales.at(col + j, k + p);
    }
    Code codes[tile_width] = {};
    const u8* in = weights.data + bytes<Format>((k + p) * problem.n + col);
    if (cols == tile_width)
      __builtin_memcpy(codes, in, sizeof codes);
    else
      __builtin_memcpy(codes, in, static_cast<std::size_t>(bytes<Format>(cols)));
    for (int j = 0; j < tile_width; ++j) out[p * tile_width + j] = Format::decode(codes[j]) * scale[j];
  }
}

/// B of columns col .. col+cols, k .. k+count, in panels of tile_width columns; columns at or past n are 0.
template <class Format>
inline void pack_b(const Call& call, int expert, std::int64_t col, std::int64_t cols, std::int64_t k,
                   std::int64_t count, float* out) {
  const Weights weights = weights_of<Format>(call, expert);
  for (std::int64_t j = 0; j < cols; j += tile_width) {
    float* panel = out + j * k_block;
    if constexpr (Format::bits >= 8) {
      if (call.problem.b_n_major) {
        pack_panel_n_major<Format>(weights, call.problem, col + j, k, count, panel);
        continue;
      }
    }
    pack_panel_k_major<Format>(weights, call.problem, col + j, k, count, panel);
  }
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
