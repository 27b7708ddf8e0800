// One rule of synchronisation per test: a tiny kernel that obeys it and one that does not.
#include <gtest/gtest.h>

#include "ptx/fence.hpp"
#include "ptx/identity.hpp"
#include "ptx/mbarrier.hpp"

namespace gemmule {
namespace {

using model::Hazard;
using model::LaunchOptions;
using model::Report;

TEST(ModelSynchronisation, NamedBarrierOrdersSharedAccesses) {
  model::GlobalMemory memory;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    LaunchOptions options{.threads = 64, .shared_bytes = 1024, .seed = seed};
    std::vector<float> out(64);
    memory = {};
    const Report good = launch(options, memory, [&] {
      const ptx::Shared<float> s = ptx::dynamic_shared().as<float>();
      const ptx::u32 i = ptx::thread_index();
      ptx::store(s + i, static_cast<float>(i));
      ptx::named_barrier_sync(1, 64);
      out[i] = ptx::load(s + (63 - i));
    });
    EXPECT_EQ(good.text(), "");
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(63 - i));
    const Report bad = launch(options, memory, [&] {
      const ptx::Shared<float> s = ptx::dynamic_shared().as<float>();
      const ptx::u32 i = ptx::thread_index();
      ptx::store(s + i, static_cast<float>(i));
      out[i] = ptx::load(s + (63 - i));
    });
    EXPECT_FALSE(bad.clean());
    EXPECT_TRUE(bad.has(Hazard::unordered_access) || bad.has(Hazard::uninitialised_read)) << bad.text();
  }
}

}  // namespace
}  // namespace gemmule
