// Rules of multicast copies and commits: which CTAs a mask may name, when a buffer may be written again, which barrier is
// signalled, and that no CTA ends before what is on its way to it.
#include <gtest/gtest.h>

#include "engine/tma.hpp"
#include "model/model_fixture.hpp"
#include "ptx/fence.hpp"
#include "ptx/identity.hpp"
#include "ptx/tcgen05.hpp"
#include "ptx/tma_pair.hpp"
#include "ptx/warp.hpp"

namespace gemmule::test {
namespace {

using model::GlobalMemory;
using model::Hazard;
using model::LaunchOptions;
using ptx::Barrier;
using ptx::u16;
using ptx::u32;

constexpr LaunchOptions two{.grid = 2, .cluster = 2, .threads = 64, .shared_bytes = 8192};
constexpr LaunchOptions four{.grid = 4, .cluster = 4, .threads = 32, .shared_bytes = 8192};

Barrier full() {
  return ptx::dynamic_shared().bytes(4096).as<ptx::Mbarrier>();
}
Barrier empty() {
  return full() + 1;
}

/// A tensor of 64 x 64 16-bit values, value i at i, copied in boxes of eight rows: 1024 bytes.
class ModelMulticast : public testing::Test {
 protected:
  ModelMulticast() {
    for (std::size_t i = 0; i < 64 * 64; ++i) values_[i] = static_cast<std::uint16_t>(i);
    cuda::TensorMap plain;
    plain.base = reinterpret_cast<std::uint64_t>(values_);
    plain.element = cuda::Element::u16;
    plain.rank = 2;
    plain.extent[0] = plain.box[0] = plain.extent[1] = 64;
    plain.box[1] = 8;
    plain.stride[0] = 128;
    model::place_tensor_map(plain, &map_);
    memory_.add(values_, sizeof values_, "values", model::Access::read_only);
  }
  void load(u32 box, u16 ctas) const {
    ptx::load_box_multicast(ptx::dynamic_shared(), &map_, 0, static_cast<ptx::i32>(8 * box), full(), ctas,
                            ptx::CachePolicy::normal);
  }

