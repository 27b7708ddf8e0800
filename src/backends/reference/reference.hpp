// The float64 oracle: every output by one plain loop, written independently of numerics/ and layout/.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::reference {

/// One output in double before rounding to its dtype, and the largest error decisions allow for each element
/// (half an ulp of the output format + accumulation, formula and underflow terms carried through the epilogue).
struct Values {
  std::vector<double> value;
  std::vector<double> bound;
  std::vector<std::uint8_t>
      overflow;  ///< 1: float32 may overflow on the way, so infinity and NaN are right too
  bool empty() const { return value.empty(); }
};

/// Rows at or past the last offset hold NaN in `value` (they are never written). c: srelu only. d: the exact D before
/// rounding or quantization, [M][width]. dprob, dbias and amax include what the caller's buffers held at entry.
struct Result {
  Values c, d, dprob, dbias, amax;
};

Result evaluate(const Problem& problem, const Operands& operands);

/// Reference as a backend: evaluate(), round or quantize by independent code, store to the operands' outputs.
void run(const Problem& problem, const Operands& operands);

}  // namespace gemmule::reference
