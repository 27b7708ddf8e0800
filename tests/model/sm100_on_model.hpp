// Runs the sm_100 kernels, from their own source and with the host's own parameters, on the host model of the
// instructions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/sm100_host.hpp"
#include "engine/machine.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// Tile shapes that are compiled for the model.
std::vector<cuda::sm100::TileConfig> sm100_tiles(Op op);

struct Sm100Settings {
  cuda::sm100::TileConfig tile{128, 2, 1};  ///< one of sm100_tiles(), in clusters of any width
  int multiprocessors = 2;                  ///< CTAs of the persistent grid, a multiple of a cluster's
  bool dependent = false;                   ///< programmatic dependent launch: an earlier grid still runs
  std::uint64_t seed = 1;
  std::optional<model::Timing> timing{};
  bool stop_at_hazard = false;
  std::int64_t instruction_limit = 400'000'000;
  std::optional<std::pair<model::Op, model::Site>> drop{};
};

struct Sm100Reports {
  model::Report prepare, prepare_scales, main, finish;
  std::string text() const { return prepare.text() + prepare_scales.text() + main.text() + finish.text(); }
};

/// Runs prepare, main and finish as the backend does, into `out`.
Sm100Reports run_sm100_on_model(const TestProblem& t, const Outputs& out, const Sm100Settings& settings);

/// On the model and on the CPU backend: empty when there is no hazard and the bytes are the same.
std::string difference_from_cpu(const TestProblem& t, const Sm100Settings& settings);

}  // namespace gemmule::test
