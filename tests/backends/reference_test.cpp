// The float64 reference against itself, and the comparison against its negative controls.
#include <gtest/gtest.h>

#include "backends/reference/reference.hpp"
#include "support/problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

TEST(Reference, PassesItsOwnComparison) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const TestProblem t = random_problem(seed, {.data = seed % 4 == 3 ? Data::exact : Data::random});
    Outputs out = t.outputs();
    reference::run(t.problem, t.operands(out));
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
    ASSERT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

}  // namespace
}  // namespace gemmule::test
