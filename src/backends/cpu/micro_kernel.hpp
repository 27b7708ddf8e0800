// The inner product: a register tile of the FP32 sum for one block of k.
#pragma once

#include "backends/cpu/kernel.hpp"
#include "backends/cpu/simd.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

/// sum[rows][tile_width] (+)= a[rows][k] * b[k][tile_width]; `first` overwrites. A is read in place, one broadcast per
/// value; its rows are a_stride apart, so that every address is one register and a constant.
template <int rows>
__attribute__((noinline)) void multiply_tile(const float* __restrict a, const float* __restrict b,
                                             std::int64_t k, float* __restrict sum, std::int64_t sum_stride,
                                             bool first) {
  Vec acc[rows][tile_vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < tile_vectors; ++v) acc[i][v] = splat(0.0f);
#pragma GCC unroll 2
  for (std::int64_t p = 0; p < k; ++p) {
    Vec bv[tile_vectors];
    for (int v = 0; v < tile_vectors; ++v) bv[v] = load(b + p * tile_width + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Vec av = splat(a[i * a_stride + p]);
      for (int v = 0; v < tile_vectors; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < tile_vectors; ++v) {
      float* out = sum + i * sum_stride + v * lanes;
      store(out, first ? acc[i][v] : load(out) + acc[i][v]);
    }
  }
}

template <int rows>
inline void multiply_rows(std::int64_t wanted, const float* a, const float* b, std::int64_t k, float* sum,
                          std::int64_t sum_stride, bool first) {
  if constexpr (rows > 0) {
    if (wanted == rows)
      multiply_tile<rows>(a, b, k, sum, sum_stride, first);
    else
      multiply_rows<rows - 1>(wanted, a, b, k, sum, sum_stride, first);
  }
}

/// Rows of memory that the epilogue will want: fetched while the multiplication keeps the arithmetic units busy.
struct Ahead {
  struct Lines {
    const char* first;
    std::int64_t pitch;
    std::int64_t bytes;  ///< of each row
  };
  Lines lines[3];
  int count = 0;

  GEMMULE_INLINE void fetch(std::int64_t row, std::int64_t rows) const {
    for (int i = 0; i < count; ++i) {
      const char* p = lines[i].first + row * lines[i].pitch;
      for (std::int64_t r = 0; r < rows; ++r, p += lines[i].pitch)
        for (std::int64_t b = 0; b < lines[i].bytes; b += 64) __builtin_prefetch(p + b, 0, 2);
    }
  }
};

/// The same for any number of rows. The last rows are halved rather than cut into a full tile and a thin one, whose
/// few accumulators would leave the multipliers waiting.
inline void multiply_panel(std::int64_t rows, const float* a, const float* b, std::int64_t k, float* sum,
                           std::int64_t sum_stride, bool first, const Ahead& ahead) {
  for (std::int64_t i = 0, size = 0; i < rows; i += size) {
    const std::int64_t left = rows - i;
    size = left >= 2 * tile_rows || left == tile_rows ? tile_rows : left > tile_rows ? left / 2 : left;
    ahead.fetch(i, size);
    multiply_rows<tile_rows>(size, a + i * a_stride, b, k, sum + i * sum_stride, sum_stride, first);
  }
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
