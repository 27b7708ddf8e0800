// Mutants of the sm_100 kernels: without any one of its synchronising instructions a run shows a hazard or a wrong result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu_support.hpp"
#include "model/mutants.hpp"
#include "model/sm100_on_model.hpp"

namespace gemmule::test {
namespace {

constexpr Harmless harmless[] = {
    {model::Op::warp_sync, "tile_scheduler.hpp",
     "needed only if a lane is late by a whole round of the ring: few timings show it"},
    {model::Op::warp_sync, "frame.hpp", "brings the lanes together for an aligned barrier or dealloc", 2},
    {model::Op::setmaxnreg, "frame.hpp",
     "raises the register limit: the compiler's business, not the program's"},
    {model::Op::tensor_relinquish, "mainloop.hpp", "lets other CTAs of the SM allocate: there are none"},
    {model::Op::tensor_fence_before, "mainloop.hpp",
     "at set-up and tear-down: alloc and dealloc are synchronous, and accumulators are handed over with "
     "fences of their own",
     2},
    {model::Op::tensor_fence_after, "mainloop.hpp", "the same", 2},
    {model::Op::fence_proxy_async, "dglu.hpp",
     "before C's buffer is handed back: an arrival orders the loads before it in the model; that ptxas's "
     "code lets it "
     "overtake them is for overtaking_arrival() in machine_code.hpp to find"},
};

/// GEMMULE_MODEL_MUTANTS=all tries every site instead of a sample.
std::size_t stride() {
  const char* text = std::getenv("GEMMULE_MODEL_MUTANTS");
  return text && std::string(text) == "all" ? 1 : 8;
}

MutantVariant make_variant(const Problem& p, const std::vector<std::int64_t>& rows,
                           const Sm100Settings& settings) {
  const auto t = std::make_shared<const TestProblem>(make_problem(p, rows, 0, 11, Data::exact));
  const auto expected = std::make_shared<const Outputs>(run_cpu(*t));
  const Outputs out = t->outputs();
  const Sm100Reports reports = run_sm100_on_model(*t, out, settings);
  EXPECT_EQ(reports.text(), "");
  EXPECT_EQ(first_difference(*t, out, *expected), "");
  const auto sign = [t, expected, settings](std::uint64_t seed, const Mutation& drop) -> std::string {
    Sm100Settings mutant = settings;
    mutant.seed = seed;
    mutant.drop = drop;
    mutant.stop_at_hazard = true;
    mutant.instruction_limit = 4'000'000;
    const Outputs got = t->outputs();
    const Sm100Reports run = run_sm100_on_model(*t, got, mutant);
    if (!run.main.clean()) return name(run.main.findings().front().kind);
    return first_difference(*t, got, *expected).empty() ? "" : "wrong result";
  };
  return {sign, synchronising_sites(reports.main)};
}

/// The last of two tiles side by side has no columns, and K ends inside an instruction.
std::vector<MutantVariant> cluster_variants() {
  return {make_variant(basic_problem(Op::dglu, Format::nvfp4, 448, 352), {256, 256},
                       {.tile = {192, 2, 2, 2}, .multiprocessors = 4}),
          make_variant(basic_problem(Op::srelu, Format::mxfp8, 288, 416), {128, 128},
                       {.tile = {128, 2, 1, 2}, .multiprocessors = 2})};
}

TEST(ModelSm100Mutants, EverySynchronisationIsMissed) {
  std::vector<MutantVariant> variants;
  // K ends inside an instruction on e2m1, so that the pair corrects scale factors.
  Problem p = basic_problem(Op::dglu, Format::nvfp4, 96, 352);
  p.has_dbias = true;
  variants.push_back(
      make_variant(p, {256, 0, 512}, {.tile = {192, 2, 2}, .multiprocessors = 2, .dependent = true}));
  p = basic_problem(Op::srelu, Format::mxfp8, 160, 416);
  p.discrete = true;
  variants.push_back(
      make_variant(p, {128, 0, 384}, {.tile = {128, 2, 1}, .multiprocessors = 1, .dependent = true}));
  p = basic_problem(Op::dglu, Format::mxfp8, 96, 160);
  variants.push_back(
      make_variant(p, {128, 0, 256}, {.tile = {128, 2, 1}, .multiprocessors = 1, .dependent = true}));
  p = basic_problem(Op::dglu, Format::bf16, 160, 328);
  p.c = DType::float32;
  p.deterministic = p.has_dbias = true;
  variants.push_back(make_variant(p, {128, 0, 384}, {.tile = {128, 2, 1}, .dependent = true}));
  for (MutantVariant& v : cluster_variants()) variants.push_back(std::move(v));
  EXPECT_GT(expect_mutants_caught(variants, harmless, stride()), 80u / stride());
}

/// What holds a cluster together: barriers, loads, commits and masks of the main loop, cluster barriers.
bool is_of_clusters(const Mutation& site) {
  using enum model::Op;
  const std::initializer_list<model::Op> wanted = {
      multicast_mask,     tensor_commit, mbarrier_init, mbarrier_arrive,
      mbarrier_expect_tx, mbarrier_wait, cluster_sync,  tma_load,
  };
  return std::find(wanted.begin(), wanted.end(), site.first) != wanted.end() &&
         to_string(site.second).starts_with("mainloop.hpp");
}

TEST(ModelSm100Mutants, EverySynchronisationOfClustersIsMissed) {
  std::vector<MutantVariant> variants = cluster_variants();
  for (MutantVariant& v : variants)
    std::erase_if(v.sites, [](const Mutation& site) { return !is_of_clusters(site); });
  EXPECT_GT(expect_mutants_caught(variants, {}), 30u);
}

}  // namespace
}  // namespace gemmule::test
