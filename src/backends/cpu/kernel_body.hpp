// One unit of work from operands to outputs. Included once by each kernel_<target>.cpp, which names its namespace in
// GEMMULE_CPU_NAMESPACE and is built with that target's instruction set.
#pragma once

#include "backends/cpu/epilogue.hpp"
#include "backends/cpu/micro_kernel.hpp"
#include "backends/cpu/pack.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

/// C and D of the unit's rows from `row` and the 32 columns of N from `col`, both counted from the unit's first.
inline Ahead outputs_of(const Call& call, const Unit& unit, std::int64_t row, std::int64_t col) {
  const Problem& problem = call.problem;
  const Operands& operands = call.operands;
  const std::int64_t per_column = problem.op == Op::dglu ? 2 : 1;
  Ahead ahead;
  const auto add = [&](DType dtype, const void* base) {
    with_format(dtype, [&](auto format) {
      using Format = decltype(format);
      const std::int64_t pitch = bytes<Format>(per_column * problem.n);
      const char* first = static_cast<const char*>(base) + (unit.row + row) * pitch +
                          bytes<Format>(per_column * (unit.col + col));
      ahead.lines[ahead.count++] = {first, pitch, bytes<Format>(per_column * block)};
    });
  };
  add(problem.c, problem.op == Op::dglu ? operands.c_in : operands.c_out);
  add(problem.d, operands.d);
  if (problem.has_d_col) add(problem.d, operands.d_col);
  return ahead;
}

/// Adds one block of k to the product.
inline void multiply(const Call& call, const Unit& unit, const Scratch& scratch, std::int64_t count,
                     bool first) {
  for (std::int64_t j = 0; j < unit.cols; j += tile_width)
    multiply_panel(unit.rows, scratch.a, scratch.b + j * k_block, count, scratch.sum + j,
                   call.blocking.sum_stride, first, Ahead{});
}

/// The same for the last block of k, with the epilogue of 128 rows at a time while their product is in the cache and
/// few pages are in use.
inline void multiply_and_finish(const Call& call, const Unit& unit, const Scratch& scratch,
                                std::int64_t count, bool first, State& state) {
  const std::int64_t stride = call.blocking.sum_stride;
  for (std::int64_t i = 0; i < unit.rows; i += group) {
    const std::int64_t rows = unit.rows - i < group ? unit.rows - i : group;
    for (std::int64_t j = 0; j < unit.cols; j += tile_width)
      multiply_panel(rows, scratch.a + i * a_stride, scratch.b + j * k_block, count,
                     scratch.sum + i * stride + j, stride, first,
                     j % block == 0 ? outputs_of(call, unit, i, j) : Ahead{});
    epilogue(call, unit, scratch, i, i + rows, state);
  }
}

}  // namespace

Maxima run_unit(const Call& call, const Unit& unit, const Scratch& scratch) noexcept {
  State state;
  std::int64_t k = 0;
  do {
    const std::int64_t left = call.problem.k - k;
    const std::int64_t count = left < k_block ? left : k_block;
    with_operand_format(call.problem.ab, [&](auto format) {
      using Format = decltype(format);
      pack_a<Format>(call, unit.row, unit.rows, k, count, scratch.a);
      pack_b<Format>(call, unit.expert, unit.col, unit.cols, k, count, scratch.b);
    });
    if (count < left)
      multiply(call, unit, scratch, count, k == 0);
    else
      multiply_and_finish(call, unit, scratch, count, k == 0, state);
    k += count;
  } while (k < call.problem.k);
  return {{state.amax[0].largest(), state.amax[1].largest()}};
}

}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
