// Runs the sm_90a BF16 dGLU kernels, from their own source, on the host model of the instructions.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/machine.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// Tile shapes the tests compile.
enum class DgluTile : std::uint8_t {
  n128_cluster1,
  n128_cluster2,
  n192_cluster2,
  n64_cluster1,
};
struct ModelSettings {
  DgluTile tile = DgluTile::n128_cluster1;
  int multiprocessors = 2;  ///< CTAs of the persistent grid; a multiple of the cluster size
  bool dynamic = false;     ///< tiles from a global counter
  bool dependent = false;   ///< programmatic dependent launch: an earlier grid still runs
  std::uint64_t seed = 1;
  std::optional<model::Timing> timing{};
  bool stop_at_hazard = false;
  std::int64_t instruction_limit = 100'000'000;
  std::optional<std::pair<model::Op, model::Site>> drop{};
};

struct DgluReports {
  model::Report prepare, main, finish;
  std::string text() const { return prepare.text() + main.text() + finish.text(); }
};

/// Runs prepare, main and finish as the backend does, into `out`.
DgluReports run_dglu_on_model(const TestProblem& t, const Outputs& out, const ModelSettings& settings);

}  // namespace gemmule::test
