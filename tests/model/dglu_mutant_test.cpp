// Every synchronising instruction of the sm_90a BF16 dGLU kernel is left out in turn, wherever one line executes it: the
// model must notice, by a hazard or by a wrong result, under some timing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "backends/cpu/cpu.hpp"
#include "model/dglu_on_model.hpp"

namespace gemmule::test {
namespace {

using model::Op;
using model::Site;

struct Variant {
  TestProblem problem;
  ModelSettings settings;
  Outputs expected;
  std::vector<std::pair<Op, Site>> sites;
};

constexpr Op synchronising[] = {
    Op::mbarrier_init,       Op::mbarrier_arrive,
    Op::mbarrier_expect_tx,  Op::mbarrier_wait,
    Op::fence_mbarrier_init, Op::fence_proxy_async,
    Op::fence_tensor_map,    Op::tma_load,
    Op::tma_store,           Op::store_async,
    Op::bulk_commit,         Op::bulk_wait,
    Op::bulk_wait_read,      Op::wgmma,
    Op::wgmma_fence,         Op::wgmma_commit,
    Op::wgmma_wait,          Op::barrier_sync,
    Op::barrier_arrive,      Op::cluster_sync,
    Op::warp_sync,           Op::setmaxnreg,
    Op::grid_wait,
};

/// Instructions that order nothing the model sees, or whose absence few timings show.
struct Harmless {
  Op op;
  const char* file;
  const char* why;
};
constexpr Harmless harmless[] = {
    {Op::warp_sync, "tile_scheduler.hpp",
     "needed only if a lane is late by a whole round of the ring: few timings show it"},
    {Op::warp_sync, "bf16_dglu.hpp",
     "brings the warp that initialises the barriers together for an aligned barrier"},
    {Op::setmaxnreg, "bf16_dglu.hpp",
     "raises the register limit: the compiler's business, not the program's"},
};

Variant make_variant(Problem p, ModelSettings settings) {
  Variant v;
  v.problem = make_problem(p, {256, 0, 512}, 0, 11, Data::exact);
  v.settings = settings;
  v.expected = v.problem.outputs();
  Buffer workspace(static_cast<std::int64_t>(cpu::workspace_size(p, v.problem.m)));
  cpu::run(v.problem.problem, v.problem.operands(v.expected), workspace.data(),
           static_cast<std::size_t>(workspace.size()));
  const Outputs out = v.problem.outputs();
  const DgluReports reports = run_dglu_on_model(v.problem, out, settings);
  EXPECT_EQ(reports.text(), "");
  EXPECT_EQ(first_difference(v.problem, out, v.expected), "");
  for (const Op op : synchronising) {
    for (const Site& site : reports.main.sites(op)) v.sites.emplace_back(op, site);
  }
  return v;
}

/// The first sign of the mutant under a few seeds; empty if there is none.
std::string caught(const Variant& v, std::pair<Op, Site> site) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    ModelSettings settings = v.settings;
    settings.seed = seed;
    settings.drop = site;
    settings.stop_at_hazard = true;
    settings.instruction_limit = 4'000'000;
    const Outputs out = v.problem.outputs();
    const DgluReports reports = run_dglu_on_model(v.problem, out, settings);
    if (!reports.main.clean()) return name(reports.main.findings().front().kind);
    if (!first_difference(v.problem, out, v.expected).empty()) return "wrong result";
  }
  return "";
}

TEST(ModelDgluMutants, EverySynchronisationIsMissed) {
  std::vector<Variant> variants;
  Problem p = basic_problem(gemmule::Op::dglu, Format::bf16, 160, 328);
  p.has_dbias = true;
  const ModelSettings pair{.tile = DgluTile::n128_cluster2, .dynamic = true, .dependent = true};
  variants.push_back(make_variant(p, pair));
  p.c = DType::float32;  // D has buffers of its own
  p.deterministic = true;
  variants.push_back(make_variant(p, {.tile = DgluTile::n128_cluster1}));
  p.discrete = true;
  variants.push_back(make_variant(p, {.tile = DgluTile::n128_cluster1, .multiprocessors = 1}));

  std::vector<std::pair<Op, Site>> done;
  std::vector<int> unnoticed(std::size(harmless), 0);
  for (const Variant& first : variants) {
    for (const auto& site : first.sites) {
      bool known = false;
      for (const auto& other : done) known = known || other == site;
      if (known) continue;
      done.push_back(site);
      std::string sign;
      for (const Variant& v : variants) {
        if (sign.empty() && std::find(v.sites.begin(), v.sites.end(), site) != v.sites.end())
          sign = caught(v, site);
      }
      std::printf("  %s at %s: %s\n", name(site.first), to_string(site.second).c_str(),
                  sign.empty() ? "NOT CAUGHT" : sign.c_str());
      if (!sign.empty()) continue;
      bool excused = false;
      for (std::size_t i = 0; i < std::size(harmless); ++i) {
        if (harmless[i].op != site.first || to_string(site.second).rfind(harmless[i].file, 0) != 0) continue;
        excused = ++unnoticed[i] == 1;
      }
      EXPECT_TRUE(excused) << name(site.first) << " at " << to_string(site.second)
                           << " can be left out unnoticed";
    }
  }
  EXPECT_GT(done.size(), 40u);
}

}  // namespace
}  // namespace gemmule::test
