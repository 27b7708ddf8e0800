// The litmus kernels on the model: what the documentation says comes out, and each synchronisation they contain is needed.
#include <gtest/gtest.h>

#include <optional>

#include "engine/tma.hpp"
#include "model/litmus/litmus.cuh"
#include "model/litmus/litmus_cases.hpp"

namespace gemmule::test {
namespace {

using litmus::Case;
using litmus::Kernel;
using model::Hazard;
using model::Op;

struct Outcome {
  model::Report report;
  std::vector<std::uint32_t> out;
  std::vector<std::uint16_t> a;
};

using Change = void (*)(litmus::Params&);

/// Tensors at 128-byte aligned addresses, as device allocations are.
struct Aligned {
  explicit Aligned(const std::vector<std::uint16_t>& values) : storage(values.size() * 2 + 256) {
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(storage.data());
    data = reinterpret_cast<std::uint16_t*>((at + 127) / 128 * 128);
    std::copy(values.begin(), values.end(), data);
  }
  std::vector<std::uint8_t> storage;
  std::uint16_t* data;
};

Outcome run(const Case& c, model::LaunchOptions options, Change change = nullptr) {
  Aligned a(c.a), b(c.b);
  Outcome result;
  result.out.assign(c.out.size() + 1, 0xEEEEEEEE);
  litmus::Params params;
  const auto place = [](cuda::TensorMap map, const void* base, ptx::TensorMap& to) {
    map.base = reinterpret_cast<std::uint64_t>(base);
    model::place_tensor_map(map, &to);
  };
  place(c.a_map, a.data, params.a);
  place(c.b_map, b.data, params.b);
  params.out = result.out.data();
  params.bytes_at = reinterpret_cast<const std::uint8_t*>(a.data);
  params.x = c.x;
  params.y = c.y;
  params.bytes = c.bytes;
  params.n_major = c.n_major;
  if (change) change(params);
  model::GlobalMemory memory;
  memory.add(a.data, c.a.size() * 2, "a", model::Access::read_write);
  memory.add(b.data, c.b.size() * 2, "b", model::Access::read_only);
  memory.add(result.out.data(), c.out.size() * 4, "out", model::Access::read_write);
  options.grid = c.grid;
  options.cluster = c.cluster;
  options.threads = litmus::threads;
  options.shared_bytes = litmus::shared_bytes;
  static constexpr void (*kernels[])(const litmus::Params&) = {
      litmus::load,       litmus::store,  litmus::multiply, litmus::multiply_registers,
      litmus::load_bytes, litmus::phases, litmus::cluster};
  result.report = launch(options, memory, [&] { kernels[static_cast<int>(c.kernel)](params); });
  result.a.assign(a.data, a.data + c.a.size());
  result.out.pop_back();
  return result;
}

TEST(ModelLitmus, OutcomesAreTheDocumentedOnes) {
  for (const Case& c : litmus::all_cases()) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const Outcome r = run(c, {.seed = seed});
      if (c.illegal) {
        EXPECT_TRUE(r.report.only(Hazard::global_out_of_bounds)) << c.name << ", seed " << seed;
        EXPECT_TRUE(r.a == c.a) << c.name << ", seed " << seed;
        continue;
      }
      EXPECT_EQ(r.report.text(), "") << c.name << ", seed " << seed;
      EXPECT_TRUE(r.out == c.out) << c.name << ", seed " << seed;
      EXPECT_TRUE(c.a_after.empty() || r.a == c.a_after) << c.name << ", seed " << seed;
    }
  }
}

const Case& find_case(const std::string& name) {
  static const std::vector<Case> cases = litmus::all_cases();
  for (const Case& c : cases) {
    if (c.name == name) return c;
  }
  throw std::logic_error("no litmus case " + name);
}

