// Runs the block-scaled sm_90a kernels, from their own source and with the host's own parameters, on the host model of
// the instructions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/machine.hpp"
#include "sm90/scaled_params.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

struct ScaledSettings {
  int multiprocessors = 2;  ///< CTAs of the persistent grid
  bool dependent = false;   ///< programmatic dependent launch: an earlier grid still runs
  std::uint64_t seed = 1;
  std::optional<model::Timing> timing{};
  bool stop_at_hazard = false;
  std::int64_t instruction_limit = 400'000'000;
  std::optional<std::pair<model::Op, model::Site>> drop{};
};

struct ScaledReports {
  model::Report prepare, main, finish;
  std::string text() const { return prepare.text() + main.text() + finish.text(); }
};

/// Runs prepare, main and finish as the backend does, into `out`.
ScaledReports run_scaled_on_model(const TestProblem& t, const Outputs& out, const ScaledSettings& settings);

/// On the model and on the CPU backend: empty when there is no hazard and the bytes are the same.
std::string difference_from_cpu(const TestProblem& t, const ScaledSettings& settings);

// The kernels, compiled for the host in files of their own.
void run_scaled_srelu(const kernels::ScaledSreluOptions& options, const kernels::ScaledSreluParams& params);
void run_scaled_dglu(const kernels::ScaledDgluOptions& options, const kernels::ScaledDgluParams& params);

}  // namespace gemmule::test
