// Block scales and codes of operator outputs: worked examples, rounding order, special blocks.
#include "numerics/quantization.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>

#include "numerics/formats.hpp"
#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

using numerics::u8;
using oracle::to_bits;

struct Block {
  float scale;  ///< before conversion to e8m0
  u8 scale_code;
  std::vector<int> codes;
};

using ScaleRule = float (*)(float amax, float rcp_max, float norm_const);
constexpr ScaleRule row = [](float a, float r, float n) { return numerics::row_scale(a, r, n); };
constexpr ScaleRule col = [](float a, float r, float n) { return numerics::col_scale(a, r, n); };

using Encode = u8 (*)(float);
constexpr Encode e4m3 = [](float x) { return numerics::encode_e4m3(x); };
constexpr Encode e5m2 = [](float x) { return numerics::encode_e5m2(x); };
constexpr Encode e2m1 = [](float x) { return numerics::encode_e2m1(x); };

Block quantize(std::span<const float> y, ScaleRule rule, float rcp_max, Encode encode, float norm_const) {
  float amax = 0.0f;
  for (const float v : y) amax = numerics::amax_step(amax, v);
  Block b{rule(amax, rcp_max, norm_const), 0, {}};
  b.scale_code = numerics::encode_e8m0(b.scale);
  const float multiplier = numerics::multiplier(norm_const, b.scale_code);
  for (const float v : y) b.codes.push_back(encode(v * multiplier));
  return b;
}

const std::vector<float> example = {0.0f, 1.0f, -1.0f, 3.0f, 7.0f, -6.5f, 0.3f, 0.0009765625f};

TEST(WorkedExample, E4m3) {
  const Block b = quantize(example, row, numerics::rcp_max_e4m3, e4m3, 1.0f);
  EXPECT_EQ(to_bits(b.scale), 0x3C800000u);
  EXPECT_EQ(b.scale_code, 0x79);
  EXPECT_EQ(numerics::multiplier(1.0f, b.scale_code), 64.0f);
  EXPECT_EQ(b.codes, (std::vector<int>{0x00, 0x68, 0xE8, 0x74, 0x7E, 0xFD, 0x5A, 0x18}));
}

TEST(WorkedExample, E4m3TwoUlpsMoreDoublesTheScale) {
  std::vector<float> y = example;
  y[4] = oracle::from_bits(0x40E00002);
  const Block b = quantize(y, row, numerics::rcp_max_e4m3, e4m3, 1.0f);
  EXPECT_EQ(to_bits(b.scale), 0x3C800002u);
  EXPECT_EQ(b.scale_code, 0x7A);
  EXPECT_EQ(b.codes, (std::vector<int>{0x00, 0x60, 0xE0, 0x6C, 0x76, 0xF5, 0x52, 0x10}));
}

TEST(WorkedExample, E4m3NormConst) {
  const Block b = quantize(example, row, numerics::rcp_max_e4m3, e4m3, 0.01f);
  EXPECT_EQ(to_bits(b.scale), 0x3923D70Au);
  EXPECT_EQ(b.scale_code, 0x73);
  EXPECT_EQ(to_bits(numerics::multiplier(0.01f, b.scale_code)), 0x4223D70Au);
  EXPECT_EQ(b.codes, (std::vector<int>{0x00, 0x62, 0xE2, 0x6F, 0x79, 0xF8, 0x54, 0x12}));
}

TEST(WorkedExample, E5m2) {
  const Block b = quantize(example, row, numerics::rcp_max_e5m2_output, e5m2, 1.0f);
  EXPECT_EQ(to_bits(b.scale), 0x3D600000u);
  EXPECT_EQ(b.scale_code, 0x7B);
  EXPECT_EQ(b.codes, (std::vector<int>{0x00, 0x4C, 0xCC, 0x52, 0x57, 0xD6, 0x45, 0x24}));
}

TEST(WorkedExample, E2m1) {
  const Block b = quantize(example, row, numerics::rcp_max_e2m1, e2m1, 1.0f);
  EXPECT_EQ(to_bits(b.scale), 0x3F955556u);
  EXPECT_EQ(b.scale_code, 0x80);
  EXPECT_EQ(b.codes, (std::vector<int>{0, 1, 9, 3, 6, 0xD, 0, 0}));
}

