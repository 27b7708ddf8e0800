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
  int vec;
  bool e4m3;

  /// The scales of one row for k_block values of k from `k`, a multiple of k_block: one per 16 values, whatever vec is.
  /// Blocks past the end of k are decoded too (their bytes exist), but belong to no value.
  GEMMULE_INLINE void load(std::int64_t row, std::int64_t k, float (&out)[k_block / 16]) const {
    constexpr int per_atom = static_cast<int>(layout::atom_blocks);
    u8 code[k_block / 16] = {};
    const int count = k_block / vec;
    const std::int64_t first = k / vec / per_atom;
    const u8* in = data + layout::scale_offset(row, first * per_atom, atoms);
    for (int i = 0; i < count / per_atom && first + i < atoms; ++i)
      __builtin_memcpy(code + i * per_atom, in + i * layout::atom_bytes, per_atom);
    float scale[k_block / 16];
    if (e4m3)
      for (int i = 0; i < k_block / 16; ++i) scale[i] = numerics::decode_e4m3(code[i]);
    else
      for (int i = 0; i < k_block / 16; ++i) scale[i] = numerics::decode_e8m0(code[i]);
    if (vec == 16)
      for (int i = 0; i < k_block / 16; ++i) out[i] = scale[i];
    else
      for (int i = 0; i < k_block / 16; ++i) out[i] = scale[i / 2];
  }
};

GEMMULE_INLINE Scales make_scales(const Problem& problem, const void* data) {
  if (problem.scale == DType::none) return {nullptr, 0, 1, false};
  return {static_cast<const u8*>(data), layout::block_atoms(problem.k, problem.vec), problem.vec,
          problem.scale == DType::float8_e4m3fn};
}

/// out[0..count) = count contiguous values times their scales, scale[0] for the first 16; count <= 32.
template <class Format>
GEMMULE_INLINE void dequantize(const u8* in, const float* scale, std::int64_t count, float* __restrict out) {
  u8 padded[block * Format::bits / 8] = {};
  if (count < block) {
    __builtin_memcpy(padded, in, static_cast<std::size_t>(bytes<Format>(count)));
    in = padded;
  }
  if constexpr (Format::bits == 16) {
    decode_row<Format>(in, out, [](float x, int) { return x; });
  } else {
    const float low = scale[0], high = scale[1];
    decode_row<Format>(in, out, [=](float x, int i) { return x * (i < 16 ? low : high); });
  }
}

/// A of rows row .. row+rows, k .. k+count, row by row.
template <class Format>
inline void pack_a(const Call& call, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t count,
                   float* out) {
  const Scales scales = make_scales(call.problem, call.operands.sfa);
  const u8* in = static_cast<const u8*>(call.operands.a) + bytes<Format>(row * call.problem.k + k);
  float scale[k_block / 16];
  for (std::int64_t i = 0; i < rows; ++i) {
    if constexpr (Format::bits < 16) scales.load(row + i, k, scale);
    for (std::int64_t p = 0; p < count; p += block)
      dequantize<Format>(in + bytes<Format>(p), scale + p / 16, count - p < block ? count - p : block,
                         out + i * a_stride + p);
    in += bytes<Format>(call.problem.k);
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
      const u8* data = nullptr;
      if (list != nullptr) __builtin_memcpy(&data, list + expert, sizeof data);
      return data;
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
  alignas(64) float rows[tile_width][block] = {};
  float scale[tile_width][k_block / 16];
  const std::int64_t cols = problem.n - col < tile_width ? problem.n - col : tile_width;
  if constexpr (Format::bits < 16)
    for (std::int64_t j = 0; j < cols; ++j) weights.scales.load(col + j, k, scale[j]);
  for (std::int64_t p = 0; p < count; p += block) {
    const std::int64_t n = count - p < block ? count - p : block;
    const u8* in = weights.data + bytes<Format>(col * problem.k + k + p);
    for (std::int64_t j = 0; j < cols; ++j) {
      const u8* row = in + j * bytes<Format>(problem.k);
      __builtin_prefetch(row + tile_width * bytes<Format>(problem.k));  // of the next panel
      dequantize<Format>(row, scale[j] + p / 16, n, rows[j]);
    }
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t steps = n - i < lanes ? n - i : lanes;
      for (int v = 0; v < tile_vectors; ++v) {
        Vec t[lanes];
#pragma GCC unroll 16
        for (int j = 0; j < lanes; ++j) t[j] = load(&rows[v * lanes + j][i]);
        transpose(t);
        float* to = out + (p + i) * tile_width + v * lanes;
        if (steps == lanes) {
#pragma GCC unroll 16
          for (int j = 0; j < lanes; ++j) store(to + j * tile_width, t[j]);
        } else {
          for (int j = 0; j < steps; ++j) store(to + j * tile_width, t[j]);
        }
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
  float scale[k_block / 16][tile_width] = {};
  for (std::int64_t j = 0; j < cols; ++j) {
    float of_column[k_block / 16];
    for (float& s : of_column) s = 1.0f;
    if constexpr (Format::bits < 16) weights.scales.load(col + j, k, of_column);
    for (int i = 0; i < k_block / 16; ++i) scale[i][j] = of_column[i];
  }
  for (std::int64_t p = 0; p < count; ++p) {
    Code codes[tile_width] = {};
    const u8* in = weights.data + bytes<Format>((k + p) * problem.n + col);
    if (cols == tile_width)
      __builtin_memcpy(codes, in, sizeof codes);
    else
      __builtin_memcpy(codes, in, static_cast<std::size_t>(bytes<Format>(cols)));
    for (int j = 0; j < tile_width; ++j)
      out[p * tile_width + j] = Format::decode(codes[j]) * scale[p / 16][j];
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
