// One rule of synchronisation per test: a tiny kernel that obeys it and others that do not.
#include <gtest/gtest.h>

#include "model/model_fixture.hpp"
#include "ptx/fence.hpp"
#include "ptx/global.hpp"
#include "ptx/grid.hpp"
#include "ptx/identity.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/warp.hpp"

namespace gemmule::test {
namespace {

using model::Access;
using model::GlobalMemory;
using model::Hazard;
using model::LaunchOptions;
using ptx::Barrier;
using ptx::Shared;
using ptx::u32;

Shared<float> floats() {
  return ptx::dynamic_shared().as<float>();
}
Barrier barrier(u32 index) {
  return ptx::dynamic_shared().bytes(512).as<ptx::Mbarrier>() + index;
}
constexpr LaunchOptions two_warps{.threads = 64, .shared_bytes = 1024};
constexpr LaunchOptions pair{.grid = 2, .cluster = 2, .threads = 32, .shared_bytes = 1024};

TEST(ModelSharedMemory, OrderOfThreads) {
  std::vector<float> out(64);
  expect_clean(
      two_warps,
      [&] {
        const u32 i = ptx::thread_index();
        ptx::store(floats() + i, static_cast<float>(i));
        ptx::sync_cta();
        out[i] = ptx::load(floats() + (63 - i));
      },
      [&] {
        for (u32 i = 0; i < 64; ++i) EXPECT_EQ(out[i], static_cast<float>(63 - i));
      });
  // Nothing orders the stores of one warp before the loads of the other. The second barrier keeps loads initialised.
  expect_hazard(Hazard::unordered_access, two_warps, [&] {
    const u32 i = ptx::thread_index();
    ptx::store(floats() + i, 1.0f);
    ptx::sync_cta();
    if (i < 32) ptx::store(floats() + i, 2.0f);
    if (i >= 32) ptx::load(floats() + (i - 32));
  });
  // A load that a later store must wait for.
  expect_hazard(Hazard::unordered_access, two_warps, [&] {
    const u32 i = ptx::thread_index();
    ptx::store(floats() + i, 1.0f);
    ptx::sync_cta();
    ptx::load(floats() + (63 - i));
    ptx::store(floats() + i, 2.0f);
  });
}

TEST(ModelSharedMemory, ReadsAndAddresses) {
  expect_hazard(Hazard::uninitialised_read, two_warps, [] { ptx::load(floats() + ptx::thread_index()); });
  expect_hazard(Hazard::out_of_bounds, two_warps, [] { ptx::store(floats() + 256, 1.0f); });
  expect_hazard(Hazard::out_of_bounds, two_warps, [] { ptx::store(Shared<float>{0}, 1.0f); });
  expect_hazard(Hazard::misaligned, two_warps, [] {
    if (ptx::thread_index() == 0)
      ptx::store(ptx::dynamic_shared().bytes(4).as<ptx::F32x2>(), ptx::F32x2{1, 2});
  });
}

TEST(ModelWarp, SyncOrdersLanesAndShufflesDoNot) {
  constexpr LaunchOptions warp{.threads = 32, .shared_bytes = 1024};
  const auto exchange = [](bool sync) {
    const u32 i = ptx::lane_index();
    ptx::store(floats() + i, 1.0f);
    if (sync)
      ptx::sync_warp();
    else
      ptx::shuffle_xor(1.0f, 1);
    ptx::load(floats() + (i ^ 1));
  };
  expect_clean(warp, [&] { exchange(true); });
  expect_hazard(Hazard::unordered_access, warp, [&] { exchange(false); });
}

TEST(ModelWarp, CollectivesGiveEveryLaneItsResult) {
  std::vector<float> xored(32);
  std::vector<u32> broadcast(32), ballots(32);
  int elected = 0;
  expect_clean(
      {.threads = 32},
      [&] {
        const u32 i = ptx::lane_index();
        xored[i] = ptx::shuffle_xor(static_cast<float>(i), 5);
        broadcast[i] = ptx::shuffle(100 + i, 7);
        ballots[i] = ptx::warp_ballot(i % 3 == 0);
        if (ptx::elect_one()) ++elected;
      },
      [&] {
        for (u32 i = 0; i < 32; ++i) {
          EXPECT_EQ(xored[i], static_cast<float>(i ^ 5));
          EXPECT_EQ(broadcast[i], 107u);
          EXPECT_EQ(ballots[i], 0x49249249u);
        }
        EXPECT_EQ(elected, 1);
        elected = 0;
      });
  expect_hazard(Hazard::divergent_collective, {.threads = 32}, [] {
    if (ptx::lane_index() < 16)
      ptx::sync_warp();
    else
      ptx::warp_ballot(true);
  });
  expect_hazard(Hazard::deadlock, {.threads = 32}, [] {
    if (ptx::lane_index() != 3) ptx::sync_warp();
  });
}

TEST(ModelNamedBarrier, Counts) {
  expect_clean({.threads = 96, .shared_bytes = 1024}, [] {
    const u32 warp = ptx::warp_index();
    if (warp == 0) {
      ptx::store(floats() + ptx::lane_index(), 1.0f);
      ptx::named_barrier_arrive(3, 64);
    } else if (warp == 1) {
      ptx::named_barrier_sync(3, 64);
      ptx::load(floats() + ptx::lane_index());
    }
  });
  expect_hazard(Hazard::named_barrier_misuse, two_warps, [] { ptx::named_barrier_sync(16, 64); });
  expect_hazard(Hazard::named_barrier_misuse, two_warps, [] { ptx::named_barrier_sync(1, 48); });
  expect_hazard(Hazard::named_barrier_misuse, {.threads = 96},
                [] { ptx::named_barrier_sync(1, ptx::warp_index() == 0 ? 64 : 96); });
  expect_hazard(Hazard::deadlock, two_warps, [] {
    if (ptx::warp_index() == 0) ptx::named_barrier_sync(1, 64);
  });
}

/// Thread 0 prepares barrier 0 for `count` arrivals; everybody may use it afterwards.
void prepare(u32 count, bool fence = true) {
  if (ptx::thread_index() == 0) {
    ptx::init(barrier(0), count);
    if (fence) ptx::fence_barrier_init();
  }
}

TEST(ModelMbarrier, PhasesHandOverData) {
  // One warp produces, the other consumes; `full` is barrier 0, `empty` barrier 1.
  const auto kernel = [](bool wait_full, bool wait_empty) {
    if (ptx::thread_index() == 0) {
      ptx::init(barrier(0), 32);
      ptx::init(barrier(1), 32);
    }
    ptx::sync_cta();
    const u32 lane = ptx::lane_index();
    for (u32 round = 0; round < 4; ++round) {
      if (ptx::warp_index() == 0) {
        if (wait_empty) ptx::wait(barrier(1), (round & 1) ^ 1);
        ptx::store(floats() + lane, static_cast<float>(round));
        ptx::arrive(barrier(0));
      } else {
        if (wait_full) ptx::wait(barrier(0), round & 1);
        EXPECT_TRUE(!wait_full || !wait_empty ||
                    ptx::load(floats() + (lane ^ 1)) == static_cast<float>(round));
        if (!wait_full || !wait_empty) ptx::load(floats() + (lane ^ 1));
        ptx::arrive(barrier(1));
      }
    }
  };
  expect_clean(two_warps, [&] { kernel(true, true); });
  for (const auto& [full, empty] : {std::pair{false, true}, {true, false}}) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      LaunchOptions options = two_warps;
      options.seed = seed;
      GlobalMemory memory;
      EXPECT_FALSE(launch(options, memory, [&] { kernel(full, empty); }).clean());
    }
  }
}

