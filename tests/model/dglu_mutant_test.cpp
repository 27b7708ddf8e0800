// Mutants of the sm_90a BF16 dGLU kernel.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/cpu_support.hpp"
#include "model/dglu_on_model.hpp"
#include "model/mutants.hpp"

namespace gemmule::test {
namespace {

constexpr Harmless harmless[] = {
    {model::Op::warp_sync, "tile_scheduler.hpp",
     "needed only if a lane is late by a whole round of the ring: few timings show it"},
    {model::Op::warp_sync, "bf16_dglu.hpp",
     "brings the warp that initialises the barriers together for an aligned barrier"},
    {model::Op::setmaxnreg, "bf16_dglu.hpp",
     "raises the register limit: the compiler's business, not the program's"},
};

MutantVariant make_variant(const Problem& p, const ModelSettings& settings) {
  const auto t = std::make_shared<const TestProblem>(make_problem(p, {256, 0, 512}, 0, 11, Data::exact));
  const auto expected = std::make_shared<const Outputs>(run_cpu(*t));
  const Outputs out = t->outputs();
  const DgluReports reports = run_dglu_on_model(*t, out, settings);
  EXPECT_EQ(reports.text(), "");
  EXPECT_EQ(first_difference(*t, out, *expected), "");
  const auto sign = [t, expected, settings](std::uint64_t seed, const Mutation& drop) -> std::string {
    ModelSettings mutant = settings;
    mutant.seed = seed;
    mutant.drop = drop;
    mutant.stop_at_hazard = true;
    mutant.instruction_limit = 4'000'000;
    const Outputs got = t->outputs();
    const DgluReports run = run_dglu_on_model(*t, got, mutant);
    if (!run.main.clean()) return name(run.main.findings().front().kind);
    return first_difference(*t, got, *expected).empty() ? "" : "wrong result";
  };
  return {sign, synchronising_sites(reports.main)};
}

TEST(ModelDgluMutants, EverySynchronisationIsMissed) {
  std::vector<MutantVariant> variants;
  Problem p = basic_problem(Op::dglu, Format::bf16, 160, 328);
  p.has_dbias = true;
  variants.push_back(make_variant(p, {.tile = DgluTile::n128_cluster2, .dynamic = true, .dependent = true}));
  p.c = DType::float32;  // D has buffers of its own
  p.deterministic = true;
  variants.push_back(make_variant(p, {.tile = DgluTile::n128_cluster1}));
  p.discrete = true;
  variants.push_back(make_variant(p, {.tile = DgluTile::n128_cluster1, .multiprocessors = 1}));
  EXPECT_GT(expect_mutants_caught(variants, harmless), 40u);
}

}  // namespace
}  // namespace gemmule::test
