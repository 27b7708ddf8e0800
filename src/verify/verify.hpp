// Compares the outputs of one call with the float64 reference, element by element under the bound of reference.hpp:
// half an ulp of the output format, plus the float32 accumulation and formula errors carried through the epilogue.
//
// Quantized D and D_col are dequantized with the scale that was stored and compared with the exact D; the rounding
// allowed is half an ulp of the format at that scale. Stored scale codes may differ from those of the exact D by one
// step in at most 0.2 % of the blocks (one block is always granted). Padding scale bytes are not looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/reference/reference.hpp"
#include "operators/problem.hpp"

namespace gemmule::verify {

/// The first element out of bound.
struct Mismatch {
  std::int64_t row = 0,
               column = 0;  ///< sfd_col: row is the first of the 32 rows; amax and dbias: row is the expert
  double got = 0, expected = 0, bound = 0;
  std::uint32_t got_code = 0;  ///< the stored bits
};

/// The comparison of one output.
struct Check {
  std::string output;          ///< "c", "d", "d_col", "sfd_row", "sfd_col", "amax", "dprob", "dbias"
  std::int64_t elements = 0;   ///< compared
  double max_error = 0;        ///< largest |got - expected|; for scale codes the largest difference in steps
  double max_ratio = 0;        ///< largest error / bound (not for scale codes)
  double relative_error = 0;   ///< ||got - expected|| / ||expected||, Frobenius, over finite elements
  std::int64_t differing = 0;  ///< scale codes that are not those of the exact D
  std::int64_t out_of_bound = 0;  ///< elements that fail; for scale codes those more than one step off
  std::int64_t overwritten = 0;   ///< bytes of rows past the last offset that were changed
  std::optional<Mismatch> first;  ///< the first failing element

  /// Nothing out of bound, nothing written past the last row, scale codes within their budget.
  bool passed() const;
};

struct Report {
  std::vector<Check> checks;
  bool passed() const;
  /// The check of one output, null if it was not compared.
  const Check* find(const std::string& output) const;
};

struct Settings {
  /// The byte that every output buffer was filled with before the call. When given, rows past the last offset must
  /// still hold it.
  std::optional<std::uint8_t> poison;
};

/// `inputs`: the operands as they were before the call; its dprob, dbias and amax hold the initial values (null: 0, 0
/// and -inf). `outputs`: the pointers to what the call wrote; its input pointers are not used.
Report compare(const Problem& problem, const Operands& inputs, const Operands& outputs,
               const Settings& settings = {});

/// The same with an evaluation of `inputs` that the caller already has.
Report compare(const Problem& problem, const Operands& inputs, const Operands& outputs,
               const reference::Result& exact, const Settings& settings = {});

/// ||got - expected|| / ||expected|| (Frobenius). Elements where either is not finite are left out; 0 for 0/0.
double relative_frobenius(std::span<const double> got, std::span<const double> expected);

/// One line per output, for people and for test messages.
std::string to_string(const Report& report);

}  // namespace gemmule::verify
