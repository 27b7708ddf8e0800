// Every pair of option values of the Hopper kernel occurs in some specialization that compiles here without local memory,
// and a seeded sample does; with GEMMULE_ALL_SPECIALIZATIONS=product all do (about half an hour on two cores).
// GEMMULE_SHARD=I/N takes each Nth choice from the Ith on, so that several processes can share the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/kernel.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/machine_code.hpp"
#include "backends/specialization_cover.hpp"

namespace gemmule::cuda {
namespace {

constexpr DType output_types[] = {DType::bfloat16, DType::float16, DType::float32};
/// Values of: type of C, type of D, activation, weights, dbias, deterministic, dynamic, m_aligned.
constexpr std::array<int, 8> extents = {3, 3, 3, 3, 2, 2, 2, 2};
using Options = Choice<extents.size()>;

Problem problem_of(const Options& x) {
  Problem p;
  p.op = Op::dglu;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = DType::bfloat16;
  p.c = output_types[x[0]];
  p.d = output_types[x[1]];
  if (x[2] != 0) {
    p.act = ActFunc::dgeglu;
    p.geglu_value_filter = x[2] == 1;
    p.linear_offset = 1;
    p.geglu_alpha = 1.702f;
    p.glu_clamp_max = 7;
    p.glu_clamp_min = -7;
  }
  p.has_prob = p.has_dprob = true;
  p.discrete = x[3] != 0;
  p.b_n_major = x[3] == 2;
  p.has_dbias = x[4] != 0;
  p.deterministic = x[5] != 0;
  p.use_dynamic_sched = x[6] != 0;
  p.m_aligned = x[7] != 0 ? 128 : 256;
  return p;
}

/// GEMMULE_SHARD: first choice and step.
std::pair<std::size_t, std::size_t> shard() {
  const char* text = std::getenv("GEMMULE_SHARD");
  if (!text) return {0, 1};
  unsigned first = 0, step = 0;
  if (std::sscanf(text, "%u/%u", &first, &step) != 2 || first >= step)
    throw std::invalid_argument(std::string("GEMMULE_SHARD ") + text + ": expected I/N with I < N");
  return {first, step};
}

TEST(Sm90Specializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const std::vector<Options> all =
      legal_choices<extents.size()>(extents, [](const Options&) { return true; });
  const std::vector<Options> choices = chosen_for_test(all, 2);
  const auto [first, step] = shard();
  const auto choice = [&, first = first, step = step](std::size_t i) { return choices[first + i * step]; };
  const std::size_t count = (choices.size() - std::min(choices.size(), first) + step - 1) / step;
  const std::vector<std::string> faults = faults_of(
      count,
      [&](std::size_t i) {
        const Problem p = problem_of(choice(i));
        std::string reason;
        const Kernel* kernel = find_kernel(p, Arch::sm_90a, &reason);
        if (!kernel) return reason;
        const Compiled compiled = compile_source(kernel->specialize(p, Arch::sm_90a).source, Arch::sm_90a);
        return resource_fault(compiled) + overtaking_arrival(compiled.cubin);
      },
      step > 1 ? 1 : std::max(1u, std::thread::hardware_concurrency()));
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(faults[i], "") << "choice " << to_string(choice(i));
}

}  // namespace
}  // namespace gemmule::cuda