/// Leaves out every call of `op` in turn: each must give `kind` under every seed.
void expect_needed(const std::string& name, Op op, Hazard kind) {
  const Case& c = find_case(name);
  const std::vector<model::Site> sites = run(c, {}).report.sites(op);
  EXPECT_FALSE(sites.empty()) << model::name(op);
  bool found = false;
  for (const model::Site& site : sites) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const model::Report report = run(c, {.seed = seed, .drop = std::pair{op, site}}).report;
      EXPECT_FALSE(report.clean()) << name << " without " << model::name(op) << " at " << to_string(site);
      found = found || report.has(kind);
    }
  }
  EXPECT_TRUE(found) << name << " without " << model::name(op) << " never shows '" << model::name(kind)
                     << "'";
}

TEST(ModelLitmus, EachSynchronisationIsNeeded) {
  const std::string load = "load swizzle 3 at 0, 0", store = "store swizzle 3 at 0, 0",
                    multiply = "multiply, B n-major";
  expect_needed(load, Op::mbarrier_wait, Hazard::read_before_completion);
  expect_needed(load, Op::fence_mbarrier_init, Hazard::mbarrier_misuse);
  expect_needed(load, Op::barrier_sync, Hazard::mbarrier_misuse);
  expect_needed(load, Op::mbarrier_expect_tx, Hazard::deadlock);
  expect_needed(load, Op::tma_load, Hazard::deadlock);
  expect_needed(store, Op::fence_proxy_async, Hazard::missing_proxy_fence);
  expect_needed(store, Op::barrier_sync, Hazard::unordered_access);
  expect_needed(store, Op::bulk_wait_read, Hazard::write_under_pending_read);
  expect_needed(store, Op::bulk_commit, Hazard::write_under_pending_read);
  expect_needed(multiply, Op::mbarrier_wait, Hazard::read_before_completion);
  expect_needed(multiply, Op::wgmma_fence, Hazard::missing_wgmma_fence);
  expect_needed(multiply, Op::wgmma_commit, Hazard::accumulator_in_flight);
  expect_needed(multiply, Op::wgmma_wait, Hazard::accumulator_in_flight);
  const std::string registers = "multiply, A in registers", bytes = "load of contiguous bytes";
  expect_needed(registers, Op::wgmma_fence, Hazard::missing_wgmma_fence);
  expect_needed(registers, Op::wgmma_commit, Hazard::operand_in_flight);
  expect_needed(registers, Op::wgmma_wait, Hazard::operand_in_flight);
  expect_needed(bytes, Op::mbarrier_wait, Hazard::read_before_completion);
  expect_needed(bytes, Op::mbarrier_expect_tx, Hazard::deadlock);
  expect_needed("phases of an mbarrier", Op::mbarrier_wait, Hazard::unordered_access);
  expect_needed("phases of an mbarrier", Op::mbarrier_arrive, Hazard::deadlock);
  expect_needed("stores into the other CTA, and elect", Op::mbarrier_wait, Hazard::read_before_completion);
  expect_needed("stores into the other CTA, and elect", Op::store_async, Hazard::deadlock);
}

/// One changed parameter gives `kind` under every seed.
void expect_wrong(const std::string& name, Hazard kind, Change change,
                  std::optional<model::Timing> timing = {}) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const model::Report report = run(find_case(name), {.seed = seed, .timing = timing}, change).report;
    EXPECT_TRUE(report.has(kind)) << name << ", seed " << seed << ": no '" << model::name(kind)
                                  << "' but: " << report.text();
  }
}

