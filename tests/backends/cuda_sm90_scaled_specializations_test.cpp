// Specializations of the block-scaled Hopper kernels compile without serialized wgmma, an ignored setmaxnreg or more than
// the few spills they may have, and no arrival overtakes a load: a set in which every pair of option values occurs, and a
// seeded sample.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
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

constexpr std::size_t shares = 2;

/// Operator and share.
class Sm90ScaledSpecializations : public testing::TestWithParam<std::tuple<Op, std::size_t>> {};

TEST_P(Sm90ScaledSpecializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const auto [op, index] = GetParam();
  for (const ScaledChoice& x : share_of(chosen_for_test(legal_scaled_choices(op, true), 2), index, shares))
    EXPECT_EQ(fault(op, x), "") << "choice " << to_string(x);
}

std::string share_name(const testing::TestParamInfo<std::tuple<Op, std::size_t>>& info) {
  const auto [op, share] = info.param;
  return (op == Op::srelu ? "srelu" : "dglu") + std::to_string(share);
}

INSTANTIATE_TEST_SUITE_P(Operators, Sm90ScaledSpecializations,
                         testing::Combine(testing::Values(Op::srelu, Op::dglu),
                                          testing::Range(std::size_t{0}, shares)),
                         share_name);

}  // namespace
}  // namespace gemmule::cuda
