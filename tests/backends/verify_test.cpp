// The comparison under the bound must accept the reference's own output and reject every corruption of it.
#include "verify/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu_support.hpp"
#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "backends/reference/reference.hpp"
#include "support/problems.hpp"

namespace gemmule::test {
namespace {

constexpr verify::Settings with_poison{.poison = poison_byte};

struct Case {
  Op op;
  Format format;
  ActFunc act;
  DType d;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  constexpr const char* activations[] = {"dswiglu", "dgeglu", "dsituglu"};
  const std::string op = c.op == Op::srelu ? "srelu" : activations[static_cast<int>(c.act)];
  return op + "_" + name(c.format) + "_" + gemmule::name(c.d);
}

class Verify : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case c = GetParam();
    Problem p = basic_problem(c.op, c.format, 64, 96, c.act);
    p.d = c.d;
    p.has_dbias = c.op == Op::dglu;
    t = make_problem(p, {128, 0, 256, 128}, 128, 7);
    // Every expert and row counts, so that a corruption anywhere must show.
    for (int g = 0; g < t.problem.experts; ++g) t.alpha.as<float>()[g] = 0.4f;
    for (std::int64_t m = 0; m < t.rows_written(); ++m) t.prob.as<float>()[m] = m % 2 ? 0.9f : -0.6f;
    exact = reference::evaluate(t.problem, t.inputs());
    out = run(t);
  }

  static Outputs run(const TestProblem& problem) {
    Outputs outputs = problem.outputs();
    reference::run(problem.problem, problem.operands(outputs));
    return outputs;
  }

  verify::Report compare(const Outputs& got) const {
    return verify::compare(t.problem, t.inputs(), t.operands(got), exact, with_poison);
  }

  void expect_rejected(const Outputs& got, const std::string& output) const {
    const verify::Report report = compare(got);
    EXPECT_FALSE(report.passed());
    const verify::Check* check = report.find(output);
    ASSERT_NE(check, nullptr);
    EXPECT_FALSE(check->passed()) << verify::to_string(report);
  }

  std::string d_name() const { return t.problem.op == Op::srelu ? "d" : "d_row"; }

  /// Index of the largest finite D.
  std::int64_t largest(const Buffer& d) const {
    std::int64_t best = 0;
    double most = 0;
    for (std::int64_t i = 0; i < t.rows_written() * t.problem.width(); ++i) {
      const double v = std::fabs(reference::load(d.data(), t.problem.d, i));
      if (std::isfinite(v) && v > most) {
        most = v;
        best = i;
      }
    }
    return best;
  }

  void change_largest(const Buffer& d) const {
    const std::int64_t at = largest(d);
    const double value = reference::load(d.data(), t.problem.d, at), more = value * 1.7;
    const bool fits = std::fabs(more) <= reference::max_finite(t.problem.d);
    reference::store(d.data(), t.problem.d, at, static_cast<float>(fits ? more : value / 1.7));
  }

  TestProblem t;
  reference::Result exact;
  Outputs out;
};

TEST_P(Verify, AcceptsTheReference) {
  const verify::Report report = compare(out);
  EXPECT_TRUE(report.passed()) << verify::to_string(report);
  for (const verify::Check& c : report.checks) {
    EXPECT_GT(c.elements, 0) << c.output;
    EXPECT_LE(c.max_ratio, 1) << c.output;
    EXPECT_EQ(c.differing, 0) << c.output;
  }
}

TEST_P(Verify, RejectsTheLargestElementTimes1_7) {
  change_largest(out.d);
  expect_rejected(out, d_name());
}

TEST_P(Verify, RejectsAWrongColumnQuantizedElement) {
  if (!t.problem.quantize) return;
  change_largest(out.d_col);
  expect_rejected(out, "d_col");
}

TEST_P(Verify, RejectsAnInputScaleOneStepOff) {
  if (!t.problem.block_scaled()) return;
  const std::int64_t blocks = reference::ceil_div(t.problem.k, t.problem.vec);
  TestProblem changed = t;
  ++changed.sfa.data()[reference::scale_index(200, 1, blocks)];
  expect_rejected(run(changed), d_name());
  changed = t;
  ++changed.sfb[0]
        .data()[2 * reference::scale_bytes_of(t.problem.n, blocks) + reference::scale_index(5, 0, blocks)];
  expect_rejected(run(changed), d_name());
}

