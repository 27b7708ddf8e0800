// Every operand byte with every scale, expanded as the kernels do, against the formats' decoders.
#include <gtest/gtest.h>

#include <cmath>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/machine.hpp"
#include "layout/scale_factors.hpp"
#include "numerics/formats.hpp"
#include "sm90/scale_window.hpp"

namespace gemmule::test {
namespace {

using kernels::ScaledOptions;
using kernels::ScaleFormat;
using numerics::u32;
using numerics::u8;
namespace expand = kernels::expand;
using KernelFormat = kernels::Format;

double value_of(KernelFormat format, u32 code) {
  const u8 byte = static_cast<u8>(code);
  return static_cast<double>(format == KernelFormat::e4m3   ? numerics::decode_e4m3(byte)
                             : format == KernelFormat::e5m2 ? numerics::decode_e5m2(byte)
                                                            : numerics::decode_e2m1(byte));
}

struct Range {
  KernelFormat ab;
  ScaleFormat scale;
  u32 first, last;  ///< codes whose products are exact
};

/// 16 bytes with `code` at value `index` and something else everywhere else.
ptx::U32x4 words_with(KernelFormat ab, u32 index, u32 code) {
  u32 words[4] = {0x35A1C27Eu, 0x91B4D368u, 0x0A5BE3F2u, 0x47C61D39u};
  const u32 bits = kernels::bits_of(ab), per_word = 32 / bits;
  u32& word = words[index / per_word];
  const u32 shift = index % per_word * bits, mask = ((1u << bits) - 1) << shift;
  word = (word & ~mask) | code << shift;
  return {words[0], words[1], words[2], words[3]};
}

/// How a value of an operand was multiplied by its scale: as BF16, or as FP16 by the factor in `fp16`.
struct PairFactor {
  expand::Factor bf16;
  u32 fp16;
};

PairFactor factor_of(const ScaledOptions& o, u32 scales, u32 block) {
  const u32 selector = expand::scale_selector(o, block);
  if (expand::always_fp16(o)) return {{}, expand::fp16_factor(o, scales, selector, 0)};
  return {expand::factor(o, scales, selector), 0};
}

/// Value `index` of 16 bytes after expansion, by the documented place of each value.
float expanded(const ScaledOptions& o, const ptx::U32x4& words, u32 index, const PairFactor& factor) {
  const bool fp4 = o.ab == KernelFormat::e2m1, fp16 = expand::always_fp16(o);
  const u32 step = fp4 ? index / 16 : 0, in_step = index % 16;
  const u32 word = fp4 ? in_step / 8 : in_step / 4, in_word = fp4 ? in_step % 8 : in_step % 4;
  const u32 fp4_pair = fp16 ? (1 - in_word % 2) * 2 + in_word / 4 : in_word % 4;
  const u32 pair = fp4 ? word * 4 + fp4_pair : word * 2 + in_word / 2;
  const bool high = fp4 && fp16 ? in_word / 2 % 2 == 1 : fp4 ? in_word >= 4 : in_word % 2 == 1;
  const ptx::U32x2 two = fp16 ? expand::fp16_slice_pairs(o, words, step, pair / 2, factor.fp16)
                              : expand::slice_pairs(o, words, step, pair / 2, factor.bf16);
  const u32 bits = pair % 2 == 0 ? two.x : two.y;
  const auto half = static_cast<numerics::u16>(high ? bits >> 16 : bits & 0xffff);
  return fp16 ? numerics::decode_fp16(half) : numerics::decode_bf16(half);
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b;
}

TEST(Expand, EveryByteWithEveryScale) {
  const Range ranges[] = {{KernelFormat::e4m3, ScaleFormat::e8m0, 3, 246},
                          {KernelFormat::e5m2, ScaleFormat::e8m0, 10, 239},
                          {KernelFormat::e2m1, ScaleFormat::e8m0, 0, 252},
                          {KernelFormat::e2m1, ScaleFormat::e4m3, 0, 255}};
  for (const Range& range : ranges) {
    ScaledOptions o;
    o.ab = range.ab;
    o.scale = range.scale;
    const u32 codes = o.ab == KernelFormat::e2m1 ? 16 : 256, values = 128 / kernels::bits_of(o.ab);
    const double unit = 1 / std::sqrt(static_cast<double>(expand::result_factor(o)));
    for (u32 code = 0; code < 256; ++code) {
      const u32 block = code % 4;
      const PairFactor factor = factor_of(o, 0x99999999u ^ (0x99u ^ code) << (8 * block), block);
      const double scale =
          static_cast<double>(o.scale == ScaleFormat::e4m3 ? numerics::decode_e4m3(static_cast<u8>(code))
                                                           : numerics::decode_e8m0(static_cast<u8>(code)));
      for (u32 x = 0; x < codes; ++x) {
        const double truth = value_of(o.ab, x) * scale * unit;
        const u32 index = (code * 7 + x) % values;
        const double got = static_cast<double>(expanded(o, words_with(o.ab, index, x), index, factor));
        if (code >= range.first && code <= range.last)
          ASSERT_TRUE(same(got, truth))
              << "byte " << x << ", scale " << code << ": " << got << ", not " << truth;
        else if (code == 0)
          ASSERT_TRUE(std::isfinite(truth) ? got == 0 : std::isnan(got)) << "byte " << x << ", scale 0";
        else if (std::isnan(truth))
          ASSERT_TRUE(std::isnan(got)) << "byte " << x << ", scale " << code;
        else
          ASSERT_TRUE(std::isfinite(truth) ? !std::isnan(got) : !std::isfinite(got))
              << "byte " << x << ", scale " << code;
      }
    }
  }
}

TEST(Expand, EveryPlaceOfAValue) {
  const std::pair<KernelFormat, ScaleFormat> operands[] = {{KernelFormat::e4m3, ScaleFormat::e8m0},
                                                           {KernelFormat::e5m2, ScaleFormat::e8m0},
                                                           {KernelFormat::e2m1, ScaleFormat::e8m0},
                                                           {KernelFormat::e2m1, ScaleFormat::e4m3}};
  for (const auto& [ab, scale] : operands) {
    ScaledOptions o;
    o.ab = ab;
    o.scale = scale;
    const double unit = 1 / std::sqrt(static_cast<double>(expand::result_factor(o)));
    const PairFactor one = factor_of(o, scale == ScaleFormat::e8m0 ? 127 : 0x38, 0);
    for (u32 index = 0; index < 128 / kernels::bits_of(ab); ++index) {
      for (u32 code = 0; code < 1u << kernels::bits_of(ab); ++code)
        ASSERT_TRUE(same(static_cast<double>(expanded(o, words_with(ab, index, code), index, one)),
                         value_of(ab, code) * unit))
            << "value " << index << ", code " << code;
    }
  }
}

TEST(Expand, ABlockThatDoesNotExistScalesZeroToZero) {
  for (u32 blocks = 0; blocks <= 6; ++blocks)
    EXPECT_EQ(expand::existing_scales(0x91A2B3C4u, blocks),
              blocks == 0 ? 0 : 0x91A2B3C4u & 0xFFFFFFFFu >> 8 * (4 - std::min(blocks, 4u)));
  for (const ScaleFormat scale : {ScaleFormat::e8m0, ScaleFormat::e4m3}) {
    ScaledOptions o;
    o.ab = KernelFormat::e2m1;
    o.scale = scale;
    const u32 nan = scale == ScaleFormat::e4m3 ? 0x7F7F7F7Fu : 0xFFFFFFFFu;
    EXPECT_EQ(expanded(o, {}, 0, factor_of(o, expand::existing_scales(nan, 1), 1)), 0.0f);
    EXPECT_TRUE(std::isnan(expanded(o, {}, 0, factor_of(o, expand::existing_scales(nan, 2), 1))));
  }
}

/// The FP16 way, for every place of the window in the range of codes.
TEST(Expand, EveryByteWithEveryScaleOfAWindowAsFp16) {
  for (const KernelFormat ab : {KernelFormat::e4m3, KernelFormat::e5m2}) {
    const expand::Window window = expand::window(ab);
    ScaledOptions o;
    o.ab = ab;
    for (u32 largest = window.lowest; largest < 255; ++largest) {
      const u32 base = expand::window_base(ab, largest);
      const double unit = std::ldexp(1.0, -expand::result_exponent(base, base) / 2);
      for (u32 code = 0; code <= largest; ++code) {
        if (code != 0 && (code < window.lowest || largest - code > window.span)) continue;
        const u32 block = code % 4;
        const u32 factor =
            expand::fp16_factor(o, code << (8 * block), expand::scale_selector(o, block), base * 0x00010001u);
        const double scale = static_cast<double>(numerics::decode_e8m0(static_cast<u8>(code)));
        for (u32 x = 0; x < 256; ++x) {
          const ptx::U32x2 pairs =
              expand::fp16_slice_pairs(o, words_with(ab, x % 16, x), 0, x % 16 / 4, factor);
          const u32 pair = x % 4 < 2 ? pairs.x : pairs.y;
          const double got = static_cast<double>(
              numerics::decode_fp16(static_cast<numerics::u16>(x % 2 == 0 ? pair & 0xffff : pair >> 16)));
          const double truth = value_of(ab, x) * scale * unit;
          if (code != 0)
            ASSERT_TRUE(same(got, truth)) << "byte " << x << ", scale " << code << " of " << largest;
          else
            ASSERT_TRUE(std::isfinite(truth) ? got == 0 : std::isnan(got)) << "byte " << x << ", scale 0";
        }
      }
    }
  }
}

/// What fp16_tile() says of a tile whose scales are `a` and `b`, codes by row and block.
kernels::Fp16Tile window_of(const ScaledOptions& o, u32 k, u32 n, const std::vector<u8>& a,
                            const std::vector<u8>& b) {
  kernels::ScaledParams params;
  params.k = k;
  params.n = n;
  params.sfa = a.data();
  params.sfb = b.data();
  kernels::Fp16Tile result;
  model::GlobalMemory memory;
  memory.add(a.data(), a.size(), "sfa", model::Access::read_only);
  memory.add(b.data(), b.size(), "sfb", model::Access::read_only);
  const model::Report report = model::launch({.threads = 32}, memory, [&] {
    const kernels::Fp16Tile tile = kernels::fp16_tile(o, params, 0, 0, 256, 0);
    if (ptx::lane_index() == 7) result = tile;
  });
  EXPECT_EQ(report.text(), "");
  return result;
}

TEST(Expand, Fp16OnlyWhereEveryScaleThatCountsIsInTheWindow) {
  ScaledOptions o;
  o.ab = KernelFormat::e4m3;
  const u32 k = 192, n = 72, blocks = 6;
  const auto atoms = layout::block_atoms(k, 32);
  // Padding: blocks 6 and 7 of every row, rows of B from 72 on, would forbid FP16.
  const std::vector<u8> padding_a(512 * 2 * static_cast<std::size_t>(atoms), 0xFF);
  std::vector<u8> a = padding_a, b(512 * static_cast<std::size_t>(atoms), 0xFF);
  const auto at = [&](u32 row, u32 block) {
    return static_cast<std::size_t>(layout::scale_offset(row, block, atoms));
  };
  for (u32 block = 0; block < blocks; ++block) {
    for (u32 row = 0; row < 256; ++row) a[at(row, block)] = static_cast<u8>(110 + (row * 5 + block) % 22);
    for (u32 row = 0; row < n; ++row) b[at(row, block)] = static_cast<u8>(120 + row % 3);
  }
  const kernels::Fp16Tile tile = window_of(o, k, n, a, b);
  EXPECT_TRUE(tile.use);
  EXPECT_EQ(tile.base_a, expand::window_base(o.ab, 131));
  EXPECT_EQ(tile.base_b, expand::window_base(o.ab, 122));
  const auto with = [&](bool of_a, u32 row, u32 block, u8 code) {
    std::vector<u8> a2 = a, b2 = b;
    (of_a ? a2 : b2)[at(row, block)] = code;
    return window_of(o, k, n, a2, b2);
  };
  EXPECT_FALSE(with(true, 255, 5, 109).use);  // 131 - 109 = 22
  EXPECT_FALSE(with(true, 0, 0, 132).use);    // 132 - 110
  EXPECT_FALSE(with(true, 130, 3, 255).use);  // NaN
  EXPECT_FALSE(with(true, 130, 3, 3).use);
  EXPECT_FALSE(with(true, 130, 3, 2).use);
  EXPECT_TRUE(with(true, 130, 3, 0).use);  // of a block of zeros
  EXPECT_FALSE(with(false, 71, 5, 100).use);
  EXPECT_TRUE(with(false, 72, 5, 100).use);  // not a row of B
  EXPECT_FALSE(with(false, 71, 5, 255).use);
  EXPECT_EQ(with(false, 71, 5, 125).base_b, expand::window_base(o.ab, 125));
  // Sums too far from 1.
  std::fill(b.begin(), b.end(), u8{230});
  EXPECT_TRUE(window_of(o, k, n, a, b).use);
  std::fill(a.begin(), a.end(), u8{250});
  EXPECT_FALSE(window_of(o, k, n, a, b).use);
  // Nothing but zeros; nothing but zeros and low codes.
  std::fill(a.begin(), a.end(), u8{0});
  EXPECT_TRUE(window_of(o, k, n, a, b).use);
  a[at(130, 3)] = 2;
  EXPECT_FALSE(window_of(o, k, n, a, b).use);
  a[at(130, 3)] = 3;
  EXPECT_TRUE(window_of(o, k, n, a, b).use);
}

/// Products of every two BF16 codes of a sample, rounded once.
TEST(Expand, ModelOfTheBf16ProductRoundsOnce) {
  for (u32 a = 0; a < 0x10000; a += 37) {
    for (u32 b = 0x0001; b < 0x10000; b += 1021) {
      const double product = static_cast<double>(numerics::decode_bf16(static_cast<numerics::u16>(a))) *
                             static_cast<double>(numerics::decode_bf16(static_cast<numerics::u16>(b)));
      const double got = static_cast<double>(
          numerics::decode_bf16(static_cast<numerics::u16>(ptx::multiply_bf16(a, b) & 0xffff)));
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(got));
      } else if (std::isinf(got)) {
        ASSERT_GE(std::fabs(product), 0x1.FFp127);
      } else {
        // Within half of the distance to the neighbours, which is 2^-133 or 2^-8 of the power of two.
        const double unit = std::fmax(0x1p-133, std::exp2(std::floor(std::log2(std::fabs(product))) - 7));
        ASSERT_LE(std::fabs(got - product), unit / 2) << a << " * " << b;
      }
    }
  }
}

/// Against float arithmetic where that is exact, and at a tie that two roundings would break.
TEST(Expand, ModelOfTheBf16SumRoundsOnce) {
  const auto sum = [](float a, float b, float c) {
    return numerics::decode_bf16(static_cast<numerics::u16>(
        ptx::multiply_add_bf16(numerics::encode_bf16(a), numerics::encode_bf16(b), numerics::encode_bf16(c)) &
        0xffff));
  };
  EXPECT_EQ(sum(3, 5, -7), 8.0f);
  EXPECT_EQ(sum(1, 1, 0x1p-8f), 1.0f);               // a tie goes to even
  EXPECT_EQ(sum(0x1.02p0f, 0x1p-8f, 1), 0x1.02p0f);  // just above it, within BF16's reach
  EXPECT_EQ(sum(0x1.02p-100f, 0x1p-30f, 0x1.02p0f), 0x1.02p0f);
  EXPECT_EQ(sum(-0x1p-60f, 0x1p-60f, 0), 0x0p0f + -0x1p-120f);
  EXPECT_TRUE(std::isnan(sum(2, 3, std::nanf(""))));
}

}  // namespace
}  // namespace gemmule::test
