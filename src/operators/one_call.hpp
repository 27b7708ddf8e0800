// What the one-call forms add to the class: output allocation with clean-up, scratch, the cached plan.
#pragma once

#include <optional>
#include <span>

#include "operators/checks.hpp"

namespace gemmule::operators {

/// An output to allocate; absent tensors are skipped. `args` of run_one_call() must refer to the same Tensor.
struct Output {
  Tensor* tensor;
  std::optional<InitialValue> initial{};
};

/// Checks memory, compiles or finds the plan, allocates and initialises the outputs, runs. When anything fails, every
/// allocation has been given back and the tensors hold no data.
void run_one_call(const PlanKey& key, const Arguments& args, std::span<const Output> outputs,
                  Allocator& allocator, Stream stream);

}  // namespace gemmule::operators
