// Leaves out every synchronising instruction of a kernel in turn, wherever one line executes it: the model must notice, by
// a hazard or by a wrong result, under some timing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/report.hpp"

namespace gemmule::test {

using Mutation = std::pair<model::Op, model::Site>;

/// One problem with its settings.
struct MutantVariant {
  /// Runs it under a seed without the instruction: the first sign of a fault, empty if there is none.
  std::function<std::string(std::uint64_t seed, const Mutation& drop)> sign;
  std::vector<Mutation> sites;
};

/// An instruction that orders nothing the model sees, or whose absence few timings show; `sites` of it are excused.
struct Harmless {
  model::Op op;
  const char* file;
  const char* why;
  int sites = 1;
};

/// The synchronising instructions a run executed.
std::vector<Mutation> synchronising_sites(const model::Report& report);

/// Expects a sign of every mutation of every `every`-th site; returns how many were tried.
std::size_t expect_mutants_caught(std::span<const MutantVariant> variants, std::span<const Harmless> harmless,
                                  std::size_t every = 1, std::uint64_t seeds = 8);

}  // namespace gemmule::test
