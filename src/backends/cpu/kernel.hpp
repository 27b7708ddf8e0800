// The seam between the scheduling (cpu.cpp, built for the baseline machine) and the kernels, which are built once per
// instruction set. Plain data only: a template or inline function shared with a translation unit built for AVX-512
// could be the copy that the linker keeps.
#pragma once

#include <cstdint>

#include "operators/problem.hpp"

namespace gemmule::cpu {

/// The FP32 sum over k is defined, whatever the instruction set, as the sum in ascending order over blocks of this
/// many k of the chain fma(a[k], b[k], sum) within the block.
inline constexpr int k_block = 256;
/// dprob and dbias are partial sums over this many columns (of N) and rows, added in ascending order.
inline constexpr int group = 128;
/// Rows and columns that the epilogue handles at once; also the block of the output scales and of the gate/input
/// interleave.
inline constexpr int block = 32;

inline constexpr int max_unit_cols = 512;

/// Extents of one thread's scratch.
struct Blocking {
  std::int64_t rows;        ///< multiple of 32
  std::int64_t cols;        ///< columns of N, multiple of 128, at most max_unit_cols
  std::int64_t sum_stride;  ///< cols + 16
};
/// Strides are odd multiples of a cache line, so that the rows of a tile fall into different sets of the cache.
inline constexpr std::int64_t a_stride = k_block + 16;

/// One thread's scratch, in floats.
struct Scratch {
  float* a;    ///< [rows][a_stride]: dequantized A
  float* b;    ///< [cols/width][k_block][width]: dequantized B in panels of one register tile's width
  float* sum;  ///< [rows][sum_stride]: the product
};

struct Call {
  Problem problem;
  Operands operands;
  Blocking blocking;
  float* dprob_partial;  ///< [128-row groups of the wave][128][ceil(n/128)]
  float* dbias_partial;  ///< [128-row groups of the wave][2n]
};

/// A rectangle of the product: rows of one expert, columns of N.
struct Unit {
  int expert;
  std::int64_t group_start, group_rows;  ///< the expert's rows
  std::int64_t row;                      ///< first row, group_start plus a multiple of 128
  std::int64_t rows;
  std::int64_t col;  ///< first column, a multiple of 128
  std::int64_t cols;
  std::int64_t wave_group;  ///< index of the group of 128 rows that starts at `row`
};

/// Bits of the largest |d|, as signed integers: gate (or the only) columns, input columns. Written, not combined.
struct Maxima {
  std::int32_t bits[2];
};

/// Computes and stores everything that belongs to the unit.
using RunUnit = Maxima (*)(const Call& call, const Unit& unit, const Scratch& scratch) noexcept;

namespace avx512 {
Maxima run_unit(const Call& call, const Unit& unit, const Scratch& scratch) noexcept;
}
namespace avx2 {
Maxima run_unit(const Call& call, const Unit& unit, const Scratch& scratch) noexcept;
}
namespace generic {
Maxima run_unit(const Call& call, const Unit& unit, const Scratch& scratch) noexcept;
}

}  // namespace gemmule::cpu
