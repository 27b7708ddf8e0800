#include "model/mutants.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace gemmule::test {
namespace {

using model::Op;

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
    Op::grid_wait,           Op::tensor_alloc,
    Op::tensor_dealloc,      Op::tensor_relinquish,
    Op::tensor_wait_load,    Op::tensor_wait_store,
    Op::tensor_fence_before, Op::tensor_fence_after,
    Op::tensor_copy,         Op::tensor_mma,
    Op::tensor_commit,       Op::multicast_mask,
};

std::string sign_of(std::span<const MutantVariant> variants, const Mutation& site, std::uint64_t seeds) {
  for (const MutantVariant& v : variants) {
    if (std::find(v.sites.begin(), v.sites.end(), site) == v.sites.end()) continue;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const std::string sign = v.sign(seed, site);
      if (!sign.empty()) return sign;
    }
  }
  return "";
}

}  // namespace

std::vector<Mutation> synchronising_sites(const model::Report& report) {
  std::vector<Mutation> sites;
  for (const Op op : synchronising) {
    for (const model::Site& site : report.sites(op)) sites.emplace_back(op, site);
  }
  return sites;
}

std::size_t expect_mutants_caught(std::span<const MutantVariant> variants, std::span<const Harmless> harmless,
                                  std::size_t every, std::uint64_t seeds) {
  std::vector<Mutation> all;
  for (const MutantVariant& v : variants) {
    for (const Mutation& site : v.sites) {
      if (std::find(all.begin(), all.end(), site) == all.end()) all.push_back(site);
    }
  }
  std::vector<int> unnoticed(harmless.size(), 0);
  std::size_t tried = 0;
  for (std::size_t i = 0; i < all.size(); i += every) {
    const Mutation& site = all[i];
    ++tried;
    const std::string sign = sign_of(variants, site, seeds);
    const std::string place = to_string(site.second);
    std::printf("  %s at %s: %s\n", name(site.first), place.c_str(),
                sign.empty() ? "NOT CAUGHT" : sign.c_str());
    if (!sign.empty()) continue;
    bool excused = false;
    for (std::size_t h = 0; h < harmless.size(); ++h) {
      if (harmless[h].op == site.first && place.rfind(harmless[h].file, 0) == 0)
        excused = ++unnoticed[h] <= harmless[h].sites;
    }
    EXPECT_TRUE(excused) << name(site.first) << " at " << place << " can be left out unnoticed";
  }
  return tried;
}

}  // namespace gemmule::test
