// The problems of `gemmule selfcheck`: every operator, format, activation and kind of weights in turn, the other options
// drawn.
#pragma once

#include <cstdint>
#include <string>

#include "problem_builder.hpp"

namespace gemmule::cli {

struct SelfcheckCase {
  ProblemSpec spec;
  std::uint64_t seed = 0;
  bool exact = false;

  io::LoadedProblem build() const;
  /// What build() makes, without its rows and values.
  Problem problem() const;
  /// The command that makes the same problem file.
  std::string command() const;
};

/// Cases in one round: operator, format, activation and weights, each once with random and once with exact data.
std::size_t selfcheck_round();
/// Case number `index`, the same for the same seed.
SelfcheckCase selfcheck_case(std::uint64_t seed, std::size_t index);

}  // namespace gemmule::cli
