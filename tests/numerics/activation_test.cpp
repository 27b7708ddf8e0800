// Activations and gradients: worked examples, numerical differentiation in double, special values.
#include "numerics/activation.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

using numerics::GegluParams;
using numerics::Gradient;
using numerics::SituParams;
using oracle::to_bits;

constexpr GegluParams mask{1.0f, 1.702f, 7.0f, -7.0f, false};
constexpr GegluParams value{1.0f, 1.702f, 7.0f, -7.0f, true};

SituParams situ(float beta1, float beta2) {
  return {beta1, beta2, 1.0f / beta1, 1.0f / beta2};
}

struct Example {
  float r, gate, input;
  double dgate, dinput, dprob;
};

void expect_close(double got, double want, double tolerance, const char* what) {
  EXPECT_NEAR(got, want, tolerance * std::fabs(want)) << what;
}

/// prob is 0.75. Returns the sum of the dprob terms.
double check_examples(const std::vector<Example>& examples,
                      const std::function<Gradient(float, float, float, float)>& f, double tolerance) {
  double total = 0.0;
  for (const Example& e : examples) {
    SCOPED_TRACE(testing::Message() << "gate " << e.gate << " input " << e.input);
    const Gradient g = f(e.r, e.gate, e.input, 0.75f);
    expect_close(g.gate, e.dgate, tolerance, "dgate");
    expect_close(g.input, e.dinput, tolerance, "dinput");
    expect_close(g.dprob, e.dprob, tolerance, "dprob");
    total += g.dprob;
  }
  return total;
}

TEST(WorkedExample, Dswiglu) {
  const double total = check_examples(
      {{0.5f, 1.0f, 2.0f, 0.6957528839036151, 0.27414696698625185, 0.7310585786300049},
       {-1.25f, -2.0f, 0.75f, 0.06383267492687962, 0.2235054787914704, 0.22350547879147042},
       {2.0f, 3.0f, -1.5f, -2.4482342385341305, 4.28658357070095, -8.5731671414019}},
      [](float r, float gate, float input, float prob) { return numerics::dswiglu(r, gate, input, prob); },
      1e-6);
  expect_close(total, -7.618603083980425, 1e-6, "total");
}

TEST(WorkedExample, DgegluMask) {
  const double total = check_examples(
      {{0.5f, 1.0f, 2.0f, 1.2012520573758758, 0.317173412224808, 1.268693648899232},
       {-1.25f, -2.0f, 0.75f, 0.12110331566245161, 0.06032004080230487, 0.1407467618720447},
       {1.0f, 8.5f, 0.5f, 0.0, 5.249964846227488, 10.499929692454977},
       {1.0f, 1.5f, 8.25f, 6.593088387744618, 0.0, 11.133297587576612},
       {1.0f, 1.5f, -8.25f, -4.944816290808463, 0.0, -8.349973190682459},
       {1.0f, 7.0f, -7.0f, -4.500328856116097, 5.249964846227488, -41.99971876981991}},
      [](float r, float gate, float input, float prob) {
        return numerics::dgeglu(r, gate, input, prob, mask);
      },
      2e-6);
  expect_close(total, -27.3070242696995, 1e-6, "total");
}

TEST(WorkedExample, DgegluValue) {
  check_examples(
      {{0.5f, 1.0f, 2.0f, 1.2012520573758758, 0.634346824449616, 1.268693648899232},
       {-1.25f, -2.0f, 0.75f, -0.24220663132490322, 0.045240030601728654, 0.1407467618720447},
       {1.0f, 8.5f, 0.5f, 0.0, 2.624982423113744, 10.499929692454977},
       {1.0f, 1.5f, 8.25f, 9.889632581616926, 0.0, 11.133297587576612},
       {1.0f, 1.5f, -8.25f, -7.4172244362126944, 0.0, -8.349973190682459},
       {1.0f, 7.0f, -7.0f, -31.502301992812676, -36.74975392359242, -41.99971876981991}},
      [](float r, float gate, float input, float prob) {
        return numerics::dgeglu(r, gate, input, prob, value);
      },
      2e-6);
}