TEST(ModelLitmus, WrongBytesAndMaps) {
  const std::string load = "load swizzle 3 at 0, 0";
  expect_wrong(load, Hazard::deadlock, [](litmus::Params& p) { p.bytes += 16; });
  expect_wrong(
      load, Hazard::mbarrier_misuse, [](litmus::Params& p) { p.bytes = 0; }, model::Timing::late);
  const auto change_map = [](litmus::Params& p, auto&& change) {
    cuda::TensorMap map;
    std::memcpy(static_cast<void*>(&map), &p.a, sizeof map);
    change(map);
    model::place_tensor_map(map, &p.a);
  };
  static const auto edit = change_map;
  expect_wrong(load, Hazard::illegal_tensor_map,
               [](litmus::Params& p) { edit(p, [](cuda::TensorMap& m) { m.stride[0] = 200; }); });
  expect_wrong(load, Hazard::illegal_tensor_map,
               [](litmus::Params& p) { edit(p, [](cuda::TensorMap& m) { m.box[0] = 128; }); });
  expect_wrong(load, Hazard::illegal_tensor_map, [](litmus::Params& p) {
    edit(p, [](cuda::TensorMap& m) { m.rank = 3, m.extent[2] = m.box[2] = 1, m.stride[1] = 16; });
  });
  expect_wrong(load, Hazard::global_out_of_bounds, [](litmus::Params& p) {
    edit(p, [](cuda::TensorMap& m) { m.extent[1] = 41; });
    p.y = 20;
  });
}

TEST(ModelCopies, DestinationsAndMaps) {
  const Case& c = find_case("load swizzle 3 at 0, 0");
  Aligned a(c.a);
  alignas(128) static ptx::TensorMap map;
  cuda::TensorMap plain = c.a_map;
  plain.base = reinterpret_cast<std::uint64_t>(a.data);
  model::place_tensor_map(plain, &map);
  model::GlobalMemory memory, with_map;
  memory.add(a.data, c.a.size() * 2, "a", model::Access::read_only);
  with_map = memory;
  with_map.add(&map, sizeof map, "map", model::Access::read_write);
  const auto hazards = [&](model::GlobalMemory& where, std::uint32_t offset, bool acquire) {
    return launch({.threads = 32, .shared_bytes = 65536}, where, [&] {
      const ptx::Shared<ptx::u8> base = ptx::dynamic_shared();
      const ptx::Barrier barrier = base.bytes(60000).as<ptx::Mbarrier>();
      if (ptx::thread_index() != 0) return;
      ptx::init(barrier, 1);
      ptx::fence_barrier_init();
      if (acquire) ptx::fence_tensor_map_acquire(&map);
      ptx::arrive_expect_bytes(barrier, c.bytes);
      ptx::load_box(base.bytes(offset), &map, 0, 0, barrier, ptx::CachePolicy::normal);
      ptx::wait(barrier, 0);
    });
  };
  EXPECT_EQ(hazards(memory, 0, false).text(), "");
  EXPECT_TRUE(hazards(memory, 512, false).has(Hazard::misaligned));
  EXPECT_TRUE(hazards(memory, 63 * 1024, false).has(Hazard::out_of_bounds));
  EXPECT_EQ(hazards(with_map, 0, true).text(), "");
  EXPECT_TRUE(hazards(with_map, 0, false).has(Hazard::missing_proxy_fence));
}

TEST(ModelWgmma, IllegalDescriptors) {
  struct Wrong {
    const char* what;
    void (*change)(ptx::MatrixDescriptor& a, ptx::MatrixDescriptor& b);
  };
  const Wrong wrong[] = {
      {"start inside the pattern", [](ptx::MatrixDescriptor& a, ptx::MatrixDescriptor&) { a.address += 8; }},
      {"stride", [](ptx::MatrixDescriptor&, ptx::MatrixDescriptor& b) { b.stride_bytes = 48; }},
      {"base offset", [](ptx::MatrixDescriptor& a, ptx::MatrixDescriptor&) { a.base_offset = 1; }},
      {"slice crosses the row", [](ptx::MatrixDescriptor& a, ptx::MatrixDescriptor&) { a.address += 7; }},
  };
  model::GlobalMemory memory;
  for (const Wrong& w : wrong) {
    const model::Report report = launch({.threads = 128, .shared_bytes = 65536}, memory, [&] {
      ptx::MatrixDescriptor a = ptx::swizzled_128(ptx::dynamic_shared(), 16, 1024);
      ptx::MatrixDescriptor b = ptx::swizzled_128(ptx::dynamic_shared().bytes(8192), 16, 1024);
      w.change(a, b);
      ptx::Accumulator<64> d;
      ptx::fence_accumulators();
      ptx::multiply<64, false>(d, a, b, false);
      ptx::commit_multiplications();
      ptx::wait_multiplications<0>();
    });
    EXPECT_TRUE(report.only(Hazard::illegal_descriptor)) << w.what << ": " << report.text();
  }
}

