// What the runs of all kernels on the host model have in common.
#pragma once

#include "engine/machine.hpp"
#include "sm90/dglu_side.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// A test problem's operands and outputs: what a kernel may read and write.
/// `sfd_row`: read_write where bytes of different threads lie in one granule of the launch.
inline void register_memory(model::GlobalMemory& memory, const TestProblem& t, const Outputs& out,
                            const Buffer& workspace, model::Access sfd_row = model::Access::write_once) {
  using model::Access;
  const auto add = [&](const Buffer& b, const char* name, Access access, bool initialised = true) {
    if (b.size() > 0) memory.add(b.data(), static_cast<std::size_t>(b.size()), name, access, initialised);
  };
  const auto input = [&](const Buffer& b, const char* name) { add(b, name, Access::read_only); };
  const auto vector = [&](const auto& v, const char* name) {
    if (!v.empty()) memory.add(v.data(), v.size() * sizeof v[0], name, Access::read_only);
  };
  input(t.a, "a");
  input(t.sfa, "sfa");
  for (const Buffer& b : t.b) input(b, "b");
  for (const Buffer& b : t.sfb) input(b, "sfb");
  input(t.c_in, "c");
  input(t.alpha, "alpha");
  input(t.beta, "beta");
  input(t.prob, "prob");
  input(t.norm_const, "norm_const");
  input(t.bias, "bias");
  vector(t.padded_offsets, "padded_offsets");
  vector(t.b_ptrs, "b_ptrs");
  vector(t.sfb_ptrs, "sfb_ptrs");
  add(out.c, "c", Access::write_once);
  add(out.d, "d", Access::write_once);
  add(out.d_col, "d_col", Access::write_once);
  add(out.sfd_row, "sfd_row", sfd_row);
  add(out.sfd_col, "sfd_col", Access::write_once);
  add(out.amax, "amax", Access::read_write);
  add(out.dprob, "dprob", Access::read_write);
  add(out.dbias, "dbias", Access::read_write);
  add(workspace, "workspace", Access::read_write, false);
}

/// Options of every launch of a run; grid, threads, shared memory and `drop` are the launch's own.
template <class Settings>
model::LaunchOptions launch_options(const Settings& settings) {
  model::LaunchOptions launch;
  launch.seed = settings.seed;
  launch.timing = settings.timing;
  launch.resident = settings.multiprocessors;
  launch.dependent = settings.dependent;
  launch.stop_at_hazard = settings.stop_at_hazard;
  launch.instruction_limit = settings.instruction_limit;
  return launch;
}

/// The kernel that adds up the sums of dGLU. `launch`: the options of the main one.
inline model::Report run_finish(model::LaunchOptions launch, model::GlobalMemory& memory,
                                const kernels::DgluFinishParams& finish) {
  launch.threads = static_cast<int>(kernels::finish_threads);
  launch.grid = static_cast<int>(kernels::finish_ctas(finish));
  launch.cluster = 1;
  launch.shared_bytes = 0;
  launch.drop.reset();
  return model::launch(launch, memory, [&] { kernels::dglu_finish(finish); });
}

}  // namespace gemmule::test
