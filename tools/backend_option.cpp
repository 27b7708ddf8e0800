#include "backend_option.hpp"

#include "gemmule/error.hpp"

namespace gemmule::cli {

void BackendChoice::add_to(CLI::App& command) {
  command.add_option("--backend", name, "Who does the work (default auto: the fastest that is available)")
      ->check(CLI::IsMember({"auto", "reference", "cpu", "cuda"}));
  command.add_option("--device", device, "CUDA device (default 0)")->check(CLI::Range(0, 1023));
  command
      .add_option("--threads", threads, "Threads of the cpu backend (default: all, or GEMMULE_NUM_THREADS)")
      ->check(CLI::Range(1, 1024));
}

Backend BackendChoice::backend() const {
  if (name == "cuda") throw RuntimeFailure("--backend cuda: the CUDA backend is not available in this build");
  return name == "auto" ? Backend::automatic : backend_from_name(name);
}

void BackendChoice::apply(io::LoadedProblem& problem) const {
  problem.common().backend = backend();
  if (threads) set_num_threads(threads);
}

}  // namespace gemmule::cli