TEST(WorkedExample, Dsituglu) {
  const double total = check_examples(
      {{0.5f, 1.0f, 2.0f, 0.6584621143554255, 0.26686326226306456, 0.7146755657776099},
       {-1.25f, -2.0f, 0.75f, 0.07052371366572491, 0.20638563018433004, 0.2065094838539993},
       {2.0f, 8.0f, -40.0f, -2.4857347524158246, 0.8703815353448197, -177.6431885764206}},
      [](float r, float gate, float input, float prob) {
        return numerics::dsituglu(r, gate, input, prob, situ(4.0f, 25.0f));
      },
      4e-6);
  expect_close(total, -176.722003526789, 1e-6, "total");
  check_examples(
      {{0.5f, 1.0f, 2.0f, 0.5600437302547377, 0.24350525963346883, 0.6668023449311051},
       {-1.25f, -2.0f, 0.75f, 0.07710279119712857, 0.16926655552418962, 0.169902019583356},
       {2.0f, 8.0f, -40.0f, -0.03013767281726689, 0.00401880576201663, -39.932965954979764}},
      [](float r, float gate, float input, float prob) {
        return numerics::dsituglu(r, gate, input, prob, situ(2.0f, 10.0f));
      },
      // 1 - tanh^2 cancels at |input| / beta2 = 4.
      2e-4);
}

// ---- Numerical differentiation -------------------------------------------------------------------------------------

using Forward = std::function<double(double gate, double input)>;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double swiglu(double gate, double input) {
  return gate * sigmoid(gate) * input;
}

double geglu(double gate, double input, double offset) {
  const double yg = std::fmin(gate, 7.0);
  const double yu = std::fmax(std::fmin(input, 7.0), -7.0);
  return yg * sigmoid(static_cast<double>(1.702f) * yg) * (yu + offset);
}

double situglu(double gate, double input, double beta1, double beta2) {
  return beta1 * std::tanh(gate / beta1) * sigmoid(gate) * beta2 * std::tanh(input / beta2);
}

struct Region {
  float gate_low, gate_high, input_low, input_high;
};

/// Largest difference between `gradient` and central differences of prob * r * forward, in units of
/// |r| * max(1, |prob|) * (1 + |forward| scale). Points keep 1e-3 away from the region's edges.
double gradient_error(const Forward& forward,
                      const std::function<Gradient(float, float, float, float)>& gradient,
                      const Region& region, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low + 1e-3f, high - 1e-3f)(random);
  };
  double worst = 0.0;
  for (int i = 0; i < 2000; ++i) {
    const float gate = draw(region.gate_low, region.gate_high);
    const float input = draw(region.input_low, region.input_high);
    const float r = draw(-4.0f, 4.0f);
    const float prob = draw(-2.0f, 2.0f);
    constexpr double h = 1e-5;
    const double factor = static_cast<double>(r) * prob;
    const double dgate = factor * (forward(gate + h, input) - forward(gate - h, input)) / (2 * h);
    const double dinput = factor * (forward(gate, input + h) - forward(gate, input - h)) / (2 * h);
    const double dprob = r * forward(gate, input);
    const Gradient got = gradient(r, gate, input, prob);
    const double size = 1.0 + std::fabs(input) + std::fabs(gate);
    const double errors[] = {std::fabs(got.gate - dgate) / (std::fabs(factor) * size),
                             std::fabs(got.input - dinput) / (std::fabs(factor) * size),
                             std::fabs(got.dprob - dprob) / (std::fabs(r) * size * size)};
    for (const double e : errors)
      if (!(e <= worst)) worst = e;
  }
  return worst;
}

constexpr double tolerance = 4e-7;

