// Registers a test problem's operands and outputs with the host model: what a kernel may read and write.
#pragma once

#include "engine/global_memory.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

inline void register_memory(model::GlobalMemory& memory, const TestProblem& t, const Outputs& out,
                            const Buffer& workspace) {
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
  add(out.sfd_row, "sfd_row", Access::read_write);  // bytes of different threads in one word
  add(out.sfd_col, "sfd_col", Access::write_once);
  add(out.amax, "amax", Access::read_write);
  add(out.dprob, "dprob", Access::read_write);
  add(out.dbias, "dbias", Access::read_write);
  add(workspace, "workspace", Access::read_write, false);
}

}  // namespace gemmule::test
