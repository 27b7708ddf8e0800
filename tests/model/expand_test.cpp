// Every operand byte with every scale, expanded as the kernels do, against the formats' decoders.
#include <gtest/gtest.h>

#include <cmath>

#include "numerics/formats.hpp"
#include "sm90/expand.hpp"

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

/// Value `index` of 16 bytes after expansion, by the documented place of each value.
float expanded(const ScaledOptions& o, const ptx::U32x4& words, u32 index, u32 factor) {
  const bool fp4 = o.ab == KernelFormat::e2m1;
  const u32 step = fp4 ? index / 16 : 0, in_step = index % 16;
  const u32 word = fp4 ? in_step / 8 : in_step / 4, in_word = fp4 ? in_step % 8 : in_step % 4;
  const u32 pair = fp4 ? word * 4 + in_word % 4 : word * 2 + in_word / 2;
  const bool high = fp4 ? in_word >= 4 : in_word % 2 == 1;
  const ptx::U32x2 two = expand::slice_pairs(o, words, step, pair / 2, factor);
  const u32 bits = pair % 2 == 0 ? two.x : two.y;
  return numerics::decode_bf16(static_cast<numerics::u16>(high ? bits >> 16 : bits & 0xffff));
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
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
      const u32 factor = expand::factor(o, 0x99999999u ^ (0x99u ^ code) << (8 * block),
                                        expand::scale_selector(o, block, true));
      const double scale =
          static_cast<double>(o.scale == ScaleFormat::e4m3 ? numerics::decode_e4m3(static_cast<u8>(code))
                                                           : numerics::decode_e8m0(static_cast<u8>(code)));
      for (u32 x = 0; x < codes; ++x) {
        const double truth = value_of(o.ab, x) * scale * unit;
        const u32 index = (code * 7 + x) % values;
        const double got = static_cast<double>(expanded(o, words_with(o.ab, index, x), index, factor));
        const bool exact = (code >= range.first && code <= range.last) || !std::isfinite(truth);
        if (exact)
          ASSERT_TRUE(same(got, truth))
              << "byte " << x << ", scale " << code << ": " << got << ", not " << truth;
        else
          ASSERT_EQ(std::isnan(got), false) << "byte " << x << ", scale " << code;
      }
    }
  }
}

TEST(Expand, EveryPlaceOfAValue) {
  for (const KernelFormat ab : {KernelFormat::e4m3, KernelFormat::e5m2, KernelFormat::e2m1}) {
    ScaledOptions o;
    o.ab = ab;
    const u32 one = expand::factor(o, 127, expand::scale_selector(o, 0, true));
    for (u32 index = 0; index < 128 / kernels::bits_of(ab); ++index) {
      for (u32 code = 0; code < 1u << kernels::bits_of(ab); ++code)
        ASSERT_TRUE(same(static_cast<double>(expanded(o, words_with(ab, index, code), index, one)),
                         value_of(ab, code)))
            << "value " << index << ", code " << code;
    }
  }
}

TEST(Expand, ABlockThatDoesNotExistScalesZeroToZero) {
  for (const ScaleFormat scale : {ScaleFormat::e8m0, ScaleFormat::e4m3}) {
    ScaledOptions o;
    o.ab = KernelFormat::e2m1;
    o.scale = scale;
    const u32 nan = scale == ScaleFormat::e4m3 ? 0x7F7F7F7Fu : 0xFFFFFFFFu;
    EXPECT_EQ(expanded(o, {}, 0, expand::factor(o, nan, expand::scale_selector(o, 1, false))), 0.0f);
    EXPECT_TRUE(std::isnan(expanded(o, {}, 0, expand::factor(o, nan, expand::scale_selector(o, 1, true)))));
  }
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

}  // namespace
}  // namespace gemmule::test
