#include "backend_option.hpp"

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "gemmule/error.hpp"
#include "text.hpp"

namespace gemmule::cli {

std::string backend_with_device(const std::string& backend, bool device_given) {
  if (!device_given || backend == "cuda") return backend;
  if (backend == "auto") return "cuda";
  throw InvalidArgument("--device: not with --backend " + backend + ", which runs on the host");
}

void BackendChoice::add_to(CLI::App& command) {
  command.add_option("--backend", name, "Who does the work (default auto: the fastest that is available)")
      ->check(CLI::IsMember({"auto", "reference", "cpu", "cuda"}));
  command.add_option("--device", device, "CUDA device (default 0); auto is then cuda")
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
  const std::string wanted = backend_with_device(name, device.has_value());
  const int index = device.value_or(0);
  if (wanted == "cuda") cuda::check_available(problem, index);
  if (wanted != "cuda" && (wanted != "auto" || !cuda::refusal(problem, index).empty()))
    return {std::nullopt, wanted == "auto" ? "cpu" : wanted};
  return {index, "cuda:" + std::to_string(index) + " " + cuda::gpu(index).name};
}

}  // namespace gemmule::cli