TEST(ModelMbarrier, Misuse) {
  expect_hazard(Hazard::mbarrier_misuse, two_warps, [] { ptx::arrive(barrier(0)); });
  expect_hazard(Hazard::mbarrier_misuse, two_warps, [] {
    if (ptx::thread_index() == 0) ptx::init(barrier(0), 0);
  });
  expect_hazard(Hazard::misaligned, two_warps, [] {
    if (ptx::thread_index() == 0) ptx::init(ptx::dynamic_shared().bytes(4).as<ptx::Mbarrier>(), 1);
  });
  // Two arrivals at a barrier for one, in the same phase: bytes outstanding keep the phase open.
  expect_hazard(Hazard::mbarrier_misuse, two_warps, [] {
    prepare(1);
    if (ptx::thread_index() != 0) return;
    ptx::arrive_expect_bytes(barrier(0), 16);
    ptx::arrive(barrier(0));
  });
  // Used by another thread without anything after its initialisation.
  expect_hazard(Hazard::mbarrier_misuse, two_warps, [] {
    prepare(1);
    if (ptx::thread_index() == 40) ptx::arrive(barrier(0));
  });
  expect_hazard(Hazard::deadlock, two_warps, [] {
    prepare(2);
    ptx::sync_cta();
    if (ptx::thread_index() == 0) ptx::arrive(barrier(0));
    if (ptx::warp_index() == 1) ptx::wait(barrier(0), 0);
  });
}

