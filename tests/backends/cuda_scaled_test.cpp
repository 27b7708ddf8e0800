// Block-scaled grouped GEMM + sReLU and + dGLU on a device: against the reference, bit for bit against the CPU, in graphs,
// in many threads, at the ends of what a call may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu_support.hpp"
#include "backends/cuda_graphs.hpp"
#include "backends/cuda_soak.hpp"
#include "backends/cuda_support.hpp"
#include "gemmule/error.hpp"
#include "support/scaled_problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

class CudaScaled : public testing::TestWithParam<Op> {
 protected:
  void SetUp() override {
    const TestProblem t = make_problem(basic_problem(GetParam(), Format::mxfp8, 64, 64), {256}, 0, 1);
    if (const std::string why = cuda::refusal(t.problem, 0); !why.empty())
      GTEST_SKIP() << "NOT TESTED: " << why;
  }
  static int count(int otherwise) {
    return static_cast<int>(problem_count("GEMMULE_TEST_PROBLEMS", static_cast<std::uint64_t>(otherwise)));
  }
  static TestProblem drawn(std::uint64_t s, Data data) {
    return random_problem(s, {.op = GetParam(),
                              .format = scaled_format(s),
                              .data = data,
                              .max_n = 480,
                              .max_k = 520,
                              .max_tiles = 4});
  }
  static std::vector<TestProblem> drawn_problems(int problems, Data data) {
    std::vector<TestProblem> all;
    for (int seed = 0; seed < problems; ++seed) all.push_back(drawn(static_cast<std::uint64_t>(seed), data));
    compile_all(all);
    return all;
  }
  static bool same_bytes(const Outputs& a, const Outputs& b) {
    return a.c == b.c && a.d == b.d && a.d_col == b.d_col && a.sfd_row == b.sfd_row &&
           a.sfd_col == b.sfd_col && a.amax == b.amax && a.dprob == b.dprob && a.dbias == b.dbias;
  }
  /// Several tiles in both directions per expert, a ragged last column tile, empty experts, rows nobody owns.
  static TestProblem sample(std::uint64_t seed, bool deterministic, Data data = Data::random,
                            Format format = Format::mxfp8) {
    Problem p = basic_problem(GetParam(), format, 3 * 128 + 96, 352);
    p.has_dbias = p.op == Op::dglu;
    p.deterministic = deterministic;
    return make_problem(p, {768, 0, 256, 1024, 0}, 256, seed, data);
  }
};

TEST_P(CudaScaled, RandomProblemsAreWithinBound) {
  for (const TestProblem& t : drawn_problems(count(30), Data::random)) {
    expect_within_bound(t, run_cuda(t));
    if (HasFailure()) return;
  }
}

TEST_P(CudaScaled, ExactProblemsGiveTheBytesOfTheCpu) {
  for (const TestProblem& t : drawn_problems(count(30), Data::exact))
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2, Format::mxfp4, Format::nvfp4}) {
    const TestProblem t = sample(5, true, Data::exact, format);
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  }
}

TEST_P(CudaScaled, TheComparisonRejectsAnotherProblemsResult) {
  const TestProblem t = sample(1, true), other = sample(2, true);
  const Outputs got = run_cuda(t);
  expect_within_bound(t, got);
  EXPECT_NE(first_difference(t, got, run_cuda(other)), "");
  EXPECT_FALSE(
      verify::compare(other.problem, other.inputs(), other.operands(got), {.poison = poison_byte}).passed());
}

TEST_P(CudaScaled, EveryMagnitudeQuantizesToTheBytesOfTheCpu) {
  for (const DType d : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2}) {
    if (d == DType::float4_e2m1fn_x2 && GetParam() == Op::dglu) continue;
    Problem p = basic_problem(GetParam(), Format::mxfp8, 160, 32);
    p.d = d;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const TestProblem t = every_magnitude(p, 1024, seed);
      ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
    }
  }
}

TEST_P(CudaScaled, NanAndInfinityReachTheOutputsTheyBelongTo) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2, Format::mxfp4, Format::nvfp4}) {
    Problem p = basic_problem(GetParam(), format, 64, 160);
    p.has_amax = true;
    const TestProblem t = with_specials(make_problem(p, {256, 256}, 0, 5, Data::exact));
    expect_within_bound(t, run_cuda(t));
  }
}

/// Below the codes for which operands are exact. Tiles go either way, FP16 or BF16.
TEST_P(CudaScaled, LowScaleCodesMeanTheSameInEveryTile) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2}) {
    const bool e5m2 = format == Format::mxfp8_e5m2;
    Problem p = basic_problem(GetParam(), format, 96, 96);
    p.b_n_major = e5m2;
    p.has_dprob = false;  // float32, where NaN has many bit patterns
    for (const bool in_b : {false, true}) {
      for (const int code : {1, e5m2 ? 9 : 2}) {
        TestProblem t = with_code(p, in_b, static_cast<std::uint8_t>(code), 5);
        if (e5m2 && code == 9) t = with_infinities_in_coded_rows(t, in_b);
        ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << code << ", " << describe(t);
      }
      const TestProblem zero = with_code(p, in_b, 0, 6);
      const Outputs got = run_cuda(zero);
      ASSERT_EQ(first_difference(zero, got, run_cpu(with_zeros_in_coded_rows(zero, in_b))), "")
          << describe(zero);
      const TestProblem low = with_code(p, in_b, 1, 6);
      EXPECT_NE(first_difference(low, got, run_cpu(low)), "") << "a row that vanishes is not noticed";
    }
  }
}

