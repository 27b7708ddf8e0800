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
  n128_tail64_cluster1,
  n128_tail128_cluster2,
  n192_tail64_cluster2,
  n64_tail64_cluster1,
};
int cluster_size(DgluTile tile);
/// The last tile of a row is computed with a width of its own, which must reach over what n leaves there.
bool tile_fits(DgluTile tile, std::int64_t n);

struct ModelSettings {
  DgluTile tile = DgluTile::n128_tail64_cluster1;
  int multiprocessors = 2;  ///< CTAs of the persistent grid; a multiple of the cluster size
  bool dynamic = false;     ///< tiles from a global counter
  bool dependent = false;   ///< programmatic dependent launch: an earlier grid still runs
  std::uint64_t seed = 1;
  std::optional<model::Timing> timing{};
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
