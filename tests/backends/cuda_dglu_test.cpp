// BF16 grouped GEMM + dGLU on a device: against the reference, bit for bit against the CPU, in graphs, in many threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu_support.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda_graphs.hpp"
#include "backends/cuda_soak.hpp"
#include "backends/cuda_support.hpp"
#include "gemmule/error.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

constexpr Wanted bf16_dglu{
    .op = Op::dglu, .format = Format::bf16, .max_n = 672, .max_k = 520, .max_tiles = 4};
constexpr Wanted exact_dglu{
    .op = Op::dglu, .format = Format::bf16, .data = Data::exact, .max_n = 672, .max_k = 520, .max_tiles = 4};

class CudaDglu : public testing::Test {
 protected:
  void SetUp() override {
    const TestProblem t = make_problem(basic_problem(Op::dglu, Format::bf16, 64, 64), {256}, 0, 1);
    if (const std::string why = cuda::refusal(t.problem, 0); !why.empty())
      GTEST_SKIP() << "NOT TESTED: " << why;
  }
  static int count(const char* variable, int otherwise) {
    const char* value = std::getenv(variable);
    return value ? std::atoi(value) : otherwise;
  }
  /// Several tiles in both directions per expert, a ragged last column tile, empty experts, rows nobody owns.
  static TestProblem sample(std::uint64_t seed, bool deterministic, Data data = Data::random,
                            bool discrete = false) {
    Problem p = basic_problem(Op::dglu, Format::bf16, 3 * 256 + 96, 328);
    p.has_dbias = true;
    p.deterministic = deterministic;
    p.discrete = discrete;
    return make_problem(p, {768, 0, 256, 1024, 0}, 256, seed, data);
  }
};

TEST_F(CudaDglu, RandomProblemsAreWithinBound) {
  const int problems = count("GEMMULE_TEST_PROBLEMS", 30);
  for (int seed = 0; seed < problems; ++seed) {
    const TestProblem t = random_problem(static_cast<std::uint64_t>(seed), bf16_dglu);
    ASSERT_EQ(cuda::refusal(t.problem, 0), "") << describe(t);
    expect_within_bound(t, run_cuda(t));
    if (HasFailure()) return;
  }
}

TEST_F(CudaDglu, ExactProblemsGiveTheBytesOfTheCpu) {
  const int problems = count("GEMMULE_TEST_PROBLEMS", 30);
  for (int seed = 0; seed < problems; ++seed) {
    const TestProblem t = random_problem(static_cast<std::uint64_t>(seed), exact_dglu);
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  }
  const TestProblem t = sample(5, false, Data::exact);
  ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
}

TEST_F(CudaDglu, TheComparisonRejectsAnotherProblemsResult) {
  const TestProblem t = sample(1, true), other = sample(2, true);
  const Outputs got = run_cuda(t);
  expect_within_bound(t, got);
  EXPECT_NE(first_difference(t, got, run_cuda(other)), "");
  EXPECT_FALSE(
      verify::compare(other.problem, other.inputs(), other.operands(got), {.poison = poison_byte}).passed());
}

TEST_F(CudaDglu, DeterministicResultsDoNotDependOnTheRunOrTheGrid) {
  TestProblem t = sample(3, true);
  const Outputs first = run_cuda(t);
  for (const int sm_limit : {0, 0, 0, 1, 2, 7, 64})
    for (const bool dynamic : {false, true}) {
      t.problem.sm_limit = sm_limit;
      t.problem.use_dynamic_sched = dynamic;
      t.problem.programmatic_launch = !dynamic;
      EXPECT_EQ(first_difference(t, run_cuda(t), first), "") << sm_limit << " SMs, dynamic " << dynamic;
    }
}

TEST_F(CudaDglu, OnePlanServesManyThreadsAndStreams) {
  const TestProblem t = sample(4, true);
  EXPECT_EQ(wrong_results_of_threads(t, run_cuda(t)), 0);
}