TEST_P(Verify, RejectsSwappedGateAndInput) {
  if (t.problem.op != Op::dglu) return;
  const std::int64_t block_bytes = 32 * reference::bits_of(t.problem.c) / 8;
  TestProblem changed = t;
  for (std::int64_t at = 0; at < t.c_in.size(); at += 2 * block_bytes)
    std::swap_ranges(changed.c_in.data() + at, changed.c_in.data() + at + block_bytes,
                     changed.c_in.data() + at + block_bytes);
  expect_rejected(run(changed), d_name());
  expect_rejected(run(changed), "dprob");
}

TEST_P(Verify, RejectsOneExpertsRowsFromAnother) {
  const std::int64_t row = t.problem.width() * reference::bits_of(t.problem.d) / 8;
  std::memcpy(out.d.data() + 128 * row, out.d.data(), 128 * row);
  expect_rejected(out, d_name());
}

TEST_P(Verify, RejectsAWrittenTailRow) {
  const std::int64_t row = t.problem.width() * reference::bits_of(t.problem.d) / 8;
  out.d.data()[(t.m - 1) * row + 3] = 0;
  expect_rejected(out, d_name());
}

TEST_P(Verify, RejectsAWrittenTailRowOfEveryOtherOutput) {
  const std::int64_t tail = t.rows_written(), tail_value = tail * t.problem.width();
  const auto corrupt = [&](Buffer Outputs::*buffer, std::int64_t at, const std::string& output) {
    Outputs changed = out;
    (changed.*buffer).data()[at] ^= 1;
    expect_rejected(changed, output);
  };
  if (t.problem.op == Op::srelu) corrupt(&Outputs::c, tail_value * 2, "c");
  if (t.problem.has_dprob) corrupt(&Outputs::dprob, tail * 4 + 2, "dprob");
  if (!t.problem.quantize) return;
  const std::int64_t blocks = t.problem.width() / 32;
  corrupt(&Outputs::d_col, tail_value * reference::bits_of(t.problem.d) / 8, "d_col");
  corrupt(&Outputs::sfd_row, reference::scale_index(tail, 0, blocks), "sfd_row");
  corrupt(&Outputs::sfd_col, reference::scale_index(0, tail / 32, reference::ceil_div(t.m, 32)), "sfd_col");
}

TEST_P(Verify, RejectsAnElementThatWasNotWritten) {
  const std::int64_t row = t.problem.width() * reference::bits_of(t.problem.d) / 8;
  std::memset(out.d.data() + 300 * row + 16, poison_byte, 4);
  expect_rejected(out, d_name());
}

TEST_P(Verify, RejectsWrongReductions) {
  if (t.problem.has_amax) {
    Outputs changed = out;
    changed.amax.as<float>()[0] *= 1.001f;
    expect_rejected(changed, "amax");
  }
  if (t.problem.has_dprob) {
    Outputs changed = out;
    float& value = changed.dprob.as<float>()[300];
    value = value * 1.01f + 0.1f;
    expect_rejected(changed, "dprob");
  }
  if (t.problem.has_dbias) {
    Outputs changed = out;
    const double value = reference::load(out.dbias.data(), DType::bfloat16, 7);
    reference::store(changed.dbias.data(), DType::bfloat16, 7, static_cast<float>(value * 1.1 + 1));
    expect_rejected(changed, "dbias");
  }
}