TEST(WorkedExample, OutputsOfAnOperator) {
  // Rows and columns of a small sReLU problem.
  const std::vector<float> row0 = {0.25f,   0,           0.765625f, 0.00390625f,
                                   1.5625f, 0.19140625f, 2.640625f, 0.66015625f};
  Block b = quantize(row0, row, numerics::rcp_max_e4m3, e4m3, 1.0f);
  EXPECT_EQ(b.scale_code, 0x78);
  EXPECT_EQ(b.codes, (std::vector<int>{0x60, 0x00, 0x6C, 0x30, 0x74, 0x5C, 0x7B, 0x6B}));
  const std::vector<float> row2 = {-0.0f,      -0.390625f, -0.765625f, -2.640625f,
                                   -3.515625f, -6.890625f, -8.265625f, -13.140625f};
  b = quantize(row2, row, numerics::rcp_max_e4m3, e4m3, 1.0f);
  EXPECT_EQ(b.scale_code, 0x7A);
  EXPECT_EQ(b.codes, (std::vector<int>{0x80, 0xD4, 0xDC, 0xEB, 0xEE, 0xF6, 0xF8, 0xFD}));
  const struct {
    std::vector<float> y;
    u8 scale;
    std::vector<int> codes;
  } columns[] = {{{0.25f, 0.0f, -0.0f}, 0x75, {0x78, 0x00, 0x80}},
                 {{0.0f, 0.0f, -0.390625f}, 0x75, {0x00, 0x00, 0xFC}},
                 {{1.5625f, 0.0f, -3.515625f}, 0x79, {0x6C, 0x00, 0xF6}},
                 {{0.66015625f, 0.0f, -13.140625f}, 0x7A, {0x5B, 0x00, 0xFD}}};
  for (const auto& c : columns) {
    b = quantize(c.y, col, numerics::rcp_max_e4m3, e4m3, 1.0f);
    EXPECT_EQ(b.scale_code, c.scale);
    EXPECT_EQ(b.codes, c.codes);
  }
}

TEST(WorkedExample, GradientBlock) {
  const std::vector<float> y = {3.5f, -1.0f, 0.25f, 0.0078125f, -3.0f};
  const Block b = quantize(y, row, numerics::rcp_max_e4m3, e4m3, 0.01f);
  EXPECT_EQ(b.scale, 7.8125e-5f);
  EXPECT_EQ(b.scale_code, 0x72);
  EXPECT_EQ(numerics::multiplier(0.01f, b.scale_code), 81.92f);
  const std::vector<float> decoded = {288.0f, -80.0f, 20.0f, 0.625f, -240.0f};
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(numerics::decode_e4m3(static_cast<u8>(b.codes[i])), decoded[i]);
}

TEST(Scale, ConstantsHaveTheDocumentedBits) {
  EXPECT_EQ(to_bits(numerics::rcp_max_e2m1), 0x3E2AAAABu);
  EXPECT_EQ(to_bits(numerics::rcp_max_e4m3), 0x3B124925u);
  EXPECT_EQ(to_bits(numerics::rcp_max_e5m2_output), 0x3C000000u);
  EXPECT_EQ(to_bits(numerics::rcp_max_e5m2_input), to_bits(static_cast<float>(1.0 / 57344.0)));
}

TEST(Scale, RowsAndColumnsRoundInDifferentOrders) {
  const struct {
    float amax;
    u8 row, col;
  } cases[] = {{35.0f, 0x78, 0x79}, {1.09375f, 0x73, 0x74}, {4480.0f, 0x7F, 0x80}};
  for (const auto& c : cases) {
    EXPECT_EQ(numerics::encode_e8m0(numerics::row_scale(c.amax, numerics::rcp_max_e4m3, 0.1f)), c.row)
        << c.amax;
    EXPECT_EQ(numerics::encode_e8m0(numerics::col_scale(c.amax, numerics::rcp_max_e4m3, 0.1f)), c.col)
        << c.amax;
  }
}

