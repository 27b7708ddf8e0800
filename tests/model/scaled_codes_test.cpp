// Scale codes below those for which FP8 operands are exact: what they make of a row does not depend on the other scales of
// its tile, which decide whether the tile is multiplied as FP16 or as BF16.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "backends/cpu_support.hpp"
#include "model/scaled_on_model.hpp"
#include "support/scaled_problems.hpp"

namespace gemmule::test {
namespace {

/// Operator and whether the rows are columns of B.
class ModelScaledCodes : public testing::TestWithParam<std::tuple<Op, bool>> {
 protected:
  static Op op() { return std::get<0>(GetParam()); }
  static bool in_b() { return std::get<1>(GetParam()); }
  static Problem problem(Format format) {
    Problem p = basic_problem(op(), format, 96, 96);
    p.b_n_major = format == Format::mxfp8_e5m2;
    return p;
  }
  static Outputs run(const TestProblem& t) {
    const Outputs got = t.outputs();
    EXPECT_EQ(run_scaled_on_model(t, got, {}).text(), "") << describe(t);
    return got;
  }
};

TEST_P(ModelScaledCodes, LowCodesScaleAsInEveryTile) {
  for (const auto& [format, code] :
       {std::pair{Format::mxfp8, 1}, {Format::mxfp8, 2}, {Format::mxfp8_e5m2, 1}, {Format::mxfp8_e5m2, 9}}) {
    const TestProblem t = with_code(problem(format), in_b(), static_cast<std::uint8_t>(code), 5);
    EXPECT_EQ(first_difference(t, run(t), run_cpu(t)), "") << "code " << code << ", " << describe(t);
  }
}

TEST_P(ModelScaledCodes, CodeZeroMakesZeroInEveryTile) {
  for (const Format format : {Format::mxfp8, Format::mxfp8_e5m2}) {
    const TestProblem t = with_code(problem(format), in_b(), 0, 6);
    const Outputs got = run(t);
    EXPECT_EQ(first_difference(t, got, run_cpu(with_zeros_in_coded_rows(t, in_b()))), "") << describe(t);
    // A row that vanishes is noticed above.
    const TestProblem low = with_code(problem(format), in_b(), 1, 6);
    EXPECT_NE(first_difference(low, got, run_cpu(low)), "");
  }
}

TEST_P(ModelScaledCodes, InfinityStaysInfinityUnderALowCode) {
  Problem p = problem(Format::mxfp8_e5m2);
  p.has_dprob = false;  // float32, where NaN has many bit patterns
  const auto with = [&](std::uint8_t code) {
    return with_infinities_in_coded_rows(with_code(p, in_b(), code, 7), in_b());
  };
  const TestProblem t = with(9);
  const Outputs expected = run_cpu(t);
  EXPECT_EQ(first_difference(t, run(t), expected), "") << describe(t);
  EXPECT_NE(first_difference(t, run(with(0)), expected), "") << "NaN in place of infinity is not noticed";
}

std::string case_name(const testing::TestParamInfo<std::tuple<Op, bool>>& info) {
  const auto [op, in_b] = info.param;
  return std::string(op == Op::srelu ? "srelu" : "dglu") + (in_b ? "InB" : "InA");
}

INSTANTIATE_TEST_SUITE_P(Operators, ModelScaledCodes,
                         testing::Combine(testing::Values(Op::srelu, Op::dglu), testing::Bool()), case_name);

}  // namespace
}  // namespace gemmule::test