TEST(ModelMbarrier, ParityOfAnOldPhaseIsNoticed) {
  // The second wait should name parity 1; parity 0 is satisfied by the phase that was already waited for.
  expect_hazard(Hazard::wrong_phase, two_warps, [] {
    prepare(1);
    ptx::sync_cta();
    if (ptx::thread_index() == 0) ptx::arrive(barrier(0));
    if (ptx::warp_index() == 1) {
      ptx::wait(barrier(0), 0);
      ptx::wait(barrier(0), 0);
    }
  });
}

/// A test that says yes is a wait; it may say no, even of a complete phase.
TEST(ModelMbarrier, TestAcquiresOrSaysNo) {
  int refusals = 0;
  const auto kernel = [&](bool wait_after_no) {
    prepare(1);
    ptx::sync_cta();
    if (ptx::thread_index() == 0) {
      ptx::store(floats(), 1.0f);
      ptx::arrive(barrier(0));
    }
    if (ptx::thread_index() != 32) return;
    const bool ready = ptx::test(barrier(0), 0);
    if (!ready && wait_after_no) ptx::wait(barrier(0), 0);
    ptx::load(floats());
    if (wait_after_no) refusals += ptx::test(barrier(0), 0) ? 0 : 1;
  };
  expect_clean(two_warps, [&] { kernel(true); });
  EXPECT_GT(refusals, 0);
  EXPECT_LT(refusals, static_cast<int>(seeds));
  int clean = 0;
  LaunchOptions options = two_warps;
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    GlobalMemory memory;
    clean += launch(options, memory, [&] { kernel(false); }).clean() ? 1 : 0;
  }
  EXPECT_GT(clean, 0);
  EXPECT_LT(clean, static_cast<int>(seeds));
}

TEST(ModelCluster, RemoteArrivalsAndStores) {
  const auto kernel = [](bool fence, bool stay) {
    prepare(1, fence);
    if (fence) ptx::sync_cluster();
    if (!fence) ptx::sync_cta(), ptx::sync_cluster();
    const u32 peer = ptx::cluster_cta_rank() ^ 1;
    if (ptx::thread_index() == 0) {
      ptx::arrive_expect_bytes_remote(barrier(0), peer, 16);
      ptx::store_remote(ptx::dynamic_shared().as<ptx::U32x4>(), {peer, 2, 3, 4}, barrier(0), peer);
    }
    if (stay) {
      ptx::wait(barrier(0), 0);
      EXPECT_EQ(ptx::load(ptx::dynamic_shared().as<u32>()), ptx::cluster_cta_rank());
    }
  };
  expect_clean(pair, [&] { kernel(true, true); });
  expect_hazard(Hazard::mbarrier_misuse, pair, [&] { kernel(false, true); });
  // The record is read before the barrier has counted its bytes.
  expect_hazard(Hazard::exit_while_pending,
                {.grid = 2, .cluster = 2, .threads = 32, .shared_bytes = 1024, .timing = model::Timing::late},
                [&] { kernel(true, false); });
}

TEST(ModelCluster, BarrierOrdersAndDoesNotWaitForExitedThreads) {
  const auto kernel = [](bool sync) {
    ptx::store(floats() + ptx::thread_index(), 1.0f);
    if (ptx::cluster_cta_rank() == 1 && ptx::thread_index() >= 16) return;
    if (sync) ptx::sync_cluster();
    ptx::load(floats() + (ptx::thread_index() ^ 1));
  };
  expect_clean(pair, [&] { kernel(true); });
  expect_hazard(Hazard::unordered_access, pair, [&] {
    ptx::store(floats() + ptx::thread_index(), 0.0f);
    ptx::sync_cluster();
    kernel(false);
  });
}

TEST(ModelCluster, NeedsALaunchWithClusters) {
  expect_hazard(Hazard::cluster_misuse, {.threads = 32}, [] { ptx::sync_cluster(); });
  expect_hazard(Hazard::cluster_misuse, two_warps, [] {
    prepare(1);
    if (ptx::thread_index() == 0) ptx::arrive_remote(barrier(0), 0);
  });
}

