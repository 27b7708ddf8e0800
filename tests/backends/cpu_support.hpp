// Runs the host backends on test problems.
#pragma once

#include "backends/cpu/cpu.hpp"
#include "backends/reference/reference.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// The cpu backend's outputs, with a workspace of exactly the size it asks for, filled with poison.
inline Outputs run_cpu(const TestProblem& t) {
  Outputs out = t.outputs();
  const auto bytes = cpu::workspace_size(t.problem, t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes));
  cpu::run(t.problem, t.operands(out), workspace.data(), bytes);
  return out;
}

inline Outputs run_reference(const TestProblem& t) {
  Outputs out = t.outputs();
  reference::run(t.problem, t.operands(out));
  return out;
}

}  // namespace gemmule::test
