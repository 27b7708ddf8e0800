// Two devices in one process: calls on one while another is current, plans of both, kernels on both at once. Skipped where
// there is one.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda_graphs.hpp"
#include "backends/cuda_support.hpp"

namespace gemmule::test {
namespace {

struct Kind {
  const char* label;
  Op op;
  Format format;
};

cuda::ContextHandle current_context() {
  cuda::ContextHandle context = nullptr;
  cuda::check(cuda::driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return context;
}

class CudaDevices : public testing::TestWithParam<Kind> {
 protected:
  static constexpr int devices = 2;

  void SetUp() override {
    std::string why;
    if (!cuda::find_driver(&why)) GTEST_SKIP() << "NOT TESTED, no GPU: " << why;
    if (cuda::gpus().size() < devices) GTEST_SKIP() << "NOT TESTED: ONE GPU, two are needed";
    const TestProblem t = sample(0);
    for (int device = 0; device < devices; ++device)
      if (why = cuda::refusal(t.problem, device); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  }

  /// Deterministic, so that every run gives the same bytes; with discrete weights and the dynamic scheduler on request.
  static TestProblem sample(std::uint64_t seed, bool discrete = false) {
    Problem p = basic_problem(GetParam().op, GetParam().format, 352, 224);
    p.has_dbias = p.deterministic = p.op == Op::dglu;
    p.discrete = p.use_dynamic_sched = discrete;
    return make_problem(p, {512, 0, 256, 768}, 256, seed);
  }
};

/// A problem with everything that a call on one device needs.
struct OnDevice {
  OnDevice(const TestProblem& t, int device)
      : plan(cuda::compile(t.problem, device)),
        bytes(cuda::workspace_size(*plan, t.m)),
        problem(t, device),
        workspace(problem.workspace(bytes)),
        own(device) {}
  void enqueue() { cuda::execute(*plan, problem.operands(), workspace, bytes, own.stream()); }

  std::shared_ptr<const cuda::Plan> plan;
  std::size_t bytes;
  DeviceProblem problem;
  void* workspace;
  cuda::OwnStream own;
};

TEST_P(CudaDevices, EitherDeviceWhicheverIsCurrent) {
  for (const bool discrete : {false, true}) {
    const TestProblem t = sample(1, discrete);
    const Outputs expected = run_cuda(t, 0);
    for (int current = 0; current < devices; ++current)
      for (int device = 0; device < devices; ++device) {
        const cuda::ContextScope scope(cuda::primary_context(current));
        EXPECT_EQ(first_difference(t, run_cuda(t, device), expected), "")
            << "on " << device << " while " << current << " is current";
        EXPECT_EQ(current_context(), cuda::primary_context(current));
      }
  }
}

TEST_P(CudaDevices, AThreadWithoutAContextStaysWithout) {
  const TestProblem t = sample(2);
  const Outputs expected = run_cuda(t, 0);
  std::string difference = "no result";
  cuda::ContextHandle before = nullptr, after = nullptr;
  std::thread([&] {
    before = current_context();
    difference = first_difference(t, run_cuda(t, 1), expected);
    after = current_context();
  }).join();
  EXPECT_EQ(difference, "");
  EXPECT_EQ(before, nullptr);
  EXPECT_EQ(after, nullptr);
}

TEST_P(CudaDevices, OneThreadKeepsBothBusy) {
  const TestProblem one = sample(3), two = sample(4, true);
  const Outputs expected[] = {run_cuda(one, 0), run_cuda(two, 0)};
  ASSERT_NE(first_difference(one, expected[0], expected[1]), "") << "the problems must differ";
  OnDevice first(one, 0), second(two, 1);
  for (int repeat = 0; repeat < 10; ++repeat) {
    first.problem.reset();
    second.problem.reset();
    first.enqueue();
    second.enqueue();
    first.own.synchronize();
    second.own.synchronize();
    EXPECT_EQ(first_difference(one, first.problem.download(), expected[0]), "");
    EXPECT_EQ(first_difference(two, second.problem.download(), expected[1]), "");
  }
  EXPECT_TRUE(first.problem.guards_intact() && second.problem.guards_intact());
}

/// In every thread the other device's context is current.
TEST_P(CudaDevices, ThreadsOnBothAtOnce) {
  const TestProblem t = sample(5, true);
  const Outputs expected = run_cuda(t, 0);
  std::atomic<int> wrong{0}, moved{0}, ready{0};
  std::vector<std::thread> threads;
  for (int device = 0; device < devices; ++device)
    threads.emplace_back([&, device] {
      const cuda::ContextScope elsewhere(cuda::primary_context(1 - device));
      OnDevice on_device(t, device);
      ++ready;
      while (ready < devices) std::this_thread::yield();
      for (int repeat = 0; repeat < 20; ++repeat) {
        on_device.problem.reset();
        on_device.enqueue();
        on_device.own.synchronize();
        wrong += !first_difference(t, on_device.problem.download(), expected).empty();
        moved += current_context() != cuda::primary_context(1 - device);
      }
      wrong += !on_device.problem.guards_intact();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(moved, 0);
}

TEST_P(CudaDevices, ACallIsCapturedWhileTheOtherDeviceIsCurrent) {
  const TestProblem t = sample(6, true);
  const Outputs expected = run_cuda(t, 0);
  OnDevice on_device(t, 1);
  const auto stream = static_cast<cuda::StreamHandle>(on_device.own.stream().handle);
  const Graphs graphs;
  Graphs::Handle graph = nullptr, executable = nullptr;
  constexpr int global_mode = 0;
  const cuda::ContextScope scope(cuda::primary_context(1));
  cuda::check(graphs.begin(stream, global_mode), "cuStreamBeginCapture");
  {
    const cuda::ContextScope elsewhere(cuda::primary_context(0));
    on_device.enqueue();
    EXPECT_EQ(current_context(), cuda::primary_context(0));
  }
  cuda::check(graphs.end(stream, &graph), "cuStreamEndCapture");
  cuda::check(graphs.instantiate(&executable, graph, 0), "cuGraphInstantiate");
  for (int repeat = 0; repeat < 2; ++repeat) {
    on_device.problem.reset();
    cuda::check(graphs.launch(executable, stream), "cuGraphLaunch");
    on_device.own.synchronize();
    EXPECT_EQ(first_difference(t, on_device.problem.download(), expected), "");
  }
  graphs.destroy_executable(executable);
  graphs.destroy(graph);
}

std::string kind_name(const testing::TestParamInfo<Kind>& tested) {
  return tested.param.label;
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaDevices,
                         testing::Values(Kind{"dglu_bf16", Op::dglu, Format::bf16},
                                         Kind{"srelu_mxfp8", Op::srelu, Format::mxfp8},
                                         Kind{"dglu_nvfp4", Op::dglu, Format::nvfp4}),
                         kind_name);

}  // namespace
}  // namespace gemmule::test
