// --backend and --device, as run, verify and bench take them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gemmule/options.hpp"
#include "io/problem_file.hpp"

namespace gemmule::cli {

/// Who runs a problem.
struct Runner {
  std::optional<int> cuda_device;  ///< none: the host
  std::string name;                ///< "cpu", "reference", "cuda:0 NVIDIA H200"
};

/// `backend`, or cuda for auto where --device was given. Throws InvalidArgument for a backend on the host with --device.
std::string backend_with_device(const std::string& backend, bool device_given);

struct BackendChoice {
  std::string name = "auto";
  std::optional<int> device;
  int threads = 0;  ///< 0: the library's default

  void add_to(CLI::App& command);
  bool is_reference() const { return name == "reference"; }
  /// Sets the backend among those on the host, and the threads.
  void apply(io::LoadedProblem& problem) const;
  /// auto: the device where it can run the problem, otherwise the cpu. cuda, or a device named: throws when it cannot.
  Runner runner(const Problem& problem) const;
};

}  // namespace gemmule::cli
