// One unit of work from operands to outputs. Included once by each kernel_<target>.cpp, which names its namespace in
// GEMMULE_CPU_NAMESPACE and is built with that target's instruction set.
#pragma once

#include "backends/cpu/epilogue.hpp"
#include "backends/cpu/micro_kernel.hpp"
#include "backends/cpu/pack.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {

Maxima run_unit(const Call& call, const Unit& unit, const Scratch& scratch) noexcept {
  const std::int64_t stride = call.blocking.sum_stride;
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
    // The epilogue of 128 columns follows their last product while they are in the cache.
    for (std::int64_t strip = 0; strip < unit.cols; strip += group) {
      const std::int64_t cols = unit.cols - strip < group ? unit.cols - strip : group;
      for (std::int64_t j = strip; j < strip + cols; j += tile_width)
        multiply_panel(unit.rows, scratch.a, scratch.b + j * k_block, count, scratch.sum + j, stride, k == 0);
      if (count == left) epilogue(call, unit, scratch, unit.col + strip, cols, state);
    }
    k += count;
  } while (k < call.problem.k);
  return {{state.amax[0].largest(), state.amax[1].largest()}};
}

}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