TEST_P(Verify, RejectsScaleCodesThatDiffer) {
  if (!t.problem.quantize) return;
  Outputs changed = out;
  changed.sfd_row.data()[0] += 2;  // one code, two steps
  expect_rejected(changed, "sfd_row");
  changed = out;
  for (std::int64_t i = 0; i < changed.sfd_row.size(); ++i)
    ++changed.sfd_row.data()[i];  // all codes, one step
  expect_rejected(changed, "sfd_row");
  changed = out;
  for (std::int64_t i = 0; i < changed.sfd_col.size(); ++i) ++changed.sfd_col.data()[i];
  expect_rejected(changed, "sfd_col");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Verify,
    testing::Values(Case{Op::srelu, Format::mxfp8, ActFunc::dswiglu, DType::float8_e4m3fn},
                    Case{Op::srelu, Format::mxfp8_e5m2, ActFunc::dswiglu, DType::float8_e5m2},
                    Case{Op::srelu, Format::mxfp8, ActFunc::dswiglu, DType::float4_e2m1fn_x2},
                    Case{Op::srelu, Format::nvfp4, ActFunc::dswiglu, DType::bfloat16},
                    Case{Op::srelu, Format::mxfp4, ActFunc::dswiglu, DType::float32},
                    Case{Op::dglu, Format::bf16, ActFunc::dswiglu, DType::bfloat16},
                    Case{Op::dglu, Format::bf16, ActFunc::dgeglu, DType::float32},
                    Case{Op::dglu, Format::mxfp8, ActFunc::dsituglu, DType::float8_e4m3fn},
                    Case{Op::dglu, Format::mxfp8_e5m2, ActFunc::dgeglu, DType::float8_e5m2},
                    Case{Op::dglu, Format::nvfp4, ActFunc::dsituglu, DType::float16},
                    Case{Op::dglu, Format::mxfp4_16, ActFunc::dswiglu, DType::bfloat16}),
    case_name);

TEST(VerifyNonFinite, NanMustStayNanAndInfinityMustNotBecomeFinite) {
  Problem p = basic_problem(Op::srelu, Format::mxfp4, 64, 64);
  p.c = DType::float32;
  p.d = DType::float32;
  p.has_amax = false;
  TestProblem t = make_problem(p, {256}, 0, 3);
  t.alpha.as<float>()[0] = 0.5f;
  t.prob.as<float>()[0] = t.prob.as<float>()[1] = 1;
  t.sfa.data()[reference::scale_index(0, 0, 2)] = 0xFF;  // row 0 becomes NaN
  Outputs out = t.outputs();
  reference::run(t.problem, t.operands(out));
  const auto passed = [&](const Outputs& got) {
    return verify::compare(t.problem, t.inputs(), t.operands(got)).passed();
  };
  ASSERT_TRUE(std::isnan(out.c.as<float>()[5]));
  ASSERT_TRUE(std::isnan(out.d.as<float>()[5]));
  EXPECT_TRUE(passed(out));
  Outputs changed = out;
  changed.d.as<float>()[5] = 0;
  EXPECT_FALSE(passed(changed)) << "a finite value where the truth is NaN";
  changed = out;
  changed.d.as<float>()[64 + 5] = NAN;
  EXPECT_FALSE(passed(changed)) << "NaN where the truth is finite";
  changed.d.as<float>()[64 + 5] = INFINITY;
  EXPECT_FALSE(passed(changed)) << "infinity where the truth is finite";
}

TEST(VerifyNonFinite, OverflowOfANarrowFormatIsInfinity) {
  Problem p = basic_problem(Op::srelu, Format::mxfp4, 32, 32);
  p.c = p.d = DType::float16;
  p.has_amax = false;
  TestProblem t = make_problem(p, {256}, 0, 3);
  t.alpha.as<float>()[0] = 3e4f;
  for (int m = 0; m < 256; ++m) t.prob.as<float>()[m] = 1;
  Outputs out = t.outputs();
  reference::run(t.problem, t.operands(out));
  ASSERT_TRUE(verify::compare(t.problem, t.inputs(), t.operands(out)).passed());
  std::int64_t infinite = 0, first = -1;
  for (std::int64_t i = 0; i < 256 * 32; ++i) {
    if (!std::isinf(reference::load(out.d.data(), DType::float16, i))) continue;
    if (infinite++ == 0) first = i;
  }
  ASSERT_GT(infinite, 100);
  reference::store(out.d.data(), DType::float16, first, 1000.0f);
  EXPECT_FALSE(verify::compare(t.problem, t.inputs(), t.operands(out)).passed());
}

