// Random problems on a device for as long as one likes; shared by the tests of all kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cuda_support.hpp"
#include "support/scaled_problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {

inline void expect_within_bound(const TestProblem& t, const Outputs& got) {
  const verify::Report report =
      verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
  EXPECT_TRUE(report.passed()) << describe(t) << "\n" << verify::to_string(report);
}

/// Compiles many specializations at once; run_cuda() then finds them in the cache.
inline void compile_all(const std::vector<TestProblem>& problems) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::min<std::size_t>(std::thread::hardware_concurrency(), problems.size()); ++i)
    threads.emplace_back([&] {
      for (std::size_t k = next++; k < problems.size(); k = next++) cuda::compile(problems[k].problem, 0);
    });
  for (std::thread& thread : threads) thread.join();
}

/// The same experts' sizes in another order.
inline std::vector<std::int32_t> shuffled_offsets(std::vector<std::int32_t> offsets, Random& random) {
  for (std::size_t i = offsets.size() - 1; i > 0; --i) offsets[i] -= offsets[i - 1];
  for (std::size_t i = offsets.size() - 1; i > 0; --i)
    std::swap(offsets[i], offsets[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i)))]);
  for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  return offsets;
}

/// One problem: one plan, operands twice, each on a stream of its own, a few orders of the experts; every so often the two
/// streams run at once.
inline void soak_problem(TestProblem t, Random& random) {
  constexpr int orders = 3, executions = 20;
  const auto plan = cuda::compile(t.problem, 0);
  const std::size_t bytes = cuda::workspace_size(*plan, t.m);
  DeviceProblem operands[] = {{t, 0}, {t, 0}};
  void* workspaces[] = {operands[0].workspace(bytes), operands[1].workspace(bytes)};
  const cuda::OwnStream streams[] = {cuda::OwnStream(0), cuda::OwnStream(0)};
  for (int order = 0; order < orders; ++order) {
    for (DeviceProblem& on_device : operands) on_device.set_offsets(t.padded_offsets);
    for (int execution = 0; execution < executions; ++execution) {
      const bool together = random.chance(0.5);
      for (DeviceProblem& on_device : operands) on_device.reset();
      for (int i = 0; i < 2; ++i) {
        cuda::execute(*plan, operands[i].operands(), workspaces[i], bytes, streams[i].stream());
        if (!together) streams[i].synchronize();
      }
      for (const cuda::OwnStream& stream : streams) stream.synchronize();
    }
    for (const DeviceProblem& on_device : operands) {
      ASSERT_TRUE(on_device.guards_intact()) << describe(t);
      expect_within_bound(t, on_device.download());
    }
    t.padded_offsets = shuffled_offsets(t.padded_offsets, random);
  }
}

/// GEMMULE_SOAK_SECONDS=N goes on with problems that `draw` draws for N seconds; without it there is one problem.
inline void soak(const std::function<TestProblem(Random&)>& draw) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t seconds = problem_count("GEMMULE_SOAK_SECONDS", 0);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  const std::size_t compiled_at_once = seconds == 0 ? 1 : 16;
  Random random(problem_count("GEMMULE_SOAK_SEED", 42));
  int problems = 0;
  do {
    std::vector<TestProblem> drawn;
    for (std::size_t i = 0; i < compiled_at_once; ++i) drawn.push_back(draw(random));
    compile_all(drawn);
    for (const TestProblem& t : drawn) {
      soak_problem(t, random);
      ++problems;
      if (testing::Test::HasFailure() || Clock::now() >= end) break;
    }
  } while (!testing::Test::HasFailure() && Clock::now() < end);
  std::printf("%d problems, 120 executions each\n", problems);
}

}  // namespace gemmule::test
