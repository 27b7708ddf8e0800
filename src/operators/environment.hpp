// Integers in environment variables.
#pragma once

#include <optional>

namespace gemmule::operators {

/// text: null when the variable is unset or empty. value: absent when the text is not an integer in range.
struct EnvironmentInteger {
  const char* text = nullptr;
  std::optional<int> value;
};
EnvironmentInteger integer_from_environment(const char* variable, int low, int high) noexcept;

/// CUDNNFE_CLUSTER_OVERLAP_MARGIN: clusters that a launch leaves free for others. Throws InvalidArgument.
int cluster_overlap_margin();

/// Throws InvalidArgument when GEMMULE_NUM_THREADS is set to something that num_threads() cannot use.
void check_thread_environment();

}  // namespace gemmule::operators
