// The sm_90a block-scaled dGLU kernel on the model: right results, and no hazard, whatever the timing.
#include <gtest/gtest.h>

#include <functional>

#include "backends/cpu_support.hpp"
#include "model/scaled_on_model.hpp"
#include "support/scaled_problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

struct Variant {
  const char* what;
  Format format;
  ActFunc act;
  std::function<void(Problem&)> change;
};

TEST(ModelScaledDglu, ExactProblemsGiveTheBytesOfTheCpuBackend) {
  using enum DType;
  using enum ActFunc;
  const Variant variants[] = {
      {"mxfp8 to e4m3, rows and columns, dbias", Format::mxfp8, dswiglu,
       [](Problem& p) { p.has_dbias = true; }},
      {"e5m2 to e5m2, f32 C, deterministic, columns per expert", Format::mxfp8_e5m2, dgeglu,
       [](Problem& p) { p.c = float32, p.d = float8_e5m2, p.deterministic = p.discrete_col_sfd = true; }},
      {"mxfp8, e4m3 C, n-major, discrete, amax", Format::mxfp8, dsituglu,
       [](Problem& p) {
         p.c = float8_e4m3fn;
         p.situ_beta2 = 4;  // C holds 64 times it
         p.discrete = p.b_n_major = p.has_amax = true;
       }},
      {"mxfp4 to f32, f16 C, no prob, relu", Format::mxfp4, dswiglu,
       [](Problem& p) {
         p.c = float16, p.d = float32;
         p.has_prob = p.has_dprob = false;
         p.epilogue_op = EpilogueOp::relu;
       }},
      {"mxfp4 per 16 to f16, e5m2 C, discrete, srelu", Format::mxfp4_16, dgeglu,
       [](Problem& p) {
         p.c = float8_e5m2, p.d = float16;
         p.discrete = p.has_dbias = p.deterministic = true;
         p.epilogue_op = EpilogueOp::srelu;
       }},
      {"nvfp4 to bf16, dSiTU with beta1 = 4", Format::nvfp4, dsituglu, [](Problem& p) { p.situ_beta2 = 16; }},
      {"nvfp4 to bf16, dSiTU with another beta1, a copy in D_col", Format::nvfp4, dsituglu,
       [](Problem& p) { p.situ_beta1 = 2, p.situ_beta2 = 16, p.has_d_col = true, p.has_dbias = true; }},
  };
  std::uint64_t seed = 0;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.what);
    Problem p = basic_problem(Op::dglu, variant.format, 160, 224, variant.act);
    variant.change(p);
    p.m_aligned = 128;
    p.use_dynamic_sched = ++seed % 2 == 0;
    const TestProblem t = make_problem(p, {128, 0, 384, 256}, 128, seed, Data::exact);
    EXPECT_EQ(difference_from_cpu(t, {.seed = seed}), "") << describe(t);
  }
}

TEST(ModelScaledDglu, ASingleGroupEndsWithTheRows) {
  Problem p = basic_problem(Op::dglu, Format::nvfp4, 64, 96);
  p.single_group_runtime_offsets = p.has_dbias = true;
  const TestProblem t = make_problem(p, {512}, 0, 3, Data::exact);
  EXPECT_EQ(difference_from_cpu(t, {}), "") << describe(t);
}

/// GEMMULE_MODEL_PROBLEMS=N runs N of them.
TEST(ModelScaledDglu, RandomConfigurationsGiveTheBytesOfTheCpuBackend) {
  for (std::uint64_t seed = 1; seed <= problem_count("GEMMULE_MODEL_PROBLEMS", 5); ++seed) {
    const TestProblem t = random_problem(
        seed, {.op = Op::dglu, .format = scaled_format(seed), .data = Data::exact, .max_tiles = 2});
    ASSERT_EQ(difference_from_cpu(t, {.multiprocessors = 3, .seed = seed}), "") << describe(t);
  }
}

TEST(ModelScaledDglu, RandomDataIsWithinTheBoundOfTheReference) {
  for (std::uint64_t seed = 101; seed <= 100 + problem_count("GEMMULE_MODEL_PROBLEMS", 4); ++seed) {
    const TestProblem t =
        random_problem(seed, {.op = Op::dglu, .format = scaled_format(seed), .max_tiles = 2});
    const Outputs got = t.outputs();
    EXPECT_EQ(run_scaled_on_model(t, got, {.multiprocessors = 3, .seed = seed}).text(), "") << describe(t);
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(got), {.poison = poison_byte});
    EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

TEST(ModelScaledDglu, EveryTimingGivesTheSameBytes) {
  Problem p = basic_problem(Op::dglu, Format::mxfp8, 160, 320);
  p.m_aligned = 128;
  p.has_dbias = p.deterministic = true;
  const TestProblem t = make_problem(p, {0, 256, 0, 384}, 128, 21, Data::exact);
  for (const model::Timing timing : {model::Timing::early, model::Timing::late, model::Timing::random}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed)
      EXPECT_EQ(difference_from_cpu(t, {.dependent = seed == 1, .seed = seed, .timing = timing}), "")
          << "seed " << seed;
  }
}

TEST(ModelScaledDglu, EveryMagnitudeQuantizesToTheBytesOfTheCpuBackend) {
  for (const DType d : {DType::float8_e4m3fn, DType::float8_e5m2}) {
    Problem p = basic_problem(Op::dglu, Format::mxfp8, 64, 32);
    p.d = d;
    const TestProblem t = every_magnitude(p, 256, 3);
    EXPECT_EQ(difference_from_cpu(t, {}), "") << describe(t);
  }
}

TEST(ModelScaledDglu, LargestAlphaDoesNotMeetTheFactorOfTheSums) {
  Problem p = basic_problem(Op::dglu, Format::nvfp4, 64, 64);
  p.d = DType::float32;
  p.has_dprob = p.has_dbias = false;  // sums that overflow depend on their order
  TestProblem t = make_problem(p, {128, 128, 128}, 0, 7, Data::exact);
  for (const float alpha : {0x1p50f, -0x1p57f}) {
    for (int g = 0; g < 3; ++g) t.alpha.as<float>()[g] = alpha * (g == 1 ? 0.5f : g == 2 ? 0x1p-40f : 1.0f);
    EXPECT_EQ(difference_from_cpu(t, {}), "") << alpha << describe(t);
  }
}

TEST(ModelScaledDglu, NanAndInfinityReachTheOutputsTheyBelongTo) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2, Format::nvfp4}) {
    Problem p = basic_problem(Op::dglu, format, 64, 160);
    p.has_amax = p.has_dbias = true;
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