/// alpha and beta at which float32 underflows or overflows somewhere between the products and D.
struct Extreme {
  float alpha, beta;
};

TEST(VerifyExtremes, AcceptsFloat32UnderflowAndOverflow) {
  constexpr Extreme extremes[] = {{1e-45f, 1}, {1e-30f, 1}, {1e-23f, 1}, {1e-21f, 1}, {1e-19f, 1},
                                  {1e10f, 1},  {1e19f, 1},  {1e20f, 1},  {1e25f, 1},  {3e38f, 1},
                                  {1, 1e-39f}, {1, 1e-20f}, {1, 1e20f},  {1, 3e38f}};
  std::vector<Problem> problems;
  for (const DType d : {DType::bfloat16, DType::float32}) {
    problems.push_back(basic_problem(Op::srelu, Format::mxfp4, 32, 64));
    problems.push_back(basic_problem(Op::dglu, Format::bf16, 32, 64));
    for (Problem& p : problems) p.d = d;
  }
  for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu}) {
    problems.push_back(basic_problem(Op::dglu, Format::mxfp8, 32, 64, act));
    problems.push_back(basic_problem(Op::dglu, Format::nvfp4, 32, 64, act));
    problems.back().epilogue_op = EpilogueOp::srelu;
  }
  problems.push_back(basic_problem(Op::srelu, Format::mxfp8, 32, 64));
  problems.push_back(basic_problem(Op::srelu, Format::nvfp4, 32, 64));
  problems.back().tanh_clamp_scale = 8;
  for (Problem& p : problems) {
    p.has_dbias = p.op == Op::dglu;
    for (const Extreme& extreme : extremes) {
      TestProblem t = make_problem(p, {128, 0, 128}, 0, 5);
      for (int g = 0; g < 3; ++g) t.alpha.as<float>()[g] = extreme.alpha;
      for (int g = 0; g < 3 && p.op == Op::dglu; ++g) t.beta.as<float>()[g] = extreme.beta;
      Outputs out = run_cpu(t);
      const verify::Report report =
          verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
      EXPECT_TRUE(report.passed()) << describe(t) << " alpha " << extreme.alpha << " beta " << extreme.beta
                                   << "\n"
                                   << verify::to_string(report);
    }
  }
}

/// Sums whose first half may overflow either way, so that relu may make zero of a large number.
TEST(VerifyExtremes, AcceptsEitherSignWhereSumsOverflow) {
  std::vector<Problem> problems(4, basic_problem(Op::srelu, Format::mxfp4, 64, 64));
  problems[1].tanh_clamp_scale = 8;
  problems[2] = problems[3] = basic_problem(Op::dglu, Format::mxfp4, 64, 64);
  problems[2].epilogue_op = EpilogueOp::relu;
  problems[3].epilogue_op = EpilogueOp::srelu;
  for (Problem& p : problems) {
    p.d = DType::float16;
    TestProblem t = make_problem(p, {128}, 0, 5);
    const auto passes = [&](Outputs& out) {
      return verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte}).passed();
    };
    for (std::int64_t m = 0; m < t.m; ++m) t.sfa.data()[reference::scale_index(m, 0, 2)] = 127;
    const auto scale_first_block = [&](std::uint8_t code) {
      for (std::int64_t n = 0; n < p.n; ++n) t.sfb[0].data()[reference::scale_index(n, 0, 2)] = code;
    };
    scale_first_block(127 + 122);
    Outputs out = run_cpu(t);
    EXPECT_TRUE(passes(out)) << describe(t);
    scale_first_block(127);  // nothing overflows
    out = run_cpu(t);
    EXPECT_TRUE(passes(out)) << describe(t);
    std::int64_t positive = 0;
    while (!(std::fabs(reference::load(out.d.data(), p.d, positive)) > 0.1)) ++positive;
    reference::store(out.d.data(), p.d, positive, 0.0f);
    EXPECT_FALSE(passes(out)) << describe(t) << ": zero is wrong where nothing overflows";
  }
}

