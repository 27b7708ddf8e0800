// --backend and --device, as run, verify and bench take them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "gemmule/options.hpp"
#include "io/problem_file.hpp"

namespace gemmule::cli {

struct BackendChoice {
  std::string name = "auto";
  int device = 0;
  int threads = 0;  ///< 0: the library's default

  void add_to(CLI::App& command);
  bool is_reference() const { return name == "reference"; }
  /// Sets the problem's backend and the threads. Throws RuntimeFailure for a backend that cannot run here.
  void apply(io::LoadedProblem& problem) const;
  Backend backend() const;
};

}  // namespace gemmule::cli
