// The Hopper kernels on a device: tile shapes, expert counts and extents that random problems do not reach. What they have
// in common with other kernels is in cuda_dglu_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backends/cpu/cpu.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda_support.hpp"

namespace gemmule::test {
namespace {

Outputs run_cpu(const TestProblem& t) {
  Outputs out = t.outputs();
  const std::size_t bytes = cpu::workspace_size(t.problem, t.m);
  const Buffer memory(static_cast<std::int64_t>(bytes));
  cpu::run(t.problem, t.operands(out), memory.data(), bytes);
  return out;
}

class CudaSm90 : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda::find_driver(&why)) GTEST_SKIP() << "NOT TESTED, no GPU: " << why;
    if (cuda::gpu(0).arch != cuda::Arch::sm_90a)
      GTEST_SKIP() << "NOT TESTED, not a Hopper GPU: " << cuda::gpu(0).describe();
  }
};

/// Whole tiles are 192 columns wide (128 with f32); the last one is multiplied at 64, 128 or 192.
TEST_F(CudaSm90, EveryWidthOfTheLastTileWithManyTilesPerExpert) {
  for (const std::int64_t n : {384, 416, 448, 480, 512, 544, 576}) {
    Problem p = basic_problem(Op::dglu, Format::bf16, n, 712);
    p.has_dbias = true;
    p.deterministic = n % 128 == 0;
    if (n % 96 == 0) p.d = DType::float32;
    const TestProblem t = make_problem(p, {768, 0, 1024, 256}, 256, 7, Data::exact);
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  }
}

TEST_F(CudaSm90, ManyMostlyEmptyExperts) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 96, 72);
  p.has_dbias = true;
  std::vector<std::int64_t> rows(1024, 0);
  for (const std::size_t expert : {0u, 31u, 32u, 500u, 1023u}) rows[expert] = 256;
  for (const bool dynamic : {false, true}) {
    p.use_dynamic_sched = dynamic;
    const TestProblem t = make_problem(p, rows, 0, 6, Data::exact);
    ASSERT_EQ(first_difference(t, run_cuda(t), run_cpu(t)), "") << describe(t);
  }
}

/// D has more than 2^31 elements. Gates and inputs are 128, so that D = R * prob * 128 in both halves.
TEST_F(CudaSm90, ExtentsBeyondThirtyTwoBits) {
  constexpr std::int64_t m = 270336, n = 4096, k = 8;
  Problem p = basic_problem(Op::dglu, Format::bf16, n, k);
  p.experts = 1;
  const auto plan = cuda::compile(p, 0);
  std::vector<std::uint16_t> a(m * k), b(n * k, 0x3F80);  // b: 1
  for (std::int64_t row = 0; row < m; ++row)
    std::fill_n(a.begin() + row * k, k,
                static_cast<std::uint16_t>(row % 2 == 0 ? 0x3F80 : 0x4000));  // 1 or 2
  const std::vector<float> ones(m, 1.0f);
  const std::int32_t end = m;
  const cuda::DeviceMemory device_a(0, a.data(), a.size() * 2), device_b(0, b.data(), b.size() * 2),
      factors(0, ones.data(), ones.size() * 4), offsets(0, &end, 4);
  cuda::DeviceMemory c(0, std::size_t{m} * 2 * n * 2), d(0, std::size_t{m} * 2 * n * 2),
      dprob(0, std::size_t{m} * 4);
  cuda::fill(0, c.data(), 0x43004300u, c.bytes() / 4, {});
  dprob.fill(0);
  cuda::synchronize(0);
  Operands o;
  o.m = m;
  o.a = device_a.data();
  o.b = device_b.data();
  o.c_in = c.data();
  o.d = d.data();
  o.padded_offsets = static_cast<const std::int32_t*>(offsets.data());
  o.alpha = o.beta = o.prob = static_cast<const float*>(factors.data());
  o.dprob = static_cast<float*>(dprob.data());
  const cuda::DeviceMemory scratch(0, cuda::workspace_size(*plan, m));
  cuda::execute(*plan, o, scratch.data(), scratch.bytes(), {});
  cuda::synchronize(0);
  std::vector<std::uint16_t> row(2 * n);
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{131071}, m - 2, m - 1}) {
    d.download(row.data(), row.size() * 2, static_cast<std::size_t>(r) * row.size() * 2);
    const std::uint16_t expected = r % 2 == 0 ? 0x4480 : 0x4500;  // 8 * 128 or 16 * 128
    EXPECT_EQ(std::count(row.begin(), row.end(), expected), 2 * n) << "row " << r;
    float sum = 0;
    dprob.download(&sum, 4, static_cast<std::size_t>(r) * 4);
    EXPECT_EQ(sum, (r % 2 == 0 ? 8.0f : 16.0f) * 128 * 128 * n) << "row " << r;
  }
}

}  // namespace
}  // namespace gemmule::test
