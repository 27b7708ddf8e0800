// Gate and input columns of C and D in grouped_gemm_dglu: blocks of 32 columns alternate, gate first.
#pragma once

#include "layout/offsets.hpp"

namespace gemmule::layout {

inline constexpr i64 interleave_block = 32;

/// Column of C and D that holds the gate of compact column n.
GEMMULE_HD constexpr i64 gate_column(i64 n) {
  return n / interleave_block * (2 * interleave_block) + n % interleave_block;
}
/// Column of C and D that holds the input of compact column n.
GEMMULE_HD constexpr i64 input_column(i64 n) {
  return gate_column(n) + interleave_block;
}

}  // namespace gemmule::layout