  alignas(128) std::uint16_t values_[64 * 64];
  alignas(128) ptx::TensorMap map_;
  GlobalMemory memory_;
};

void prepare(u32 full_count, u32 empty_count) {
  if (ptx::thread_index() == 0) {
    ptx::init(full(), full_count);
    ptx::init(empty(), empty_count);
    ptx::fence_barrier_init();
  }
  ptx::sync_cluster();
}

TEST_F(ModelMulticast, AMaskNamesCtasOfTheCluster) {
  const auto copy = [&](u16 mask) {
    prepare(1, 1);
    if (ptx::thread_index() == 0) ptx::arrive_expect_bytes(full(), 1024);
    if (ptx::thread_index() == 0 && ptx::cluster_cta_rank() == 0) load(0, mask);
    if (mask == 3) ptx::wait(full(), 0);
    ptx::sync_cluster();
  };
  expect_clean(
      two, [&] { copy(3); }, [] {}, memory_);
  for (const u16 mask : {0, 4, 7})
    expect_hazard(
        Hazard::cluster_misuse, two, [&] { copy(mask); }, memory_);
  expect_hazard(
      Hazard::cluster_misuse, {.threads = 32, .shared_bytes = 8192},
      [&] {
        ptx::init(full(), 1);
        load(0, 1);
      },
      memory_);
  const auto commit = [](u16 mask) {
    prepare(1, 1);
    if (ptx::thread_index() == 0 && ptx::cluster_cta_rank() == 0)
      ptx::commit_tensor_work_multicast<1>(full(), mask);
    if (mask == 3) ptx::wait(full(), 0);
    ptx::sync_cluster();
  };
  expect_clean(two, [&] { commit(3); });
  for (const u16 mask : {0, 4, 7}) expect_hazard(Hazard::cluster_misuse, two, [&] { commit(mask); });
}

/// CTA 0 copies the same buffer of both twice; warp 1 of each reads it and releases it in CTA 0.
TEST_F(ModelMulticast, EveryCtaReleasesTheBufferBeforeItIsWrittenAgain) {
  const auto kernel = [&](u32 releases) {
    prepare(1, releases);
    const u32 lane = ptx::lane_index(), rank = ptx::cluster_cta_rank();
    if (ptx::warp_index() == 0) {
      for (u32 round = 0; lane == 0 && round < 2; ++round) {
        if (rank == 0) ptx::wait(empty(), round ^ 1);
        ptx::arrive_expect_bytes(full(), 1024);
        if (rank != 0) {
          ptx::wait(full(), round);
          continue;
        }
        load(round, 3);
      }
    } else {
      for (u32 round = 0; round < 2; ++round) {
        ptx::wait(full(), round);
        const u32 word = ptx::load(ptx::dynamic_shared().as<u32>() + lane);
        EXPECT_TRUE(releases != 2 || (word & 0xffff) == round * 512 + 2 * lane);
        ptx::fence_async_shared();
        ptx::sync_warp();
        // With one release the first to come lets CTA 0 write again.
        if (lane == 0 && (releases == 2 || rank == 0)) ptx::arrive_remote(empty(), 0);
      }
    }
    ptx::sync_cluster();
  };
  expect_clean(
      two, [&] { kernel(2); }, [] {}, memory_);
  LaunchOptions options = two;
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    const model::Report report = model::launch(options, memory_, [&] { kernel(1); });
    EXPECT_TRUE(report.has(Hazard::unordered_access) || report.has(Hazard::read_before_completion))
        << report.text();
  }
}

/// CTA r of two pairs copies half of what the CTAs on its side need, to both; the even ones count the bytes of their pair.
TEST_F(ModelMulticast, PairsSignalTheEvenCtaOfEachDestination) {
  const auto kernel = [&](bool own_side) {
    prepare(1, 1);
    const u32 rank = ptx::cluster_cta_rank(), side = rank % 2, slice = rank / 2;
    if (ptx::thread_index() == 0) {
      if (side == 0) ptx::arrive_expect_bytes(full(), 4 * 1024);
      ptx::load_box_pair_multicast(ptx::dynamic_shared().bytes(slice * 1024), &map_, 0,
                                   static_cast<ptx::i32>(8 * (2 * side + slice)), full(), rank & 2,
                                   static_cast<u16>(5 << (own_side ? side : 0)), ptx::CachePolicy::normal);
    }
    if (side == 0) ptx::wait(full(), 0);
    ptx::sync_cluster();
    for (u32 i = 0; own_side && i < 2; ++i)
      EXPECT_EQ(ptx::load(ptx::dynamic_shared().bytes(i * 1024).as<u32>()) & 0xffff, (2 * side + i) * 512);
  };
  expect_clean(
      four, [&] { kernel(true); }, [] {}, memory_);
  expect_hazard(
      Hazard::read_before_completion, four, [&] { kernel(false); }, memory_);
}

TEST_F(ModelMulticast, NoCtaEndsBeforeTheArrivalsOfACommit) {
  const auto kernel = [](bool wait) {
    prepare(1, 1);
    if (ptx::thread_index() == 0 && ptx::cluster_cta_rank() == 0)
      ptx::commit_tensor_work_multicast<1>(full(), 3);
    if (wait) ptx::wait(full(), 0);
    ptx::sync_cluster();
  };
  LaunchOptions late = two;
  late.timing = model::Timing::late;
  expect_clean(late, [&] { kernel(true); });
  expect_hazard(Hazard::exit_while_pending, late, [&] { kernel(false); });
}

/// Bytes are counted where they land, and once where they come from.
TEST_F(ModelMulticast, BytesFetched) {
  const model::Report report = model::launch(two, memory_, [&] {
    prepare(1, 1);
    if (ptx::thread_index() == 0) ptx::arrive_expect_bytes(full(), 1024);
    if (ptx::thread_index() == 0 && ptx::cluster_cta_rank() == 0) load(0, 3);
    ptx::wait(full(), 0);
    ptx::sync_cluster();
  });
  EXPECT_EQ(report.text(), "");
  EXPECT_EQ(report.count(model::Op::tma_load).bytes, 2048);
  EXPECT_EQ(report.count(model::Op::tma_load).fetched, 1024);
}

}  // namespace
}  // namespace gemmule::test
