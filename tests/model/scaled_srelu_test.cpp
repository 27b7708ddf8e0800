// The sm_90a block-scaled sReLU kernel on the model: right results, and no hazard, whatever the timing.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "backends/cpu_support.hpp"
#include "model/scaled_on_model.hpp"
#include "support/scaled_problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

struct Variant {
  const char* what;
  Format format;
  std::function<void(Problem&)> change;
};

TEST(ModelScaledSrelu, ExactProblemsGiveTheBytesOfTheCpuBackend) {
  using enum DType;
  const Variant variants[] = {
      {"mxfp8 to e4m3, rows and columns", Format::mxfp8, [](Problem&) {}},
      {"mxfp8 to bf16", Format::mxfp8, plain_bf16},
      {"e5m2 to e5m2, bias, columns per expert", Format::mxfp8_e5m2,
       [](Problem& p) { p.c = p.d = float8_e5m2, p.bias = float32, p.discrete_col_sfd = true; }},
      {"mxfp8 to e2m1, amax, f32 C", Format::mxfp8,
       [](Problem& p) { p.c = float32, p.d = float4_e2m1fn_x2, p.has_amax = true; }},
      {"mxfp8, n-major, discrete, clamp", Format::mxfp8,
       [](Problem& p) {
         p.discrete = p.b_n_major = true;
         p.tanh_clamp_scale = 0x1p-6f;
         p.c = float8_e4m3fn;
       }},
      {"mxfp4 to f32, e2m1 C, discrete", Format::mxfp4,
       [](Problem& p) { p.c = float4_e2m1fn_x2, p.d = float32, p.discrete = true; }},
      {"mxfp4 per 16 to f16, f16 C and bias", Format::mxfp4_16,
       [](Problem& p) { p.c = p.d = p.bias = float16; }},
      {"nvfp4 to bf16", Format::nvfp4, [](Problem&) {}},
      {"nvfp4 to bf16 with a copy in D_col, f32 C", Format::nvfp4,
       [](Problem& p) { p.has_d_col = true, p.c = float32, p.bias = bfloat16; }},
  };
  std::uint64_t seed = 0;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.what);
    Problem p = basic_problem(Op::srelu, variant.format, 160, 224);
    variant.change(p);
    p.m_aligned = 128;
    p.use_dynamic_sched = ++seed % 2 == 0;
    const TestProblem t = make_problem(p, {128, 0, 384, 256}, 128, seed, Data::exact);
    EXPECT_EQ(difference_from_cpu(t, {.seed = seed}), "") << describe(t);
  }
}

/// GEMMULE_MODEL_PROBLEMS=N runs N of them.
TEST(ModelScaledSrelu, RandomConfigurationsGiveTheBytesOfTheCpuBackend) {
  for (std::uint64_t seed = 1; seed <= problem_count("GEMMULE_MODEL_PROBLEMS", 6); ++seed) {
    const TestProblem t = random_problem(
        seed, {.op = Op::srelu, .format = scaled_format(seed), .data = Data::exact, .max_tiles = 2});
    ASSERT_EQ(difference_from_cpu(t, {.multiprocessors = 3, .seed = seed}), "") << describe(t);
  }
}

TEST(ModelScaledSrelu, RandomDataIsWithinTheBoundOfTheReference) {
  for (std::uint64_t seed = 101; seed <= 100 + problem_count("GEMMULE_MODEL_PROBLEMS", 4); ++seed) {
    const TestProblem t =
        random_problem(seed, {.op = Op::srelu, .format = scaled_format(seed), .max_tiles = 2});
    const Outputs got = t.outputs();
    EXPECT_EQ(run_scaled_on_model(t, got, {.multiprocessors = 3, .seed = seed}).text(), "") << describe(t);
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
    EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

TEST(ModelScaledSrelu, EveryTimingGivesTheSameBytes) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 160, 320);
  p.m_aligned = 128;
  p.has_amax = true;
  const TestProblem t = make_problem(p, {0, 256, 0, 384}, 128, 21, Data::exact);
  for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed)
      EXPECT_EQ(difference_from_cpu(t, {.dependent = seed == 1, .seed = seed, .timing = timing}), "")
          << "seed " << seed;
  }
}

TEST(ModelScaledSrelu, EveryMagnitudeQuantizesToTheBytesOfTheCpuBackend) {
  for (const DType d : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2}) {
    Problem p = basic_problem(Op::srelu, Format::mxfp8, 64, 32);
    p.d = d;
    const TestProblem t = every_magnitude(p, 256, 3);
    EXPECT_EQ(difference_from_cpu(t, {}), "") << describe(t);
  }
}

TEST(ModelScaledSrelu, LargestAlphaDoesNotMeetTheFactorOfTheSums) {
  Problem p = basic_problem(Op::srelu, Format::nvfp4, 64, 64);
  p.c = DType::float32;
  plain_bf16(p);
  TestProblem t = make_problem(p, {128, 128, 128}, 0, 7, Data::exact);
  for (const float alpha : {0x1p99f, -0x1p114f}) {
    for (int g = 0; g < 3; ++g) t.alpha.as<float>()[g] = alpha * (g == 1 ? 0.5f : g == 2 ? 0x1p-40f : 1.0f);
    EXPECT_EQ(difference_from_cpu(t, {}), "") << alpha << describe(t);
  }
}

TEST(ModelScaledSrelu, NanAndInfinityReachTheOutputsTheyBelongTo) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2, Format::mxfp4, Format::nvfp4}) {
    Problem p = basic_problem(Op::srelu, format, 64, 160);
    p.has_amax = true;
    const TestProblem t = with_specials(make_problem(p, {256, 256}, 0, 5, Data::exact));
    const Outputs got = t.outputs();
    EXPECT_EQ(run_scaled_on_model(t, got, {}).text(), "") << describe(t);
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
    EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

}  // namespace
}  // namespace gemmule::test
