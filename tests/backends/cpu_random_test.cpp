// The cpu backend against the float64 reference: random problems over everything that the operators accept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu_support.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

// Small enough that hundreds of problems take seconds.
TestProblem small_problem(std::uint64_t seed, Op op, Format format, Data data) {
  return random_problem(
      seed, {.op = op, .format = format, .data = data, .max_n = 96, .max_k = 160, .max_tiles = 4});
}

using Case = std::tuple<Op, Format>;

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(std::get<0>(info.param) == Op::srelu ? "srelu_" : "dglu_") +
         name(std::get<1>(info.param));
}

class CpuRandom : public testing::TestWithParam<Case> {};

TEST_P(CpuRandom, IsWithinTheBoundOfTheReference) {
  const auto [op, format] = GetParam();
  for (std::uint64_t seed = 1000; seed < 1015; ++seed) {
    const TestProblem t = small_problem(seed, op, format, Data::random);
    const Outputs out = run_cpu(t);
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
    ASSERT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

TEST_P(CpuRandom, WritesTheReferencesBytesWhenArithmeticIsExact) {
  const auto [op, format] = GetParam();
  for (std::uint64_t seed = 2000; seed < 2008; ++seed) {
    const TestProblem t = small_problem(seed, op, format, Data::exact);
    ASSERT_EQ(first_difference(t, run_cpu(t), run_reference(t)), "") << describe(t);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuRandom,
                         testing::Values(Case{Op::srelu, Format::mxfp8}, Case{Op::srelu, Format::mxfp8_e5m2},
                                         Case{Op::srelu, Format::mxfp4}, Case{Op::srelu, Format::mxfp4_16},
                                         Case{Op::srelu, Format::nvfp4}, Case{Op::dglu, Format::bf16},
                                         Case{Op::dglu, Format::mxfp8}, Case{Op::dglu, Format::mxfp8_e5m2},
                                         Case{Op::dglu, Format::mxfp4}, Case{Op::dglu, Format::mxfp4_16},
                                         Case{Op::dglu, Format::nvfp4}),
                         case_name);

// ---- the tests of the tests ----

TEST(ExactProblems, NeedNoRounding) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TestProblem t =
        random_problem(seed, {.data = Data::exact, .max_n = 96, .max_k = 96, .max_tiles = 3});
    const reference::Result r = reference::evaluate(t.problem, t.inputs());
    for (const reference::Values* values : {&r.d, &r.dprob, &r.dbias, &r.amax})
      for (const double v : values->value) {
        if (std::isnan(v)) continue;  // a row that nobody writes
        ASSERT_EQ(v, static_cast<double>(static_cast<float>(v))) << describe(t);
      }
  }
}

TEST(ExactProblems, ADifferenceInAnyOutputIsFound) {
  for (const Op op : {Op::srelu, Op::dglu}) {
    Problem p = basic_problem(op, Format::mxfp8, 64, 64);
    p.has_amax = true;
    p.has_dbias = op == Op::dglu;
    const TestProblem t = make_problem(p, {128, 0, 256}, 128, 1, Data::exact);
    const Outputs expected = run_reference(t);
    EXPECT_EQ(first_difference(t, expected, expected), "");
    for (Buffer Outputs::*buffer : {&Outputs::c, &Outputs::d, &Outputs::d_col, &Outputs::sfd_row,
                                    &Outputs::sfd_col, &Outputs::amax, &Outputs::dprob, &Outputs::dbias}) {
      if ((expected.*buffer).size() == 0) continue;
      Outputs changed = expected;
      (changed.*buffer).data()[0] ^= 1;
      EXPECT_NE(first_difference(t, changed, expected), "");
    }
  }
}

// A grouped test whose groups are all alike has never seen a ragged one.
TEST(RandomProblems, MixEmptyOneTileSeveralTilesAndHotExperts) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TestProblem t = random_problem(seed, {.max_n = 32, .max_k = 32});
    if (t.problem.single_group_runtime_offsets) continue;
    std::vector<std::int64_t> tiles;
    for (int g = 0; g < t.problem.experts; ++g)
      tiles.push_back((t.padded_offsets[g] - (g ? t.padded_offsets[g - 1] : 0)) / t.problem.m_aligned);
    EXPECT_EQ(std::count(tiles.begin(), tiles.end(), 0) > 0, true);
    EXPECT_EQ(std::count(tiles.begin(), tiles.end(), 1) > 0, true);
    EXPECT_EQ(std::count(tiles.begin(), tiles.end(), 2) > 0, true);
    EXPECT_EQ(*std::max_element(tiles.begin(), tiles.end()), 5);
  }
}

}  // namespace
}  // namespace gemmule::test