TEST(Differentiation, Dswiglu) {
  const auto f = [](float r, float gate, float input, float prob) {
    return numerics::dswiglu(r, gate, input, prob);
  };
  EXPECT_LT(gradient_error(swiglu, f, {-3, 3, -3, 3}, 1), tolerance);
  EXPECT_LT(gradient_error(swiglu, f, {-30, -3, -10, 10}, 2), tolerance);
  EXPECT_LT(gradient_error(swiglu, f, {3, 30, -10, 10}, 3), tolerance);
  const auto swapped = [](float r, float gate, float input, float prob) {
    const Gradient g = numerics::dswiglu(r, gate, input, prob);
    return Gradient{g.input, g.gate, g.dprob};
  };
  EXPECT_GT(gradient_error(swiglu, swapped, {-3, 3, -3, 3}, 1), 1e-2) << "control";
}

TEST(Differentiation, DgegluMaskInEveryClampRegion) {
  const Region regions[] = {{-5, 7, -7, 7}, {7, 12, -7, 7},   {-5, 7, 7, 12},  {-5, 7, -12, -7},
                            {7, 12, 7, 12}, {7, 12, -12, -7}, {-40, -5, -7, 7}};
  for (const float offset : {0.0f, 1.0f, -0.5f}) {
    GegluParams params = mask;
    params.linear_offset = offset;
    const auto f = [&](float r, float gate, float input, float prob) {
      return numerics::dgeglu(r, gate, input, prob, params);
    };
    const auto forward = [&](double gate, double input) { return geglu(gate, input, offset); };
    for (const Region& region : regions) EXPECT_LT(gradient_error(forward, f, region, 5), tolerance);
  }
}

TEST(Differentiation, DgegluValueFilterIsNotTheGradient) {
  const auto f = [](float r, float gate, float input, float prob) {
    return numerics::dgeglu(r, gate, input, prob, value);
  };
  EXPECT_GT(
      gradient_error([](double gate, double input) { return geglu(gate, input, 1.0); }, f, {-5, 7, -7, 7}, 5),
      0.1);
}

TEST(Differentiation, Dsituglu) {
  const Region regions[] = {{-3, 3, -10, 10}, {-20, -3, -60, 60}, {3, 20, -60, 60}};
  for (const auto& [beta1, beta2] : {std::pair{4.0f, 25.0f}, {2.0f, 10.0f}, {3.5f, 1.0f}}) {
    const SituParams params = situ(beta1, beta2);
    const Forward forward = [b1 = beta1, b2 = beta2](double gate, double input) {
      return situglu(gate, input, b1, b2);
    };
    const auto general = [&](float r, float gate, float input, float prob) {
      return numerics::dsituglu_general(r, gate, input, prob, params);
    };
    const auto chosen = [&](float r, float gate, float input, float prob) {
      return numerics::dsituglu(r, gate, input, prob, params);
    };
    for (const Region& region : regions) {
      EXPECT_LT(gradient_error(forward, general, region, 7), 2 * tolerance) << beta1;
      EXPECT_LT(gradient_error(forward, chosen, region, 7), 2 * tolerance) << beta1;
    }
  }
}

