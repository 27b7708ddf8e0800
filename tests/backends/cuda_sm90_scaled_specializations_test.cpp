// Specializations of the block-scaled Hopper kernels compile without serialized wgmma, an ignored setmaxnreg or more than
// the few spills they may have, and no arrival overtakes a load: a few by default, with GEMMULE_ALL_SPECIALIZATIONS=1 a set in which every pair of option values occurs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/kernel.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sm90_scaled.hpp"
#include "backends/machine_code.hpp"
#include "backends/scaled_choices.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::cuda {
namespace {

/// Arrivals that need not wait for loads: on expanded B, which only wgmma reads; on C, of which every warp has used what it
/// loaded before the barrier of the warpgroup that precedes the arrival.
bool need_not_wait(const Problem& p, std::uint64_t offset) {
  const kernels::ScaledLayout layout = p.op == Op::srelu
                                           ? kernels::scaled_layout(host::scaled_options(p))
                                           : kernels::scaled_dglu_layout(host::scaled_dglu_options(p));
  const std::uint32_t expanded_b = layout.barriers + 8 * (2 * layout.stages + layout.b_buffers);
  const std::uint32_t tiles = expanded_b + 8 * layout.b_buffers, c = tiles + 8 * 2 * 4;
  return offset == expanded_b || offset >= c;
}

/// What is wrong with a choice; empty if nothing is.
std::string fault(Op op, const ScaledChoice& choice) {
  Problem p;
  make_scaled_problem(op, choice, p);
  std::string reason;
  const Kernel* kernel = find_kernel(p, Arch::sm_90a, &reason);
  if (!kernel) return reason;
  const Specialization specialization = kernel->specialize(p, Arch::sm_90a);
  const Compiled compiled = compile_source(specialization.source, Arch::sm_90a);
  return resource_fault(compiled, specialization.tolerated_spill_bytes) +
         overtaking_arrival(compiled.cubin, [&](std::uint64_t offset) { return need_not_wait(p, offset); });
}

class Sm90ScaledSpecializations : public testing::TestWithParam<Op> {};

TEST_P(Sm90ScaledSpecializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const bool everything = std::getenv("GEMMULE_ALL_SPECIALIZATIONS") != nullptr;
  const std::vector<ScaledChoice> legal = legal_scaled_choices(GetParam(), true);
  const std::vector<ScaledChoice> choices = pairwise_cover(legal, everything ? legal.size() : 3);
  const std::vector<std::string> faults =
      faults_of(choices.size(), [&](std::size_t i) { return fault(GetParam(), choices[i]); });
  for (std::size_t i = 0; i < choices.size(); ++i)
    EXPECT_EQ(faults[i], "") << "choice " << to_string(choices[i]);
  if (everything) std::printf("%zu specializations\n", choices.size());
}

std::string operator_name(const testing::TestParamInfo<Op>& info) {
  return info.param == Op::srelu ? "srelu" : "dglu";
}

INSTANTIATE_TEST_SUITE_P(Operators, Sm90ScaledSpecializations, testing::Values(Op::srelu, Op::dglu),
                         operator_name);

}  // namespace
}  // namespace gemmule::cuda