/// Quantization whose products underflow: a scale may be 0 or round down, and the block then saturates.
TEST(VerifyExtremes, AcceptsScalesThatUnderflow) {
  struct Factors {
    float norm_const, alpha;
  };
  constexpr Factors factors[] = {{1e-45f, 1},     {1e-45f, 1e15f}, {6e-45f, 1e18f}, {5e-43f, 1e10f},
                                 {2e-41f, 1},     {1e-39f, 1e5f},  {1e-36f, 1e10f}, {1e30f, 1e-41f},
                                 {1e20f, 1e-40f}, {3e38f, 1e-38f}};
  for (const DType d : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2}) {
    Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 64);
    p.d = d;
    for (const Factors& f : factors) {
      TestProblem t = make_problem(p, {128, 0, 128}, 0, 5);
      *t.norm_const.as<float>() = f.norm_const;
      for (int g = 0; g < 3; ++g) t.alpha.as<float>()[g] = f.alpha;
      const Outputs out = run_cpu(t);
      const verify::Report report =
          verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
      EXPECT_TRUE(report.passed()) << describe(t) << " norm_const " << f.norm_const << " alpha " << f.alpha
                                   << "\n"
                                   << verify::to_string(report);
    }
  }
  // Saturated, but with the wrong sign.
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 64);
  TestProblem t = make_problem(p, {128}, 0, 5);
  *t.norm_const.as<float>() = 1e-45f;
  t.alpha.as<float>()[0] = 1e15f;
  Outputs out = run_cpu(t);
  std::uint8_t* d = out.d_col.data();
  std::uint8_t* largest = std::find(d, d + out.d_col.size(), std::uint8_t{0x7E});
  ASSERT_NE(largest, d + out.d_col.size());
  *largest = 0xFE;
  EXPECT_FALSE(verify::compare(t.problem, t.inputs(), t.operands(out)).find("d_col")->passed());
}

TEST(VerifyExtremes, StillRejectsWrongValues) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 32, 64);
  p.d = DType::float32;
  for (const float alpha : {1e-22f, 1e20f}) {
    TestProblem t = make_problem(p, {128}, 0, 5);
    t.alpha.as<float>()[0] = alpha;
    for (int m = 0; m < 128; ++m) t.prob.as<float>()[m] = 1;
    Outputs out = run_cpu(t);
    float* d = out.d.as<float>();
    float* largest = std::max_element(d, d + 128 * 64, [](float a, float b) { return a < b; });
    if (alpha < 1)
      ASSERT_LT(*largest, 1e-37f);
    else
      ASSERT_TRUE(std::isinf(*largest));
    *largest = alpha < 1 ? *largest * 1.7f : 1e30f;
    EXPECT_FALSE(verify::compare(t.problem, t.inputs(), t.operands(out)).passed()) << alpha;
  }
  // A scale code that no value within the bounds would give.
  p = basic_problem(Op::dglu, Format::mxfp8, 32, 64);
  TestProblem t = make_problem(p, {128}, 0, 5);
  t.alpha.as<float>()[0] = 1e20f;
  Outputs out = run_cpu(t);
  ASSERT_TRUE(verify::compare(t.problem, t.inputs(), t.operands(out)).passed());
  std::uint8_t* scales = out.sfd_row.data();
  std::replace(scales, scales + out.sfd_row.size(), std::uint8_t{0xFE}, std::uint8_t{0x70});
  EXPECT_FALSE(verify::compare(t.problem, t.inputs(), t.operands(out)).find("sfd_row")->passed());
}

TEST(RelativeFrobenius, OfKnownVectors) {
  const std::vector<double> a = {3, 4, NAN}, b = {3, 0, 1}, zero = {0, 0, 0};
  EXPECT_DOUBLE_EQ(verify::relative_frobenius(a, b), 4.0 / 3.0);
  EXPECT_EQ(verify::relative_frobenius(zero, zero), 0);
  EXPECT_TRUE(std::isinf(verify::relative_frobenius(b, zero)));
  EXPECT_THROW(verify::relative_frobenius(a, {}), InvalidArgument);
}

}  // namespace
}  // namespace gemmule::test
