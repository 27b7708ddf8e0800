#include "backend_option.hpp"

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "text.hpp"

namespace gemmule::cli {

void BackendChoice::add_to(CLI::App& command) {
  command.add_option("--backend", name, "Who does the work (default auto: the fastest that is available)")
      ->check(CLI::IsMember({"auto", "reference", "cpu", "cuda"}));
  command.add_option("--device", device, "CUDA device (default 0)")
      ->transform(decimal)
      ->check(CLI::Range(0, 1023));
  command
      .add_option("--threads", threads, "Threads of the cpu backend (default: all, or GEMMULE_NUM_THREADS)")
      ->transform(decimal)
      ->check(CLI::Range(1, 1024));
}

void BackendChoice::apply(io::LoadedProblem& problem) const {
  // The tensors of a problem file are on the host; their copies on a device choose that backend by themselves.
  problem.common().backend = name == "auto" || name == "cuda" ? Backend::automatic : backend_from_name(name);
  if (threads) set_num_threads(threads);
}

Runner BackendChoice::runner(const Problem& problem) const {
  if (name == "cuda") cuda::check_available(problem, device);
  if (name != "cuda" && (name != "auto" || !cuda::refusal(problem, device).empty()))
    return {std::nullopt, name == "auto" ? "cpu" : name};
  return {device, "cuda:" + std::to_string(device) + " " + cuda::gpu(device).name};
}

}  // namespace gemmule::cli