TEST(ModelCluster, AnExitedCtaCannotBeReached) {
  expect_hazard(Hazard::out_of_bounds, pair, [] {
    prepare(1);
    ptx::sync_cluster();
    if (ptx::cluster_cta_rank() == 0) return;
    // Long enough for the other CTA to end.
    for (int i = 0; i < 600; ++i) ptx::sync_warp();
    if (ptx::thread_index() == 0) ptx::arrive_remote(barrier(0), 0);
  });
}

TEST(ModelRegisters, Ledger) {
  constexpr LaunchOptions three{.threads = 384};
  const auto kernel = [](bool lower) {
    if (ptx::warp_index() < 4) {
      if (lower) ptx::lower_registers<24>();
    } else {
      ptx::raise_registers<240>();
    }
  };
  expect_clean(three, [&] { kernel(true); });
  expect_hazard(Hazard::deadlock, three, [&] { kernel(false); });
  expect_hazard(Hazard::register_ledger, three, [] { ptx::lower_registers<200>(); });
  expect_hazard(Hazard::register_ledger, three, [] { ptx::raise_registers<24>(); });
  expect_hazard(Hazard::deadlock, three, [] {
    if (ptx::warp_index() == 0) ptx::lower_registers<24>();
  });
}

TEST(ModelGlobalMemory, BoundsAndOrder) {
  std::vector<float> data(64, 1.0f);
  std::vector<u32> counter(1, 0);
  GlobalMemory memory;
  memory.add(data, "data", Access::read_write);
  memory.add(counter, "counter", Access::read_write);
  constexpr LaunchOptions ctas{.grid = 2, .threads = 32};
  expect_clean(
      ctas,
      [&] {
        ptx::fetch_add(counter.data(), 1);
        const u32 i = ptx::cta_index() * 32 + ptx::thread_index();
        ptx::store(data.data() + i, ptx::load(data.data() + i));
      },
      [&] {
        EXPECT_EQ(counter[0], 64u);
        counter[0] = 0;
      },
      memory);
  expect_hazard(
      Hazard::global_out_of_bounds, ctas, [&] { ptx::load(data.data() + 64); }, memory);
  expect_hazard(
      Hazard::global_unordered_access, ctas, [&] { ptx::store(data.data() + ptx::thread_index(), 1.0f); },
      memory);
  expect_hazard(
      Hazard::global_unordered_access, ctas,
      [&] {
        if (ptx::cta_index() == 0) ptx::store(data.data(), 1.0f);
        if (ptx::cta_index() == 1) ptx::load(data.data());
      },
      memory);
  GlobalMemory guarded;
  guarded.add(data.data(), 64, "constants", Access::read_only, true, true);
  guarded.add(data.data() + 16, 64, "once", Access::write_once, false);
  const LaunchOptions one{.threads = 32};
  expect_hazard(
      Hazard::global_out_of_bounds, one, [&] { ptx::store(data.data(), 1.0f); }, guarded);
  expect_hazard(
      Hazard::uninitialised_read, one, [&] { ptx::load(data.data() + 16); }, guarded);
  expect_hazard(
      Hazard::global_unordered_access, one, [&] { ptx::store(data.data() + 16, 1.0f); }, guarded);
}

TEST(ModelGrid, EarlierGridsMemoryIsOffLimitsUntilTheWait) {
  std::vector<float> data(32, 1.0f);
  GlobalMemory memory;
  memory.add(data, "data", Access::read_write);
  const LaunchOptions options{.threads = 32, .dependent = true};
  const auto touch = [&] { ptx::load(data.data() + ptx::thread_index()); };
  expect_clean(
      options, [&] { ptx::wait_for_previous_grid(), touch(); }, [] {}, memory);
  expect_hazard(Hazard::grid_dependency, options, touch, memory);
}

TEST(ModelMachine, StopsWhatDoesNotEnd) {
  expect_hazard(Hazard::deadlock, {.threads = 32, .instruction_limit = 1000}, [] {
    for (;;) ptx::sync_warp();
  });
}

TEST(ModelMachine, SameSeedSameRun) {
  std::vector<float> sum(1);
  GlobalMemory memory;
  memory.add(sum, "sum", Access::read_write);
  const auto run = [&](std::uint64_t seed) {
    sum[0] = 0;
    launch({.grid = 4, .threads = 64, .seed = seed}, memory, [&] {
      ptx::reduce_add(sum.data(),
                      1.0f / (1.0f + static_cast<float>(ptx::thread_index() + 64 * ptx::cta_index())));
    });
    return sum[0];
  };
  bool differs = false;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    differs = differs || run(seed) != run(1);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace gemmule::test
