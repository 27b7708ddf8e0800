// The same bits from scalar code and from every vector width the machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "numerics/batch.hpp"
#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

std::vector<float> inputs() {
  std::mt19937 random(25);
  std::vector<float> x;
  // All magnitudes alike, then the range where the activations bend, then special values.
  for (int i = 0; i < 100000; ++i) x.push_back(oracle::from_bits(static_cast<std::uint32_t>(random())));
  std::normal_distribution<float> normal(0.0f, 6.0f);
  for (int i = 0; i < 100000; ++i) x.push_back(normal(random));
  for (const float v : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 128.0f, -128.0f, 7.0f, -7.0f, 1e-40f})
    x.push_back(v);
  return x;
}

std::vector<std::uint32_t> results(void (*run)(const batch::Arrays&), const std::vector<float>& x) {
  std::vector<std::uint32_t> out(x.size() * batch::outputs, 0xDEADBEEF);
  run({static_cast<std::int64_t>(x.size()), x.data(), out.data()});
  // The sign and payload of a NaN depend on the order in which an instruction sees its operands.
  for (auto& bits : out)
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u && bits != 0xDEADBEEF) bits = 0x7FC00000u;
  return out;
}

void expect_same(void (*run)(const batch::Arrays&)) {
  const std::vector<float> x = inputs();
  const auto want = results(batch::scalar, x);
  const auto got = results(run, x);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << "output " << i / x.size() << " of " << x[i % x.size()] << ": " << std::hex << got[i]
                    << ", scalar " << want[i];
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::count(want.begin(), want.end(), 0xDEADBEEF), 0) << "an output was not written";
}

TEST(Targets, BaselineLoops) {
  expect_same(batch::baseline);
}

#if defined(__x86_64__)
TEST(Targets, Avx2) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    GTEST_SKIP() << "this CPU has no AVX2: NOT run";
  expect_same(batch::avx2);
}

TEST(Targets, Avx512) {
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    GTEST_SKIP() << "this CPU has no AVX-512: NOT run";
  expect_same(batch::avx512);
}
#endif

}  // namespace
}  // namespace gemmule
