// What the cpu backend promises beyond right results: bytes that depend on nothing but the operands, bounded scratch,
// and any number of callers at once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/kernel.hpp"
#include "backends/cpu_support.hpp"
#include "gemmule/error.hpp"
#include "gemmule/options.hpp"
#include "gemmule/quantize.hpp"

namespace gemmule::test {
namespace {

/// Sets the number of threads for a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Sets GEMMULE_CPU_TARGET for a scope.
class Target {
 public:
  explicit Target(const char* name) {
    if (const char* value = std::getenv(variable)) before_ = value;
    setenv(variable, name, 1);
  }
  ~Target() {
    if (before_.empty())
      unsetenv(variable);
    else
      setenv(variable, before_.c_str(), 1);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

 private:
  static constexpr const char* variable = "GEMMULE_CPU_TARGET";
  std::string before_;
};

/// Several blocks of k, of columns and of rows, none of them whole, and very unequal experts.
TestProblem large_problem(Op op, Format format, std::uint64_t seed) {
  Problem p = basic_problem(op, format, op == Op::srelu && format == Format::mxfp8 ? 560 : 544, 288);
  p.has_dbias = op == Op::dglu;
  p.has_amax = p.block_scaled();
  if (format == Format::mxfp8) p.b_n_major = seed % 2 == 1;
  return make_problem(p, {0, 128, 640, 0, 256}, 128, seed);
}

struct Kind {
  Op op;
  Format format;
};
constexpr Kind kinds[] = {{Op::srelu, Format::mxfp8},
                          {Op::srelu, Format::nvfp4},
                          {Op::dglu, Format::bf16},
                          {Op::dglu, Format::mxfp8},
                          {Op::dglu, Format::mxfp4}};

TEST(CpuDeterminism, AnyNumberOfThreadsGivesTheSameBytes) {
  for (const Kind& kind : kinds) {
    const TestProblem t = large_problem(kind.op, kind.format, 1);
    const Threads one(1);
    const Outputs expected = run_cpu(t);
    for (const int count : {2, 7}) {
      const Threads several(count);
      ASSERT_EQ(first_difference(t, run_cpu(t), expected), "") << describe(t) << " threads=" << count;
    }
  }
}

TEST(CpuDeterminism, EveryInstructionSetGivesTheSameBytes) {
  const std::string best = cpu::target();
  for (const Kind& kind : kinds) {
    for (const std::uint64_t seed : {2u, 3u}) {
      const TestProblem t = random_problem(
          seed, {.op = kind.op, .format = kind.format, .max_n = 160, .max_k = 544, .max_tiles = 2});
      const Outputs expected = run_cpu(t);
      for (const char* name : {"avx2", "generic"}) {
        const Target target(name);
        ASSERT_STREQ(cpu::target(), best == "generic" ? "generic" : name);
        ASSERT_EQ(first_difference(t, run_cpu(t), expected), "") << describe(t) << " on " << cpu::target();
      }
    }
  }
}

/// The order of the sum over k that kernel.hpp states.
TEST(CpuDeterminism, TheSumIsAChainOfFmaInBlocksOfK) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 608);
  p.c = DType::float32;
  const std::int64_t k = p.k, n = p.n;
  TestProblem t = make_problem(p, {128}, 0, 4);
  for (std::int64_t i = 0; i < t.sfa.size(); ++i) t.sfa.data()[i] = 126;
  for (std::int64_t i = 0; i < t.sfb[0].size(); ++i) t.sfb[0].data()[i] = 128;
  // Codes of all magnitudes, so that the sums need rounding.
  Random random(4);
  for (Buffer* codes : {&t.a, &t.b[0]})
    for (std::int64_t i = 0; i < codes->size(); ++i)
      codes->data()[i] = static_cast<std::uint8_t>(random.integer(0, 0x7E) | random.integer(0, 1) << 7);
  t.alpha.as<float>()[0] = 1.0f;
  const Outputs out = run_cpu(t);
  std::vector<float> a(128 * k), b(n * k);
  convert(t.a.data(), DType::float8_e4m3fn, a);
  convert(t.b[0].data(), DType::float8_e4m3fn, b);
  bool order_matters = false;
  for (std::int64_t m = 0; m < 128; ++m) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0, plain = 0;
      for (std::int64_t begin = 0; begin < k; begin += cpu::k_block) {
        float part = 0;
        for (std::int64_t i = begin; i < std::min<std::int64_t>(begin + cpu::k_block, k); ++i) {
          part = std::fma(a[m * k + i] * 0.5f, b[j * k + i] * 2.0f, part);
          plain = std::fma(a[m * k + i], b[j * k + i], plain);
        }
        sum = begin == 0 ? part : sum + part;
      }
      ASSERT_EQ(out.c.as<float>()[m * n + j], sum) << m << ' ' << j;
      order_matters = order_matters || plain != sum;
    }
  }
  EXPECT_TRUE(order_matters) << "the test could not have seen another order";
}