TEST(Srelu, IsTheSquareOfThePositivePart) {
  EXPECT_EQ(numerics::srelu(3.0f), 9.0f);
  EXPECT_EQ(numerics::srelu(-3.0f), 0.0f);
  EXPECT_EQ(to_bits(numerics::srelu(-0.0f)), 0u);
  EXPECT_EQ(numerics::srelu(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(numerics::srelu(NAN)));
}

TEST(Srelu, ClampIsBoundedAndAccurate) {
  for (const float s : {0.5f, 16.0f, 32.0f, 1e-3f}) {
    const float s_rcp = numerics::finite_reciprocal(s);
    for (std::uint32_t m = to_bits(0x1p-20f * s); m < to_bits(100.0f * s); m += 10007) {
      const float x = oracle::from_bits(m);
      const float got = numerics::srelu_clamped(x, s, s_rcp);
      const double c = s * std::tanh(static_cast<double>(x) / s);
      ASSERT_LE(got, s * s) << x;
      ASSERT_NEAR(got, c * c, 4e-6 * c * c) << x;
      ASSERT_EQ(numerics::srelu_clamped(-x, s, s_rcp), 0.0f);
    }
    EXPECT_EQ(numerics::srelu_clamped(INFINITY, s, s_rcp), s * s);
    EXPECT_EQ(numerics::srelu_clamped(33.0f * s, s, s_rcp), s * s);
    EXPECT_TRUE(std::isnan(numerics::srelu_clamped(NAN, s, s_rcp)));
  }
}

TEST(Gradient, ProbScalesDButNotDprob) {
  const Gradient one = numerics::dswiglu(1.5f, 0.7f, -2.0f, 1.0f);
  const Gradient none = numerics::dswiglu(1.5f, 0.7f, -2.0f, 0.0f);
  EXPECT_EQ(none.gate, 0.0f);
  EXPECT_EQ(none.input, 0.0f);
  EXPECT_EQ(none.dprob, one.dprob);
  EXPECT_NE(one.dprob, 0.0f);
}

TEST(Gradient, ExactWhereSigmoidIs) {
  const Gradient zero = numerics::dswiglu(3.0f, 0.0f, 5.0f, 2.0f);
  EXPECT_EQ(zero.gate, 15.0f);  // 3 * 2 * 5 * 1/2
  EXPECT_EQ(zero.input, 0.0f);
  const Gradient high = numerics::dswiglu(3.0f, 128.0f, 5.0f, 2.0f);
  EXPECT_EQ(high.gate, 30.0f);
  EXPECT_EQ(high.input, 768.0f);
  EXPECT_EQ(high.dprob, 1920.0f);
  const Gradient low = numerics::dswiglu(3.0f, -128.0f, 5.0f, 2.0f);
  EXPECT_EQ(low.gate, 0.0f);
  EXPECT_EQ(low.input, 0.0f);
  const Gradient packed = numerics::dsituglu(3.0f, 128.0f, 800.0f, 2.0f, situ(4.0f, 25.0f));
  EXPECT_EQ(packed.dprob, 300.0f);  // 3 * 4 * 25
  EXPECT_EQ(packed.gate, 0.0f);
}

TEST(Gradient, DgegluBoundsAreInclusive) {
  const float above = std::nextafter(7.0f, 8.0f);
  EXPECT_NE(numerics::dgeglu(1, 7.0f, 1, 1, mask).gate, 0.0f);
  EXPECT_EQ(numerics::dgeglu(1, above, 1, 1, mask).gate, 0.0f);
  EXPECT_NE(numerics::dgeglu(1, 1, 7.0f, 1, mask).input, 0.0f);
  EXPECT_EQ(numerics::dgeglu(1, 1, above, 1, mask).input, 0.0f);
  EXPECT_NE(numerics::dgeglu(1, 1, -7.0f, 1, mask).input, 0.0f);
  EXPECT_EQ(numerics::dgeglu(1, 1, -above, 1, mask).input, 0.0f);
  // dprob ignores the filters.
  EXPECT_NE(numerics::dgeglu(1, above, 9.0f, 1, mask).dprob, 0.0f);
}

TEST(Gradient, NaNAndInfinityPropagate) {
  EXPECT_TRUE(std::isnan(numerics::dswiglu(NAN, 1, 1, 1).gate));
  EXPECT_TRUE(std::isnan(numerics::dswiglu(1, NAN, 1, 1).gate));
  EXPECT_TRUE(std::isnan(numerics::dswiglu(1, 1, NAN, 1).gate));
  EXPECT_TRUE(std::isnan(numerics::dswiglu(1, -INFINITY, 1, 1).gate));
  EXPECT_EQ(numerics::dswiglu(1, -3e38f, 1, 1).gate, 0.0f);
  EXPECT_TRUE(std::isnan(numerics::dgeglu(1, NAN, 1, 1, mask).gate));
  EXPECT_TRUE(std::isnan(numerics::dgeglu(1, 1, NAN, 1, mask).gate));
  EXPECT_TRUE(std::isnan(numerics::dsituglu(1, NAN, 1, 1, situ(4, 25)).gate));
  EXPECT_TRUE(std::isnan(numerics::dsituglu(1, 1, NAN, 1, situ(2, 10)).input));
}

}  // namespace
}  // namespace gemmule
