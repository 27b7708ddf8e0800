// Encodings and decodings against the oracle: all codes, all bf16 values, every rounding boundary, 2^24 patterns.
#include "numerics/formats.hpp"

#include <gtest/gtest.h>

#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

using oracle::from_bits;
using oracle::to_bits;

/// Patterns `stride` apart over all magnitudes up to the NaNs, both signs. Returns the number of wrong codes.
template <class Encode>
std::int64_t sweep(const oracle::Format& format, std::uint32_t stride, Encode encode, std::int64_t* count) {
  std::int64_t wrong = 0;
  std::size_t code = 0;
  *count = 0;
  const std::uint32_t sign = 1u << format.sign_shift;
  for (std::uint32_t m = 0; m <= 0x7F800000u; m += stride) {
    while (m > format.last[code]) ++code;
    wrong += encode(from_bits(m)) != code;
    wrong += encode(from_bits(m | 0x80000000u)) != (code | sign);
    *count += 2;
  }
  for (std::uint32_t m = 0x7F800001u; m <= 0x7FFFFFFFu - stride; m += stride) {
    wrong += encode(from_bits(m)) != format.nan_code;
    wrong += encode(from_bits(m | 0x80000000u)) != format.nan_code;
    *count += 2;
  }
  return wrong;
}

/// The floats around every place where the code changes, and the special ones. Returns the number of wrong codes.
template <class Encode>
std::int64_t boundaries(const oracle::Format& format, Encode encode) {
  std::vector<std::uint32_t> patterns = {0,          1,          0x007FFFFF, 0x00800000, 0x7F7FFFFF,
                                         0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF};
  for (std::size_t code = 0; code < format.value.size(); ++code) {
    const std::uint32_t last = format.last[code];
    const std::uint32_t exact = to_bits(static_cast<float>(format.value[code]));
    for (std::uint32_t d = 0; d <= 4; ++d) {
      patterns.push_back(last + d - 2);
      patterns.push_back(exact + d - 2);
    }
  }
  std::int64_t wrong = 0;
  for (const std::uint32_t p : patterns) {
    const float x = from_bits(p & 0x7FFFFFFFu);
    wrong += encode(x) != format.encode(x);
    wrong += encode(-x) != format.encode(-x);
  }
  return wrong;
}

template <class Encode>
std::int64_t all_bf16(const oracle::Format& format, Encode encode) {
  std::int64_t wrong = 0;
  for (std::uint32_t c = 0; c < 0x10000; ++c) {
    const float x = from_bits(c << 16);
    wrong += encode(x) != format.encode(x);
  }
  return wrong;
}

template <class Encode>
void check_encode(const oracle::Format& format, Encode encode) {
  SCOPED_TRACE(format.name);
  std::int64_t count = 0;
  EXPECT_EQ(sweep(format, 251, encode, &count), 0);
  EXPECT_GE(count, std::int64_t{1} << 24);
  EXPECT_EQ(boundaries(format, encode), 0);
  EXPECT_EQ(all_bf16(format, encode), 0);
}

TEST(Encode, E2m1) {
  check_encode(oracle::e2m1(), numerics::encode_e2m1);
}
TEST(Encode, E4m3) {
  check_encode(oracle::e4m3(), numerics::encode_e4m3);
}
TEST(Encode, E5m2) {
  check_encode(oracle::e5m2(), numerics::encode_e5m2);
}
TEST(Encode, Fp16) {
  check_encode(oracle::fp16(), numerics::encode_fp16);
}
TEST(Encode, Bf16) {
  check_encode(oracle::bf16(), numerics::encode_bf16);
}

TEST(Encode, ControlTruncationIsFound) {
  const auto truncate = [](float x) { return to_bits(x) >> 16; };
  std::int64_t count = 0;
  EXPECT_GT(sweep(oracle::bf16(), 251, truncate, &count), count / 4);
  EXPECT_GT(boundaries(oracle::bf16(), truncate), 0);
}