TEST_P(CudaScaled, DeterministicResultsDoNotDependOnTheRunOrTheGrid) {
  TestProblem t = sample(3, true);
  const Outputs first = run_cuda(t);
  for (const int sm_limit : {0, 0, 0, 1, 2, 7, 64}) {
    for (const bool dynamic : {false, true}) {
      t.problem.sm_limit = sm_limit;
      t.problem.use_dynamic_sched = dynamic;
      t.problem.programmatic_launch = !dynamic;
      EXPECT_EQ(first_difference(t, run_cuda(t), first), "") << sm_limit << " SMs, dynamic " << dynamic;
    }
  }
}

/// GEMMULE_SOAK_LAUNCHES=N instead of 2000.
TEST_P(CudaScaled, IdenticalLaunchesOfManySmallExpertsGiveIdenticalBytes) {
  const int launches = static_cast<int>(problem_count("GEMMULE_SOAK_LAUNCHES", 2000));
  Problem p = basic_problem(GetParam(), Format::mxfp8, 32, 160);
  p.has_dbias = p.deterministic = p.op == Op::dglu;
  const TestProblem t = many_small_experts(p, 128, 4);
  const auto plan = cuda::compile(t.problem, 0);
  const std::size_t bytes = cuda::workspace_size(*plan, t.m);
  DeviceProblem on_device(t, 0);
  void* workspace = on_device.workspace(bytes);
  Outputs first;
  for (int launch = 0; launch < launches; ++launch) {
    on_device.reset();
    cuda::execute(*plan, on_device.operands(), workspace, bytes, {});
    cuda::synchronize(0);
    const Outputs got = on_device.download();
    if (launch == 0) {
      expect_within_bound(t, got);
      first = got;
    }
    ASSERT_TRUE(same_bytes(got, first)) << "launch " << launch << ": " << first_difference(t, got, first);
  }
  EXPECT_TRUE(on_device.guards_intact());
}

TEST_P(CudaScaled, ManyMostlyEmptyExperts) {
  std::vector<std::int64_t> rows(1024, 0);
  for (const std::size_t expert : {0u, 31u, 32u, 500u, 1023u}) rows[expert] = 256;
  for (const bool discrete : {false, true}) {
    Problem p = basic_problem(GetParam(), Format::mxfp8, 96, 96);
    p.discrete = p.use_dynamic_sched = discrete;
    p.has_dbias = p.op == Op::dglu;
    const TestProblem t = make_problem(p, rows, 0, 6, Data::exact);
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  }
}

TEST_P(CudaScaled, EveryWidthOfTheLastTile) {
  for (std::int64_t n = 32; n <= 256; n += 32) {
    for (const Format format : {Format::mxfp8, Format::nvfp4}) {
      Problem p = basic_problem(GetParam(), format, n, 352);
      p.discrete_col_sfd = p.quantize && n % 64 == 0;
      const TestProblem t = make_problem(p, {768, 0, 1024, 256}, 256, 7, Data::exact);
      ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
    }
  }
}

TEST_P(CudaScaled, OnePlanServesManyThreadsAndStreams) {
  TestProblem t = sample(4, true);
  t.problem.use_dynamic_sched = true;
  EXPECT_EQ(wrong_results_of_threads(t, run_cuda(t)), 0);
}

/// Discrete weights: the pointers that a replay reads lead to the other problem's weights.
TEST_P(CudaScaled, CapturedCallsReplayWithChangedOffsetsAndPointers) {
  Problem p = basic_problem(GetParam(), Format::mxfp8, 96, 160);
  p.discrete = p.deterministic = true;
  const std::vector<std::int64_t> rows = {768, 0, 256, 512};
  const TestProblem one = make_problem(p, rows, 256, 6), two = make_problem(p, rows, 256, 7);
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
  cuda::check(graphs.end(stream, &graph), "cuStreamEndCapture");
  cuda::check(graphs.instantiate(&executable, graph, 0), "cuGraphInstantiate");

  TestProblem changed = one;
  const auto expect_replay = [&] {
    first.reset();
    cuda::check(graphs.launch(executable, stream), "cuGraphLaunch");
    own.synchronize();
    EXPECT_EQ(first_difference(changed, first.download(), run_cuda(changed)), "");
  };
  for (const std::vector<std::int32_t>& offsets :
       {std::vector<std::int32_t>{768, 768, 1024, 1536}, {0, 512, 512, 1792}, {0, 0, 0, 0}}) {
    changed.padded_offsets = offsets;
    first.set_offsets(offsets);
    expect_replay();
  }
  changed.padded_offsets = one.padded_offsets;
  first.set_offsets(one.padded_offsets);
  changed.b = two.b;
  changed.sfb = two.sfb;
  first.set_pointers(second);
  expect_replay();
  EXPECT_TRUE(first.guards_intact());
  graphs.destroy_executable(executable);
  graphs.destroy(graph);
}

