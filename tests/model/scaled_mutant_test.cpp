// Mutants of the block-scaled sm_90a kernels. GEMMULE_ALL_MUTANTS=1 tries every site, otherwise every seventh.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu_support.hpp"
#include "model/mutants.hpp"
#include "model/scaled_on_model.hpp"

namespace gemmule::test {
namespace {

constexpr Harmless harmless[] = {
    {model::Op::warp_sync, "row_tile_scheduler.hpp",
     "needed only if a lane is late by a whole round of the ring: few timings show it"},
    {model::Op::warp_sync, "scaled_frame.hpp",
     "brings the warp that initialises the barriers together for an aligned barrier"},
    {model::Op::warp_sync, "scaled_dglu_epilogue.hpp",
     "of what is known of a tile: the ring of tiles and the main loop bring the warp together too"},
    {model::Op::warp_sync, "scaled_mainloop.hpp",
     "before FP8's expanding warps give raw operands back: but in a tile's first stage, publishing B brings "
     "the warp together too"},
    {model::Op::setmaxnreg, "scaled_frame.hpp",
     "raises the register limit: the compiler's business, not the program's"},
};

MutantVariant make_variant(const Problem& p, const std::vector<std::int64_t>& rows,
                           const ScaledSettings& settings) {
  const auto t = std::make_shared<const TestProblem>(make_problem(p, rows, 0, 11, Data::exact));
  const auto expected = std::make_shared<const Outputs>(run_cpu(*t));
  const Outputs out = t->outputs();
  const ScaledReports reports = run_scaled_on_model(*t, out, settings);
  EXPECT_EQ(reports.text(), "");
  EXPECT_EQ(first_difference(*t, out, *expected), "");
  const auto sign = [t, expected, settings](std::uint64_t seed, const Mutation& drop) -> std::string {
    ScaledSettings mutant = settings;
    mutant.seed = seed;
    mutant.drop = drop;
    mutant.stop_at_hazard = true;
    mutant.instruction_limit = 20'000'000;
    const Outputs got = t->outputs();
    const ScaledReports run = run_scaled_on_model(*t, got, mutant);
    if (!run.main.clean()) return name(run.main.findings().front().kind);
    return first_difference(*t, got, *expected).empty() ? "" : "wrong result";
  };
  return {sign, synchronising_sites(reports.main)};
}

TEST(ModelScaledMutants, EverySynchronisationIsMissed) {
  std::vector<MutantVariant> variants;
  const auto add = [&](Problem p, const std::vector<std::int64_t>& rows, const ScaledSettings& settings) {
    p.m_aligned = 128;
    variants.push_back(make_variant(p, rows, settings));
  };
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 160, 352);
  p.use_dynamic_sched = true;
  add(p, {256, 0, 384}, {.dependent = true});
  p = basic_problem(Op::srelu, Format::nvfp4, 160, 352);
  p.discrete = true;
  p.c = DType::float32;
  add(p, {256, 0, 384}, {.multiprocessors = 1});
  // One step of k: nothing in the main loop orders the epilogues of two tiles.
  add(basic_problem(Op::srelu, Format::mxfp8, 160, 32), {256, 0, 384}, {.multiprocessors = 1});
  p = basic_problem(Op::dglu, Format::mxfp8, 160, 352);
  p.has_dbias = p.use_dynamic_sched = true;
  add(p, {256, 0, 384}, {.dependent = true});
  // Two tiles of expanded B instead of three: raw A is not ordered by the expanding warps too.
  p = basic_problem(Op::dglu, Format::mxfp8, 160, 352);
  p.c = DType::float32;
  add(p, {256, 0, 384}, {.multiprocessors = 1});
  p = basic_problem(Op::dglu, Format::nvfp4, 160, 352);
  p.discrete = p.deterministic = true;
  p.c = DType::float32;
  add(p, {256, 0, 384}, {.multiprocessors = 1});

  const std::size_t every = std::getenv("GEMMULE_ALL_MUTANTS") ? 1 : 7;
  EXPECT_GT(expect_mutants_caught(variants, harmless, every), every == 1 ? 40u : 6u);
}

}  // namespace
}  // namespace gemmule::test