TEST(Encode, ControlTiesAwayFromZeroAreFound) {
  const auto away = [](float x) { return std::isnan(x) ? 0x7FFFu : (to_bits(x) + 0x8000u) >> 16; };
  EXPECT_GT(boundaries(oracle::bf16(), away), 0);
}

std::int64_t e8m0_mismatches(std::uint32_t (*encode)(float)) {
  std::int64_t wrong = 0;
  const auto check = [&](float x) { wrong += encode(x) != oracle::encode_e8m0(x); };
  for (std::uint32_t p = 0; p < 0xFFFFFFFFu - 251; p += 251) check(from_bits(p));
  for (int e = -149; e <= 127; ++e)
    for (int d = -3; d <= 3; ++d) {
      const auto magnitude = static_cast<std::int64_t>(to_bits(std::ldexp(1.0f, e))) + d;
      check(from_bits(static_cast<std::uint32_t>(std::max<std::int64_t>(magnitude, 0))));
    }
  for (std::uint32_t c = 0; c < 0x10000; ++c) check(from_bits(c << 16));
  for (const std::uint32_t p : {0x7F7FFFFFu, 0x7F800000u, 0xFF800000u, 0x7F800001u, 0xFFFFFFFFu})
    check(from_bits(p));
  return wrong;
}

TEST(Encode, E8m0RoundsUp) {
  EXPECT_EQ(e8m0_mismatches([](float x) { return std::uint32_t{numerics::encode_e8m0(x)}; }), 0);
}

TEST(Encode, ControlE8m0NearestIsFound) {
  EXPECT_GT(e8m0_mismatches([](float x) { return ((to_bits(x) & 0x7FFFFFFFu) + 0x400000u) >> 23; }), 0);
}

TEST(Encode, E8m0OfBfloat16IsNotDoublyRounded) {
  // Rounding to bf16 first would give 0x7F: the excess over 1 is below bf16's precision.
  EXPECT_EQ(numerics::encode_e8m0(std::nextafter(1.0f, 2.0f)), 0x80);
  for (int k = -126; k < 127; ++k) {
    const float power = std::ldexp(1.0f, k);
    EXPECT_EQ(numerics::encode_e8m0(power), k + 127);
    EXPECT_EQ(numerics::encode_e8m0(std::nextafter(power, INFINITY)), k + 128);
  }
}

TEST(Encode, DocumentedExamples) {
  const std::pair<float, int> e2m1[] = {{0.25f, 0}, {0.2500001f, 1}, {0.75f, 2}, {1.25f, 2},
                                        {1.75f, 4}, {2.5f, 4},       {3.5f, 6},  {5.0f, 6},
                                        {5.1f, 7},  {7.0f, 7},       {-0.2f, 8}, {-INFINITY, 15}};
  for (const auto& [x, code] : e2m1) EXPECT_EQ(numerics::encode_e2m1(x), code) << x;
  const std::pair<float, int> e4m3[] = {
      {1.0625f, 0x38},  {1.1875f, 0x3A},  {464.0f, 0x7E}, {480.0f, 0x7E},    {1e9f, 0x7E},  {0x1p-10f, 0x00},
      {0x1.01p-10f, 1}, {INFINITY, 0x7E}, {-1e9f, 0xFE},  {-INFINITY, 0xFE}, {-0.0f, 0x80}, {-NAN, 0x7F}};
  for (const auto& [x, code] : e4m3) EXPECT_EQ(numerics::encode_e4m3(x), code) << x;
  const std::pair<float, int> e5m2[] = {{61440.0f, 0x7B}, {65536.0f, 0x7B}, {0x1p-17f, 0x00},
                                        {0x1.01p-17f, 1}, {1e9f, 0x7B},     {-INFINITY, 0xFB},
                                        {NAN, 0x7F}};
  for (const auto& [x, code] : e5m2) EXPECT_EQ(numerics::encode_e5m2(x), code) << x;
  const std::pair<float, int> e8m0[] = {{1.0f, 0x7F},      {0.7f, 0x7F},      {2.0f, 0x80},   {3.0f, 0x81},
                                        {0x1p-126f, 0x01}, {0x1p-127f, 0x00}, {1e-40f, 0x00}, {0.0f, 0x00},
                                        {INFINITY, 0xFE},  {NAN, 0xFF}};
  for (const auto& [x, code] : e8m0) EXPECT_EQ(numerics::encode_e8m0(x), code) << x;
}