TEST(Multiplier, IsThePowerTimesNormConstRoundedOnce) {
  for (const float nc : {0.01f, 1.0f, 100.0f, 1e30f, 0.1f, 1e-30f, 1e-45f})
    for (int code = 0; code < 255; ++code) {
      // double holds the product exactly; conversion rounds once, to a subnormal where needed.
      const double exact = std::ldexp(static_cast<double>(nc), 127 - code);
      const double largest = std::numeric_limits<float>::max();
      float want = exact >= largest ? std::numeric_limits<float>::max() : static_cast<float>(exact);
      if (want == 0.0f) want = std::numeric_limits<float>::denorm_min();
      EXPECT_EQ(to_bits(numerics::multiplier(nc, static_cast<u8>(code))), to_bits(want)) << nc << " " << code;
    }
}

TEST(Multiplier, CornerCodes) {
  constexpr float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(numerics::multiplier(1.0f, 0x00), 0x1p127f);
  EXPECT_EQ(numerics::multiplier(0.01f, 0x00), 0.01f * 0x1p127f);
  EXPECT_EQ(numerics::multiplier(100.0f, 0x00), largest);
  EXPECT_EQ(numerics::multiplier(1e30f, 0x00), largest);
  EXPECT_EQ(numerics::multiplier(1.0f, 0xFE), 0x1p-127f);
  EXPECT_GT(numerics::multiplier(0.01f, 0xFE), 0.0f);
  EXPECT_EQ(numerics::multiplier(0.01f, 0xFE), static_cast<float>(static_cast<double>(0.01f) * 0x1p-127));
  EXPECT_EQ(numerics::multiplier(1e30f, 0xFE), 1e30f * 0x1p-127f);
  for (const float nc : {0.01f, 1.0f, 100.0f, 1e30f}) EXPECT_TRUE(std::isnan(numerics::multiplier(nc, 0xFF)));
}

constexpr float norm_consts[] = {1e-30f, 0.01f, 1.0f, 100.0f, 1e30f};

TEST(BlockScale, IsCodeAndMultiplierInOne) {
  const auto same = [](std::uint32_t bits, float norm_const) {
    const float s = oracle::from_bits(bits);
    const numerics::BlockScale got = numerics::block_scale(s, norm_const);
    const u8 code = numerics::encode_e8m0(s);
    const float multiplier = numerics::multiplier(norm_const, code);
    return got.code == code && (to_bits(got.multiplier) == to_bits(multiplier) ||
                                (std::isnan(got.multiplier) && std::isnan(multiplier)));
  };
  std::mt19937 random(5);
  for (const float norm_const : {1.0f, 0.3f, 1e-38f, 3e38f, 1e-45f}) {
    for (std::uint32_t high = 0; high < 1u << 16; ++high)
      for (const std::uint32_t low : {0u, 1u, 0xFFFFu, static_cast<std::uint32_t>(random()) & 0xFFFFu})
        ASSERT_TRUE(same(high << 16 | low, norm_const))
            << std::hex << high << ' ' << low << ' ' << norm_const;
  }
  EXPECT_NE(numerics::block_scale(1.0f, 1.0f).code, numerics::block_scale(1.5f, 1.0f).code);
}

TEST(SpecialBlock, Zeros) {
  const std::vector<float> y = {0.0f, -0.0f, 0.0f};
  for (const float nc : norm_consts)
    for (const ScaleRule rule : {row, col})
      for (const Encode encode : {e4m3, e5m2}) {
        const Block b = quantize(y, rule, numerics::rcp_max_e4m3, encode, nc);
        EXPECT_EQ(b.scale_code, 0x00) << nc;
        EXPECT_EQ(b.codes, (std::vector<int>{0x00, 0x80, 0x00})) << nc;
      }
  EXPECT_EQ(quantize(y, row, numerics::rcp_max_e2m1, e2m1, 1.0f).codes, (std::vector<int>{0, 8, 0}));
}

TEST(SpecialBlock, InfinitySaturatesAlone) {
  const std::vector<float> y = {1.0f, INFINITY, -INFINITY, 0.0f, 3e38f};
  for (const float nc : norm_consts)
    for (const ScaleRule rule : {row, col}) {
      const Block b = quantize(y, rule, numerics::rcp_max_e4m3, e4m3, nc);
      EXPECT_EQ(b.scale_code, 0xFE) << nc;
      EXPECT_EQ(b.codes[1], 0x7E) << nc;
      EXPECT_EQ(b.codes[2], 0xFE) << nc;
      EXPECT_EQ(b.codes[3], 0x00) << nc;
      const float want = 3e38f * numerics::multiplier(nc, 0xFE);
      EXPECT_EQ(b.codes[4], numerics::encode_e4m3(want)) << nc;
    }
}