TEST(ModelWgmma, OnlyWrittenElementsMayBeRead) {
  enum class Move { none, bring_down };
  const auto kernel = [](int element, Move move) {
    const ptx::Shared<ptx::u32> words = ptx::dynamic_shared().as<ptx::u32>();
    for (ptx::u32 i = ptx::thread_index(); i < 4096; i += 128) ptx::store(words + i, 0u);
    ptx::fence_async_shared();
    ptx::sync_cta();
    ptx::Accumulator<128> d;
    ptx::fence_accumulators();
    ptx::multiply<64, false>(d, ptx::swizzled_128(ptx::dynamic_shared(), 16, 1024),
                             ptx::swizzled_128(ptx::dynamic_shared().bytes(8192), 16, 1024), false);
    ptx::commit_multiplications();
    ptx::wait_multiplications<0>();
    if (move == Move::bring_down) d.bring_down(24, 16);
    d.get(element);
  };
  model::GlobalMemory memory;
  const model::LaunchOptions options{.threads = 128, .shared_bytes = 65536};
  const auto run = [&](int element, Move move) {
    return launch(options, memory, [&] { kernel(element, move); });
  };
  EXPECT_EQ(run(31, Move::none).text(), "");
  for (const int written : {7, 16, 31}) EXPECT_EQ(run(written, Move::bring_down).text(), "");
  EXPECT_TRUE(run(32, Move::none).only(Hazard::uninitialised_read));
  EXPECT_TRUE(run(8, Move::bring_down).only(Hazard::uninitialised_read));
}

TEST(ModelWgmma, GoldenDescriptor) {
  ptx::MatrixDescriptor d = ptx::swizzled_128({0x12400}, 8192, 1024);
  EXPECT_EQ(__builtin_bit_cast(std::uint64_t, d), 0x4000004002001240ull);
  const model::MatrixView view = model::decode_descriptor(0x4000004002001240ull);
  EXPECT_EQ(view.start, 0x12400u);
  EXPECT_EQ(view.leading, 8192u);
  EXPECT_EQ(view.stride, 1024u);
  EXPECT_EQ(view.span, 128u);
  EXPECT_EQ(view.base_offset, 0u);
}

TEST(ModelWgmma, GenericWritesNeedTheProxyFence) {
  const auto kernel = [](bool fence, bool all) {
    const ptx::Shared<ptx::u32> words = ptx::dynamic_shared().as<ptx::u32>();
    for (ptx::u32 i = ptx::thread_index(); i < 4096; i += 128) ptx::store(words + i, 0u);
    if (fence && (all || ptx::thread_index() != 77)) ptx::fence_async_shared();
    ptx::sync_cta();
    ptx::Accumulator<64> d;
    ptx::fence_accumulators();
    ptx::multiply<64, false>(d, ptx::swizzled_128(ptx::dynamic_shared(), 16, 1024),
                             ptx::swizzled_128(ptx::dynamic_shared().bytes(8192), 16, 1024), false);
    ptx::commit_multiplications();
    ptx::wait_multiplications<0>();
    EXPECT_EQ(d.get(5), 0.0f);
  };
  model::GlobalMemory memory;
  const model::LaunchOptions options{.threads = 128, .shared_bytes = 65536};
  EXPECT_EQ(launch(options, memory, [&] { kernel(true, true); }).text(), "");
  EXPECT_TRUE(launch(options, memory, [&] { kernel(false, true); }).only(Hazard::missing_proxy_fence));
  EXPECT_TRUE(launch(options, memory, [&] { kernel(true, false); }).only(Hazard::missing_proxy_fence));
}

}  // namespace
}  // namespace gemmule::test
