// Accuracy and special values of the elementary functions.
#include "numerics/math.hpp"

#include <gtest/gtest.h>

#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

using oracle::from_bits;
using oracle::to_bits;

struct Errors {
  double ulps = 0;
  double absolute = 0;
  double relative = 0;
};

/// Worst errors of f over the float32 values in [low, high], `stride` patterns apart, both signs.
template <class F, class Exact>
Errors sweep(float low, float high, std::uint32_t stride, F f, Exact exact) {
  Errors worst;
  for (std::uint32_t m = to_bits(low); m <= to_bits(high); m += stride)
    for (const float x : {from_bits(m), -from_bits(m)}) {
      const float got = f(x);
      const double want = exact(static_cast<double>(x));
      const double error = std::fabs(static_cast<double>(got) - want);
      if (error == 0.0 || static_cast<float>(want) == got) continue;
      // A NaN must not pass: every comparison below is written so that it counts as an error.
      if (!(error <= worst.absolute)) worst.absolute = error;
      if (!(error <= worst.relative * std::fabs(want))) worst.relative = error / std::fabs(want);
      const double ulps = oracle::ulps(got, want);
      if (!(ulps <= worst.ulps)) worst.ulps = ulps;
    }
  return worst;
}

TEST(Exp, WithinTwoUlps) {
  const auto f = [](float x) { return numerics::exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(sweep(0x1p-30f, 87.3f, 97, f, exact).ulps, 2.0);
  // Subnormal results, and large ones up to the overflow.
  EXPECT_LE(sweep(87.3f, 88.72f, 1, f, exact).ulps, 2.0);
  const auto negative = [](float x) { return numerics::exp(-std::fabs(x)); };
  EXPECT_LE(sweep(87.3f, 105.0f, 1, negative, [](double x) { return std::exp(-std::fabs(x)); }).ulps, 2.0);
}

TEST(Exp, SpecialValues) {
  EXPECT_EQ(numerics::exp(0.0f), 1.0f);
  EXPECT_EQ(numerics::exp(-0.0f), 1.0f);
  EXPECT_EQ(numerics::exp(-INFINITY), 0.0f);
  EXPECT_EQ(numerics::exp(-104.0f), 0.0f);
  EXPECT_EQ(numerics::exp(-3e38f), 0.0f);
  EXPECT_EQ(numerics::exp(89.0f), INFINITY);
  EXPECT_EQ(numerics::exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(numerics::exp(NAN)));
  EXPECT_TRUE(std::isnan(numerics::exp(-NAN)));
}

TEST(Sigmoid, WithinThreeUlps) {
  const auto f = [](float x) { return numerics::sigmoid(x); };
  const auto exact = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  EXPECT_LE(sweep(0x1p-30f, 104.0f, 97, f, exact).ulps, 3.0);
  const auto biased = [](float x) { return numerics::sigmoid(x) * 1.000001f; };
  EXPECT_GT(sweep(0x1p-30f, 104.0f, 9973, biased, exact).ulps, 3.0) << "control";
}

TEST(Sigmoid, SpecialValues) {
  EXPECT_EQ(numerics::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(numerics::sigmoid(-0.0f), 0.5f);
  EXPECT_EQ(numerics::sigmoid(128.0f), 1.0f);
  EXPECT_EQ(numerics::sigmoid(-128.0f), 0.0f);
  EXPECT_EQ(numerics::sigmoid(INFINITY), 1.0f);
  EXPECT_EQ(numerics::sigmoid(-INFINITY), 0.0f);
  EXPECT_EQ(numerics::sigmoid(-3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(numerics::sigmoid(NAN)));
}

TEST(Tanh, AccurateEverywhere) {
  const auto f = [](float x) { return numerics::tanh(x); };
  const auto exact = [](double x) { return std::tanh(x); };
  const Errors worst = sweep(0x1p-30f, 64.0f, 37, f, exact);
  EXPECT_LE(worst.absolute, 1e-6);
  EXPECT_LE(worst.relative, 1e-5);
  EXPECT_LE(worst.ulps, 2.0);
  EXPECT_LE(sweep(from_bits(1), 0x1p-30f, 9973, f, exact).ulps, 1.0);
  // The error that the GPU's approximate instruction is allowed to have.
  const auto coarse = [](float x) { return numerics::tanh(x) * (1.0f + 0x1p-11f); };
  EXPECT_GT(sweep(0x1p-30f, 64.0f, 9973, coarse, exact).relative, 1e-5) << "control";
}

TEST(Tanh, SpecialValues) {
  EXPECT_EQ(to_bits(numerics::tanh(0.0f)), 0u);
  EXPECT_EQ(to_bits(numerics::tanh(-0.0f)), 0x80000000u);
  for (const float x : {32.0f, 64.0f, 1e4f, 3e38f, INFINITY}) {
    EXPECT_EQ(numerics::tanh(x), 1.0f) << x;
    EXPECT_EQ(numerics::tanh(-x), -1.0f) << x;
  }
  EXPECT_TRUE(std::isnan(numerics::tanh(NAN)));
  EXPECT_TRUE(std::isnan(numerics::tanh(-NAN)));
}

TEST(Tanh, NeverAboveOneAndOdd) {
  for (std::uint32_t m = 0; m <= 0x7F800000u; m += 9973) {
    const float x = from_bits(m);
    EXPECT_LE(numerics::tanh(x), 1.0f);
    EXPECT_EQ(to_bits(numerics::tanh(-x)), to_bits(numerics::tanh(x)) | 0x80000000u);
  }
}

TEST(Relu, KeepsNaNAndDropsTheSignOfZero) {
  EXPECT_EQ(numerics::relu(2.5f), 2.5f);
  EXPECT_EQ(numerics::relu(INFINITY), INFINITY);
  for (const float x : {0.0f, -0.0f, -1.0f, -INFINITY}) EXPECT_EQ(to_bits(numerics::relu(x)), 0u) << x;
  EXPECT_TRUE(std::isnan(numerics::relu(NAN)));
}

TEST(FiniteReciprocal, NeverInfinite) {
  EXPECT_EQ(numerics::finite_reciprocal(4.0f), 0.25f);
  EXPECT_EQ(numerics::finite_reciprocal(1e-40f), std::numeric_limits<float>::max());
}

TEST(Fma, RoundsOnce) {
  const float a = 1.0f + 0x1p-12f;
  EXPECT_EQ(numerics::fma(a, a, -1.0f), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(a * a - 1.0f, 0x1p-11f) << "control: separate roundings lose the last term";
}

}  // namespace
}  // namespace gemmule