TEST_P(CudaScaled, ZeroRowsAndEmptyExpertsWriteNothing) {
  TestProblem t = sample(9, false);
  t.padded_offsets.assign(t.padded_offsets.size(), 0);
  EXPECT_EQ(first_difference(t, run_cuda(t), t.outputs()), "");
  const auto plan = cuda::compile(t.problem, 0);
  EXPECT_EQ(cuda::workspace_size(*plan, 0), 0u);
  EXPECT_NO_THROW(cuda::execute(*plan, Operands{}, nullptr, 0, {}));
}

TEST_P(CudaScaled, Soak) {
  soak([](Random& random) {
    const std::uint64_t seed = random.bits();
    return random.chance(0.5) ? sample(seed, random.chance(0.5), Data::random, scaled_format(seed))
                              : drawn(seed, Data::random);
  });
}

/// D has more than 2^31 elements. All operands are 1, prob is 1 or 2.
TEST_P(CudaScaled, ExtentsBeyondThirtyTwoBits) {
  const bool forward = GetParam() == Op::srelu;
  constexpr std::int64_t m = 270336, k = 32;
  const std::int64_t n = forward ? 8192 : 4096, width = 8192;
  Problem p = basic_problem(GetParam(), Format::mxfp8, n, k);
  p.experts = 1;
  const auto plan = cuda::compile(p, 0);
  const std::vector<std::uint8_t> a(m * k, 0x38), b(static_cast<std::size_t>(n * k), 0x38);  // 1
  const std::vector<std::uint8_t> sfa(m * 4, 0x7F), sfb(static_cast<std::size_t>(n * 4), 0x7F);
  std::vector<float> prob(m);
  for (std::size_t row = 0; row < prob.size(); ++row) prob[row] = row % 2 == 0 ? 1.0f : 2.0f;
  const float one = 1.0f;
  const std::int32_t end = m;
  const cuda::DeviceMemory device_a(0, a.data(), a.size()), device_b(0, b.data(), b.size()),
      device_sfa(0, sfa.data(), sfa.size()), device_sfb(0, sfb.data(), sfb.size()), factor(0, &one, 4),
      device_prob(0, prob.data(), prob.size() * 4), offsets(0, &end, 4);
  const std::size_t values = std::size_t{m} * static_cast<std::size_t>(width);
  cuda::DeviceMemory c(0, values * 2), d(0, values), d_col(0, values), sfd_row(0, values / 32),
      sfd_col(0, values / 32), dprob(0, std::size_t{m} * 4);
  cuda::fill(0, c.data(), 0x43004300u, c.bytes() / 4, {});  // dGLU: gate and input are 128
  dprob.fill(0);
  cuda::synchronize(0);
  Operands o;
  o.m = m;
  o.a = device_a.data();
  o.b = device_b.data();
  o.sfa = device_sfa.data();
  o.sfb = device_sfb.data();
  (forward ? o.c_out : const_cast<void*&>(o.c_in)) = c.data();
  o.d = d.data();
  o.d_col = d_col.data();
  o.sfd_row = static_cast<std::uint8_t*>(sfd_row.data());
  o.sfd_col = static_cast<std::uint8_t*>(sfd_col.data());
  o.padded_offsets = static_cast<const std::int32_t*>(offsets.data());
  o.alpha = o.beta = o.norm_const = static_cast<const float*>(factor.data());
  o.prob = static_cast<const float*>(device_prob.data());
  o.dprob = forward ? nullptr : static_cast<float*>(dprob.data());
  const cuda::DeviceMemory scratch(0, std::max<std::size_t>(cuda::workspace_size(*plan, m), 256));
  cuda::execute(*plan, o, scratch.data(), scratch.bytes(), {});
  cuda::synchronize(0);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(width));
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{262145}, m - 2, m - 1}) {
    const std::size_t at = static_cast<std::size_t>(r) * row.size();
    d.download(row.data(), row.size(), at);
    // A power of two times prob: its scale brings it to 256, the largest power below 448.
    EXPECT_EQ(std::count(row.begin(), row.end(), 0x78), width) << "row " << r;
    d_col.download(row.data(), row.size(), at);
    // A column's block holds the rows with prob 2 as well.
    EXPECT_EQ(std::count(row.begin(), row.end(), r % 2 == 0 ? 0x70 : 0x78), width) << "row " << r;
  }
}

std::string operator_name(const testing::TestParamInfo<Op>& info) {
  return info.param == Op::srelu ? "srelu" : "dglu";
}

INSTANTIATE_TEST_SUITE_P(Operators, CudaScaled, testing::Values(Op::srelu, Op::dglu), operator_name);

}  // namespace
}  // namespace gemmule::test
