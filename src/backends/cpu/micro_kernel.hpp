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
inline void multiply_remainder(std::int64_t left, const float* a, const float* b, std::int64_t k, float* sum,
                               std::int64_t sum_stride, bool first) {
  if constexpr (rows > 0) {
    if (left == rows)
      multiply_tile<rows>(a, b, k, sum, sum_stride, first);
    else
      multiply_remainder<rows - 1>(left, a, b, k, sum, sum_stride, first);
  }
}

/// The same for any number of rows.
inline void multiply_panel(std::int64_t rows, const float* a, const float* b, std::int64_t k, float* sum,
                           std::int64_t sum_stride, bool first) {
  std::int64_t i = 0;
  for (; i + tile_rows <= rows; i += tile_rows)
    multiply_tile<tile_rows>(a + i * a_stride, b, k, sum + i * sum_stride, sum_stride, first);
  multiply_remainder<tile_rows - 1>(rows - i, a + i * a_stride, b, k, sum + i * sum_stride, sum_stride,
                                    first);
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