/// Two captured calls, replayed with other offsets and, if discrete, with pointers to other weights.
void replay(const TestProblem& one, const TestProblem& two) {
  const auto plan = cuda::compile(one.problem, 0);
  const std::size_t bytes = cuda::workspace_size(*plan, one.m);
  DeviceProblem first(one, 0), second(two, 0);
  void* workspace = first.workspace(bytes);
  const cuda::OwnStream own(0);
  const auto stream = static_cast<cuda::StreamHandle>(own.stream().handle);
  const cuda::ContextScope scope(cuda::primary_context(0));
  const Graphs graphs;
  Graphs::Handle graph = nullptr, executable = nullptr;
  constexpr int global_mode = 0;
  cuda::check(graphs.begin(stream, global_mode), "cuStreamBeginCapture");
  cuda::execute(*plan, first.operands(), workspace, bytes, own.stream());
  cuda::execute(*plan, second.operands(), workspace, bytes, own.stream());
  cuda::check(graphs.end(stream, &graph), "cuStreamEndCapture");
  cuda::check(graphs.instantiate(&executable, graph, 0), "cuGraphInstantiate");

  TestProblem changed = one;
  for (const std::vector<std::int32_t>& offsets :
       {std::vector<std::int32_t>{768, 768, 1024, 2048, 2048}, {0, 512, 512, 512, 2304}, {0, 0, 0, 0, 0}}) {
    changed.padded_offsets = offsets;
    first.set_offsets(offsets);
    if (one.problem.discrete) {
      changed.b = two.b;
      first.set_pointers(second);
    }
    first.reset();
    second.reset();
    cuda::check(graphs.launch(executable, stream), "cuGraphLaunch");
    own.synchronize();
    EXPECT_EQ(first_difference(changed, first.download(), run_cuda(changed)), "");
    EXPECT_EQ(first_difference(two, second.download(), run_cuda(two)), "");
  }
  EXPECT_TRUE(first.guards_intact());
  graphs.destroy_executable(executable);
  graphs.destroy(graph);
}

TEST_F(CudaDglu, CapturedCallsReplayWithChangedOffsetsAndData) {
  replay(sample(6, true), sample(7, true));
}

TEST_F(CudaDglu, CapturedCallsReplayWithChangedPointers) {
  replay(sample(6, true, Data::random, true), sample(7, true, Data::random, true));
}

/// Every call reads as C what the one before has written as D. With programmatic launches the next call starts while the
/// one before still runs.
TEST_F(CudaDglu, ProgrammaticLaunchesWaitForTheCallBefore) {
  TestProblem one = sample(11, true), two = sample(12, true);
  const auto chain = [&](bool programmatic) {
    one.problem.programmatic_launch = two.problem.programmatic_launch = programmatic;
    const auto plan = cuda::compile(one.problem, 0);
    const std::size_t bytes = cuda::workspace_size(*plan, one.m);
    DeviceProblem first(one, 0), second(two, 0);
    void* workspace = first.workspace(bytes);
    Operands a = first.operands(), b = second.operands();
    b.c_in = a.d;
    const cuda::OwnStream own(0);
    cuda::execute(*plan, a, workspace, bytes, own.stream());
    a.c_in = b.d;
    for (int repeat = 0; repeat < 3; ++repeat) {
      cuda::execute(*plan, b, workspace, bytes, own.stream());
      cuda::execute(*plan, a, workspace, bytes, own.stream());
    }
    own.synchronize();
    return std::pair(first.download(), second.download());
  };
  const auto expected = chain(false);
  EXPECT_NE(first_difference(one, expected.first, run_cuda(one)), "") << "the chain must matter";
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto got = chain(true);
    EXPECT_EQ(first_difference(one, got.first, expected.first), "");
    EXPECT_EQ(first_difference(two, got.second, expected.second), "");
  }
}

TEST_F(CudaDglu, ZeroRowsAndEmptyExpertsWriteNothing) {
  TestProblem t = sample(9, false);
  t.padded_offsets.assign(t.padded_offsets.size(), 0);
  EXPECT_EQ(first_difference(t, run_cuda(t), t.outputs()), "");
  const auto plan = cuda::compile(t.problem, 0);
  EXPECT_EQ(cuda::workspace_size(*plan, 0), 0u);
  EXPECT_NO_THROW(cuda::execute(*plan, Operands{}, nullptr, 0, {}));
}

TEST_F(CudaDglu, BadWorkspacesAreRefusedBeforeAnythingIsWritten) {
  const TestProblem t = sample(10, true);
  const auto plan = cuda::compile(t.problem, 0);
  DeviceProblem on_device(t, 0);
  const std::size_t bytes = cuda::workspace_size(*plan, t.m);
  ASSERT_GT(bytes, 0u);
  auto* workspace = static_cast<std::byte*>(on_device.workspace(bytes + 16));
  EXPECT_THROW(cuda::execute(*plan, on_device.operands(), nullptr, bytes, {}), InvalidArgument);
  EXPECT_THROW(cuda::execute(*plan, on_device.operands(), workspace + 16, bytes, {}), InvalidArgument);
  EXPECT_THROW(cuda::execute(*plan, on_device.operands(), workspace, bytes - 1, {}), InvalidArgument);
  cuda::synchronize(0);
  EXPECT_EQ(first_difference(t, on_device.download(), t.outputs()), "");
}

TEST_F(CudaDglu, Soak) {
  soak([](Random& random) {
    return random.chance(0.5) ? sample(random.bits(), random.chance(0.5))
                              : random_problem(random.bits(), bf16_dglu);
  });
}

}  // namespace
}  // namespace gemmule::test