// 1025 row blocks are more than one wave holds: the last expert's dbias is carried from the first to the second.
TEST(CpuDeterminism, AnExpertCutByAWaveKeepsItsSums) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 32, 8);
  p.has_dbias = true;
  std::vector<std::int64_t> rows(1024, 128);
  rows.back() = 1024;
  const TestProblem t = make_problem(p, rows, 0, 5);
  const Outputs all = run_cpu(t);

  TestProblem last = make_problem(p, {1024}, 0, 6);
  const std::int64_t first_row = t.m - 1024, expert = 1023;
  const auto copy = [](const Buffer& from, std::int64_t offset, Buffer& to) {
    std::memcpy(to.data(), from.data() + offset, static_cast<std::size_t>(to.size()));
  };
  copy(t.a, first_row * p.k * 2, last.a);
  copy(t.b[0], expert * p.n * p.k * 2, last.b[0]);
  copy(t.c_in, first_row * 2 * p.n * 2, last.c_in);
  copy(t.alpha, expert * 4, last.alpha);
  copy(t.beta, expert * 4, last.beta);
  copy(t.prob, first_row * 4, last.prob);
  copy(t.initial.dprob, first_row * 4, last.initial.dprob);
  copy(t.initial.dbias, expert * 2 * p.n * 2, last.initial.dbias);
  const Outputs alone = run_cpu(last);
  EXPECT_EQ(std::memcmp(all.dbias.data() + expert * 2 * p.n * 2, alone.dbias.data(), 2 * p.n * 2), 0);
  EXPECT_EQ(std::memcmp(all.dprob.as<float>() + first_row, alone.dprob.data(), 1024 * 4), 0);
}

TEST(CpuWorkspace, StaysBelow64MiB) {
  for (const Kind& kind : kinds) {
    for (const std::int64_t n : {32, 2048, 28672, 1 << 20}) {
      for (const std::int64_t k : {32, 4096, 1 << 20}) {
        for (const std::int64_t m :
             {std::int64_t{0}, std::int64_t{128}, std::int64_t{1} << 20, std::int64_t{1} << 31}) {
          for (const int count : {1, 2, 64, 1024}) {
            const Threads threads(count);
            Problem p = basic_problem(kind.op, kind.format, n, k);
            p.experts = 1024;
            p.has_dbias = kind.op == Op::dglu;
            ASSERT_LT(cpu::workspace_size(p, m), std::size_t{64} << 20)
                << "n=" << n << " k=" << k << " m=" << m << " threads=" << count;
          }
        }
      }
    }
  }
}

TEST(CpuWorkspace, OfFewerThreadsServesMore) {
  const TestProblem t = large_problem(Op::dglu, Format::mxfp8, 7);
  const Threads one(1);
  const Outputs expected = run_cpu(t);
  const std::size_t bytes = cpu::workspace_size(t.problem, t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes));
  const Threads several(4);
  ASSERT_GT(cpu::workspace_size(t.problem, t.m), bytes);
  const Outputs out = t.outputs();
  cpu::run(t.problem, t.operands(out), workspace.data(), bytes);
  EXPECT_EQ(first_difference(t, out, expected), "");
}

TEST(CpuWorkspace, TooSmallOrMisalignedIsRefusedBeforeAnythingIsWritten) {
  const TestProblem t = large_problem(Op::srelu, Format::mxfp8, 8);
  const Threads one(1);
  const std::size_t bytes = cpu::workspace_size(t.problem, t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes) + 256);
  const Outputs out = t.outputs();
  EXPECT_THROW(cpu::run(t.problem, t.operands(out), workspace.data(), bytes - 1), InvalidArgument);
  EXPECT_THROW(cpu::run(t.problem, t.operands(out), workspace.data() + 64, bytes), InvalidArgument);
  EXPECT_EQ(first_difference(t, out, t.outputs()), "");
  cpu::run(t.problem, t.operands(out), workspace.data(), bytes);
  EXPECT_NE(first_difference(t, out, t.outputs()), "");
}

TEST(CpuConcurrency, SeveralCallersDoNotDisturbEachOther) {
  const Threads three(3);
  std::vector<TestProblem> problems;
  std::vector<Outputs> expected;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    problems.push_back(random_problem(seed, {.max_n = 320, .max_k = 320, .max_tiles = 3}));
    expected.push_back(run_cpu(problems.back()));
  }
  std::vector<std::string> difference(problems.size());
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 5 && difference[i].empty(); ++round)
        difference[i] = first_difference(problems[i], run_cpu(problems[i]), expected[i]);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (std::size_t i = 0; i < problems.size(); ++i) EXPECT_EQ(difference[i], "") << describe(problems[i]);
}

// The thread sanitizer does not support threads in the child of a process that has some.
#if !defined(__SANITIZE_THREAD__)
TEST(CpuConcurrency, AForkedChildHasItsOwnWorkers) {
  const Threads two(2);
  const TestProblem t = large_problem(Op::dglu, Format::nvfp4, 9);
  const Outputs expected = run_cpu(t);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(first_difference(t, run_cpu(t), expected).empty() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace gemmule::test