/// All codes of both signs. NaN codes must decode to NaN, the infinite one to infinity.
template <class Decode>
std::int64_t decode_mismatches(const oracle::Format& format, Decode decode) {
  std::int64_t wrong = 0;
  const std::uint32_t sign = 1u << format.sign_shift;
  for (std::uint32_t code = 0; code < sign; ++code) {
    double want = code < format.value.size() ? format.value[code] : NAN;
    if (code != 0 && code == format.infinity_code) want = INFINITY;
    const float positive = decode(code);
    const float negative = decode(code | sign);
    if (std::isnan(want))
      wrong += !std::isnan(positive) || !std::isnan(negative);
    else
      wrong += positive != want || negative != -want || std::signbit(positive) || !std::signbit(negative);
  }
  return wrong;
}

TEST(Decode, EveryCode) {
  using numerics::u16;
  using numerics::u8;
  const auto e2m1 = [](std::uint32_t c) { return numerics::decode_e2m1(static_cast<u8>(c)); };
  const auto e4m3 = [](std::uint32_t c) { return numerics::decode_e4m3(static_cast<u8>(c)); };
  const auto e5m2 = [](std::uint32_t c) { return numerics::decode_e5m2(static_cast<u8>(c)); };
  EXPECT_EQ(decode_mismatches(oracle::e2m1(), e2m1), 0);
  EXPECT_EQ(decode_mismatches(oracle::e4m3(), e4m3), 0);
  EXPECT_EQ(decode_mismatches(oracle::e5m2(), e5m2), 0);
  EXPECT_EQ(decode_mismatches(oracle::fp16(),
                              [](std::uint32_t c) { return numerics::decode_fp16(static_cast<u16>(c)); }),
            0);
  EXPECT_EQ(decode_mismatches(oracle::bf16(),
                              [](std::uint32_t c) { return numerics::decode_bf16(static_cast<u16>(c)); }),
            0);
  EXPECT_GT(decode_mismatches(oracle::e4m3(), e5m2), 100) << "control";
  EXPECT_GT(decode_mismatches(oracle::e5m2(), e4m3), 100) << "control";
}

TEST(Decode, E8m0) {
  for (int c = 0; c < 255; ++c)
    EXPECT_EQ(numerics::decode_e8m0(static_cast<numerics::u8>(c)), std::ldexp(1.0, c - 127)) << c;
  EXPECT_TRUE(std::isnan(numerics::decode_e8m0(0xFF)));
}

TEST(Decode, E2m1IgnoresTheHighHalf) {
  for (int c = 0; c < 256; ++c)
    EXPECT_EQ(to_bits(numerics::decode_e2m1(static_cast<numerics::u8>(c))),
              to_bits(numerics::decode_e2m1(static_cast<numerics::u8>(c & 15))));
}

TEST(Packing, EvenElementInTheLowHalf) {
  using numerics::encode_e2m1;
  EXPECT_EQ(numerics::pack_e2m1(encode_e2m1(1.5f), encode_e2m1(-2.0f)), 0xC3);
  EXPECT_EQ(numerics::pack_e2m1(encode_e2m1(0.5f), encode_e2m1(6.0f)), 0x71);
  EXPECT_EQ(numerics::unpack_e2m1(0xC3, 0), 0x3);
  EXPECT_EQ(numerics::unpack_e2m1(0xC3, 1), 0xC);
}

}  // namespace
}  // namespace gemmule