TEST(SpecialBlock, NaNTakesTheWholeBlock) {
  for (const float nan : {NAN, -NAN})
    for (const ScaleRule rule : {row, col}) {
      const std::vector<float> y = {1.0f, nan, 0.0f, INFINITY, -2.0f};
      const Block fp8 = quantize(y, rule, numerics::rcp_max_e4m3, e4m3, 0.01f);
      EXPECT_EQ(fp8.scale_code, 0xFF);
      EXPECT_EQ(fp8.codes, (std::vector<int>(5, 0x7F)));
      EXPECT_EQ(quantize(y, rule, numerics::rcp_max_e5m2_output, e5m2, 1.0f).codes,
                (std::vector<int>(5, 0x7F)));
      EXPECT_EQ(quantize(y, rule, numerics::rcp_max_e2m1, e2m1, 1.0f).codes, (std::vector<int>(5, 7)));
    }
}

TEST(SpecialBlock, TinyValuesKeepTheirMagnitude) {
  const std::vector<float> y = {0x1p-121f};
  const Block b = quantize(y, row, numerics::rcp_max_e4m3, e4m3, 1.0f);
  EXPECT_EQ(b.scale_code, 0x00);
  EXPECT_EQ(numerics::decode_e4m3(static_cast<u8>(b.codes[0])), 64.0f);
}

TEST(Amax, PropagatesNaNAndStartsBelowZero) {
  EXPECT_EQ(numerics::amax_step(0.0f, -3.0f), 3.0f);
  EXPECT_EQ(numerics::amax_step(4.0f, -3.0f), 4.0f);
  EXPECT_EQ(to_bits(numerics::amax_step(-INFINITY, -0.0f)), 0u);
  EXPECT_EQ(numerics::amax_step(3.0f, -INFINITY), INFINITY);
  for (const float nan : {NAN, -NAN}) {
    EXPECT_TRUE(std::isnan(numerics::amax_step(INFINITY, nan)));
    EXPECT_TRUE(std::isnan(numerics::amax_step(std::fabs(nan), INFINITY)));
  }
}

TEST(Scale, UpwardRoundingNeverSaturatesABlock) {
  // Of a million blocks no largest magnitude may exceed the format after scaling; rounding to nearest fails half.
  std::mt19937 random(34);
  std::uniform_real_distribution<float> exponent(-40.0f, 40.0f);
  const struct {
    float rcp_max, largest;
  } formats[] = {{numerics::rcp_max_e4m3, 448.0f},
                 {numerics::rcp_max_e5m2_input, 57344.0f},
                 {numerics::rcp_max_e2m1, 6.0f}};
  std::int64_t above = 0, above_nearest = 0, too_large = 0;
  for (int i = 0; i < 1000000; ++i) {
    const auto& f = formats[i % 3];
    const float amax = std::exp2(exponent(random));
    const float s = numerics::row_scale(amax, f.rcp_max, 1.0f);
    const double scale = numerics::decode_e8m0(numerics::encode_e8m0(s));
    above += amax / scale > f.largest;
    too_large += amax / scale * 2 < f.largest * (1 - 1e-6);
    above_nearest += amax / std::exp2(std::round(std::log2(s))) > f.largest;
  }
  for (const auto& f : formats)
    for (int k = -100; k <= 100; ++k) {
      float amax = std::ldexp(f.largest, k);
      for (int step = 0; step < 8; ++step, amax = std::nextafter(amax, INFINITY))
        above += amax / numerics::decode_e8m0(numerics::encode_e8m0(amax * f.rcp_max)) > f.largest;
    }
  EXPECT_EQ(above, 0);
  EXPECT_EQ(too_large, 0) << "the scale is twice what it has to be";
  EXPECT_GT(above_nearest, 100000) << "control";
}

}  // namespace
}  // namespace gemmule
