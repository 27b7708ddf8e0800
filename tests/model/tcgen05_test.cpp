// tcgen05 on the model: each kind of multiplication computes what is documented, and each rule is needed.
#include <gtest/gtest.h>

#include <string>

#include "model/tensor_kernel.hpp"

namespace gemmule::test {
namespace {

using model::Hazard;
using model::Op;

TEST(ModelTensor, ComputesWhatIsDocumented) {
  for (const TensorCase& c : litmus::tensor_cases()) {
    const TensorData data(c, 7);
    for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
      const TensorOutcome r = run_tensor_kernel(data, {.seed = 3, .timing = timing});
      EXPECT_EQ(r.report.text(), "") << name_of(c);
      EXPECT_TRUE(r.correct) << name_of(c);
    }
  }
}

/// Leaves out every call of `op` in turn: each must be noticed under every seed, and give `kind` under some.
void expect_needed(const TensorCase& c, Op op, Hazard kind) {
  const TensorData data(c, 11);
  const std::vector<model::Site> sites = run_tensor_kernel(data, {}).report.sites(op);
  EXPECT_FALSE(sites.empty()) << model::name(op);
  bool found = false;
  for (const model::Site& site : sites) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const TensorOutcome r = run_tensor_kernel(data, {.seed = seed, .drop = std::pair{op, site}});
      EXPECT_FALSE(r.report.clean() && r.correct)
          << name_of(c) << " without " << model::name(op) << " at " << to_string(site) << ", seed " << seed;
      found = found || r.report.has(kind);
    }
  }
  EXPECT_TRUE(found) << name_of(c) << " without " << model::name(op) << " never shows '" << model::name(kind)
                     << "'";
}

TEST(ModelTensor, EachSynchronisationIsNeeded) {
  const TensorCase one{.type = TensorType::nvf4, .n = 32},
      two{.type = TensorType::e4m3, .ctas = 2, .m = 256, .n = 32};
  for (const TensorCase& c : {one, two}) {
    expect_needed(c, Op::tensor_alloc, Hazard::uninitialised_read);
    expect_needed(c, Op::tensor_dealloc, Hazard::tensor_memory_misuse);
    expect_needed(c, Op::tensor_copy, Hazard::uninitialised_read);
    expect_needed(c, Op::tensor_mma, Hazard::uninitialised_read);
    expect_needed(c, Op::tensor_commit, Hazard::deadlock);
    expect_needed(c, Op::tensor_load, Hazard::uninitialised_read);
    expect_needed(c, Op::tensor_wait_load, Hazard::missing_tensor_wait);
    expect_needed(c, Op::tensor_fence_before, Hazard::missing_tensor_fence);
    expect_needed(c, Op::tensor_fence_after, Hazard::missing_tensor_fence);
    expect_needed(c, Op::mbarrier_wait, Hazard::read_before_completion);
    expect_needed(c, Op::mbarrier_arrive, Hazard::deadlock);
    expect_needed(c, Op::fence_proxy_async, Hazard::missing_proxy_fence);
    expect_needed(c, c.ctas == 1 ? Op::barrier_sync : Op::cluster_sync, Hazard::unordered_access);
  }
}

}  // namespace
}  // namespace gemmule::test
