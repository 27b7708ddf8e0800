// Quantizers and dequantizers: golden vectors, an independent model of every format, bounds, special blocks, arguments.
#include "gemmule/quantize.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "gemmule/layout.hpp"
#include "numerics/oracle.hpp"

namespace gemmule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint8_t poison = 0xEE;

struct Quantized {
  Bytes codes;   ///< one per value, FP4 unpacked
  Bytes scales;  ///< swizzled
  Bytes linear;  ///< (lines, blocks): lines are rows, or columns in the column direction
  std::vector<float> dequantized;
};

enum class Along { rows, cols };

std::int64_t lines(Along along, std::int64_t rows, std::int64_t cols) {
  return along == Along::rows ? rows : cols;
}
std::int64_t length(Along along, std::int64_t rows, std::int64_t cols) {
  return along == Along::rows ? cols : rows;
}

Quantized quantize(const std::vector<float>& x, std::int64_t rows, std::int64_t cols,
                   const QuantFormat& format, Along along, float tensor_scale = 1.0f) {
  Quantized q;
  Bytes codes(static_cast<std::size_t>(code_bytes(rows, cols, format.element)), poison);
  const std::int64_t n = lines(along, rows, cols), len = length(along, rows, cols);
  q.scales.assign(static_cast<std::size_t>(scale_bytes(n, len, format.vec)), poison);
  q.dequantized.assign(x.size(), NAN);
  if (along == Along::rows) {
    quantize_rows(x, rows, cols, format, codes.data(), q.scales.data(), tensor_scale);
    dequantize_rows(codes.data(), q.scales.data(), rows, cols, format, q.dequantized, tensor_scale);
  } else {
    quantize_cols(x, rows, cols, format, codes.data(), q.scales.data(), tensor_scale);
    dequantize_cols(codes.data(), q.scales.data(), rows, cols, format, q.dequantized, tensor_scale);
  }
  q.linear.resize(static_cast<std::size_t>(n * ((len + format.vec - 1) / format.vec)));
  unswizzle_scales(q.scales.data(), q.linear.data(), n, len, format.vec);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    q.codes.push_back(format.element == DType::float4_e2m1fn_x2 ? codes[i / 2] >> (i % 2 * 4) & 15
                                                                : codes[i]);
  return q;
}

const oracle::Format& element_oracle(const QuantFormat& format) {
  return format.element == DType::float8_e4m3fn ? oracle::e4m3()
         : format.element == DType::float8_e5m2 ? oracle::e5m2()
                                                : oracle::e2m1();
}

/// Checks codes, scales and values of a matrix of finite values against a model written from the definitions.
void expect_model(const std::vector<float>& x, std::int64_t rows, std::int64_t cols,
                  const QuantFormat& format, Along along, float tensor_scale = 1.0f) {
  const Quantized q = quantize(x, rows, cols, format, along, tensor_scale);
  const oracle::Format& element = element_oracle(format);
  const auto largest = static_cast<float>(element.value.back());
  const bool mx = format.scale == DType::float8_e8m0fnu;
  const std::int64_t n = lines(along, rows, cols), len = length(along, rows, cols);
  const std::int64_t blocks = (len + format.vec - 1) / format.vec;
  const auto at = [&](std::int64_t line, std::int64_t i) {
    return along == Along::rows ? line * cols + i : i * cols + line;
  };
  for (std::int64_t line = 0; line < n; ++line)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t end = std::min(len, (b + 1) * format.vec);
      float amax = 0.0f;
      for (std::int64_t i = b * format.vec; i < end; ++i) amax = std::max(amax, std::fabs(x[at(line, i)]));
      std::uint32_t code = 0;
      double scale = 0.0;
      if (mx) {
        code = oracle::encode_e8m0(amax * static_cast<float>(1.0 / static_cast<double>(largest)));
        scale = std::ldexp(1.0, static_cast<int>(code) - 127);
      } else {
        code = oracle::e4m3().encode(amax / (6.0f * tensor_scale));
        if (code == 0 && amax > 0.0f) code = 1;
        scale = static_cast<double>(tensor_scale * static_cast<float>(oracle::e4m3().value[code]));
      }
      ASSERT_EQ(q.linear[line * blocks + b], code) << "line " << line << " block " << b;
      for (std::int64_t i = b * format.vec; i < end; ++i) {
        const float v = x[at(line, i)];
        const float scaled = scale == 0.0 ? v : static_cast<float>(static_cast<double>(v) / scale);
        const std::uint32_t want = element.encode(scaled);
        ASSERT_EQ(q.codes[at(line, i)], want) << "line " << line << " value " << i << " = " << v;
        const double magnitude = element.value[want & ((1u << element.sign_shift) - 1)];
        ASSERT_NEAR(std::fabs(q.dequantized[at(line, i)]), magnitude * scale, magnitude * scale * 1e-6);
        ASSERT_EQ(std::signbit(q.dequantized[at(line, i)]), std::signbit(v));
      }
    }
}

/// Normal values of very different sizes, with zero blocks.
std::vector<float> random_matrix(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const bool zero = (r / 32 + c / 32) % 5 == 4;
      x[r * cols + c] =
          zero ? 0.0f : std::ldexp(normal(random), static_cast<int>((r / 7 + c / 16) % 24) - 12);
    }
  return x;
}

constexpr QuantFormat formats[] = {{DType::float8_e4m3fn, DType::float8_e8m0fnu, 32},
                                   {DType::float8_e5m2, DType::float8_e8m0fnu, 32},
                                   {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 32},
                                   {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 16},
                                   {DType::float4_e2m1fn_x2, DType::float8_e4m3fn, 16}};

std::string describe(const QuantFormat& f) {
  return std::string(name(f.element)) + "/" + name(f.scale) + "/" + std::to_string(f.vec);
}

TEST(Quantize, AgreesWithTheDefinitionForRaggedSizes) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 2},     {3, 34},   {128, 128}, {130, 96},
                                                         {257, 190}, {31, 258}, {64, 16},   {40, 66}};
  for (const QuantFormat& format : formats)
    for (const auto& [rows, cols] : sizes)
      for (const Along along : {Along::rows, Along::cols}) {
        SCOPED_TRACE(testing::Message() << describe(format) << " " << rows << " x " << cols
                                        << (along == Along::rows ? " rows" : " cols"));
        const auto x = random_matrix(rows, cols, static_cast<unsigned>(rows * 1000 + cols));
        expect_model(x, rows, cols, format, along, nvfp4_tensor_scale(x));
        if (HasFatalFailure()) return;
      }
}

TEST(Quantize, OddColumnsOfFp8) {
  const auto x = random_matrix(33, 45, 5);
  for (const Along along : {Along::rows, Along::cols}) expect_model(x, 33, 45, QuantFormat::mxfp8(), along);
}

TEST(Quantize, PaddingScalesAreZero) {
  const std::int64_t rows = 130, cols = 66;
  const std::vector<float> x(rows * cols, 1.0f);
  for (const QuantFormat& format : formats)
    for (const Along along : {Along::rows, Along::cols}) {
      const Quantized q = quantize(x, rows, cols, format, along);
      const auto used = std::count_if(q.scales.begin(), q.scales.end(), [](auto b) { return b != 0; });
      EXPECT_EQ(used, static_cast<std::int64_t>(q.linear.size())) << describe(format);
    }
}

TEST(Quantize, ColumnsAreTheRowsOfTheTranspose) {
  const std::int64_t rows = 96, cols = 160;
  const auto x = random_matrix(rows, cols, 3);
  std::vector<float> t(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) t[c * rows + r] = x[r * cols + c];
  for (const QuantFormat& format : formats) {
    const Quantized a = quantize(x, rows, cols, format, Along::cols, 0.01f);
    const Quantized b = quantize(t, cols, rows, format, Along::rows, 0.01f);
    EXPECT_EQ(a.scales, b.scales);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) ASSERT_EQ(a.codes[r * cols + c], b.codes[c * rows + r]);
  }
}

TEST(Quantize, RoundTripErrorIsHalfAStep) {
  const std::int64_t rows = 256, cols = 256;
  const auto x = random_matrix(rows, cols, 9);
  for (const QuantFormat& format : formats)
    for (const Along along : {Along::rows, Along::cols}) {
      const Quantized q = quantize(x, rows, cols, format, along, nvfp4_tensor_scale(x));
      // Largest error: half of the widest step of the format, relative to its largest value.
      const auto& value = element_oracle(format).value;
      const double half_step = (value.back() - value[value.size() - 2]) / 2 / value.back();
      const std::int64_t len = length(along, rows, cols);
      for (std::int64_t line = 0; line < lines(along, rows, cols); ++line)
        for (std::int64_t first = 0; first < len; first += format.vec) {
          double amax = 0, error = 0;
          for (std::int64_t i = first; i < std::min(len, first + format.vec); ++i) {
            const std::int64_t k = along == Along::rows ? line * cols + i : i * cols + line;
            amax = std::max(amax, std::fabs(static_cast<double>(x[k])));
            error = std::max(error, std::fabs(static_cast<double>(x[k]) - q.dequantized[k]));
          }
          // An MX scale may be almost twice what the block needs. An NVFP4 scale is rounded to nearest: a block may
          // saturate (6 codes times the scale's error) on top of half the widest step (1 code times the scale).
          const double g = nvfp4_tensor_scale(x);
          const double scale_error = std::max(amax / 6 / 16, g * 0x1p-10);
          const double nv_bound = 6 * scale_error + amax / 6 + scale_error;
          const double bound = format.scale == DType::float8_e8m0fnu ? 2 * half_step * amax : nv_bound;
          ASSERT_LE(error, bound * 1.00001) << describe(format) << " amax " << amax;
        }
    }
}

TEST(Quantize, MillionBlocksNeverExceedTheLargestValue) {
  std::mt19937 random(34);
  std::uniform_real_distribution<float> exponent(-30.0f, 30.0f);
  const std::int64_t blocks = 1000000;
  std::vector<float> x(static_cast<std::size_t>(blocks));
  for (auto& v : x) v = std::exp2(exponent(random));
  // One value per row is a block of its own.
  Bytes codes(x.size()), scales(static_cast<std::size_t>(scale_bytes(blocks, 1, 32))), linear(x.size());
  for (const QuantFormat& format : {QuantFormat::mxfp8(), QuantFormat::mxfp8_e5m2()}) {
    quantize_rows(x, blocks, 1, format, codes.data(), scales.data());
    unswizzle_scales(scales.data(), linear.data(), blocks, 1, 32);
    const double largest = element_oracle(format).value.back();
    std::int64_t above = 0, wasteful = 0;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const double scaled = std::ldexp(static_cast<double>(x[i]), 127 - linear[i]);
      above += scaled > largest;
      wasteful += scaled * 2 < largest * (1 - 1e-6);
    }
    EXPECT_EQ(above, 0);
    EXPECT_EQ(wasteful, 0);
  }
}

TEST(Quantize, ScaleStepsUpJustAboveAPowerOfTwo) {
  for (const int k : {-20, 0, 5, 40}) {
    const std::vector<float> at(32, std::ldexp(448.0f, k));
    const std::vector<float> above(32, std::nextafter(at[0], INFINITY));
    EXPECT_EQ(quantize(at, 1, 32, QuantFormat::mxfp8(), Along::rows).linear[0], 127 + k);
    EXPECT_EQ(quantize(above, 1, 32, QuantFormat::mxfp8(), Along::rows).linear[0], 128 + k);
  }
}

// Values, scales and codes computed in exact rational arithmetic with the roundings of the definition.
TEST(Quantize, Nvfp4GoldenVectors) {
  const std::vector<float> x = {
      0x1.f85e2ep-3f,  0x1.e93278p-1f,   0x1.5bb858p-2f,   0x1.e37d5ap-1f,   -0x1.549a5cp+0f,
      0x0.0p+0f,       -0x1.c49198p-6f,  0x1.e03318p-1f,   0x1.995a4p-1f,    0x1.a72754p+0f,
      -0x1.21655cp-1f, 0x1.fdef76p+0f,   0x1.e218a8p-4f,   0x1.e1832ap-5f,   -0x1.dc08c4p-1f,
      0x1.edca3ep-2f,  0x1.2d948ap-12f,  -0x1.4942dap-6f,  -0x1.13abe2p-7f,  -0x1.734c66p-11f,
      -0x1.329c2cp-9f, -0x1.63b1ap-7f,   -0x1.b1a604p-12f, 0x1.1fd238p-7f,   0x1.016748p-6f,
      0x1.b42832p-15f, 0x1.95d3p-8f,     0x1.dd0ad2p-10f,  -0x1.4ce378p-7f,  -0x1.375a26p-7f,
      -0x1.54e25ap-7f, -0x1.3b4358p-7f,  0x1.6afa8ep+4f,   -0x1.122468p+6f,  0x1.d18dcep+4f,
      -0x1.7de884p+2f, -0x1.33b602p+3f,  0x0.0p+0f,        -0x1.0c9412p+4f,  0x1.ebb26p+2f,
      0x1.6f72d8p+5f,  -0x1.447ee2p+4f,  0x1.0bad5cp+2f,   0x1.6ea814p+5f,   -0x1.17ad7cp+2f,
      -0x1.9fd89cp+3f, 0x1.1b21bcp+4f,   -0x1.6b9474p+5f,  -0x1.efdd76p-13f, 0x1.59c0f6p-15f,
      0x1.7691dp-16f,  0x1.cf555ep-17f,  -0x1.9f3976p-16f, -0x1.32139ep-13f, 0x1.1df812p-13f,
      0x1.e5cb72p-19f, -0x1.58b124p-14f, -0x1.b8bbd6p-15f, 0x1.0f18bcp-13f,  0x1.14a8fcp-13f,
      0x1.9fcb4cp-14f, -0x1.4f4a54p-14f, 0x1.799892p-16f,  0x1.01af74p-13f};
  ASSERT_EQ(x.size(), 64u);
  EXPECT_EQ(nvfp4_tensor_scale(x), 0x1.a1bd92p-6f);
  Bytes codes(32), scales(512);
  quantize_rows(x, 1, 64, QuantFormat::nvfp4(), codes.data(), scales.data(), nvfp4_tensor_scale(x));
  EXPECT_EQ(Bytes(scales.begin(), scales.begin() + 4), (Bytes{0x55, 0x20, 0x7E, 0x01}));
  EXPECT_EQ(codes, (Bytes{0x51, 0x52, 0x0E, 0x58, 0x64, 0x7B, 0x01, 0x3D, 0xF0, 0x8D, 0xD9,
                          0x58, 0x06, 0x14, 0xDD, 0xDD, 0xF4, 0x95, 0x0A, 0x1B, 0xC6, 0x61,
                          0xA9, 0xE3, 0x2E, 0x11, 0xD9, 0x05, 0xAB, 0x55, 0xB4, 0x41}));
}

TEST(Nvfp4, TensorScale) {
  EXPECT_EQ(nvfp4_tensor_scale(std::vector<float>{0.0f, -2688.0f, 5.0f}), 1.0f);
  EXPECT_EQ(nvfp4_tensor_scale(std::vector<float>{0.0f, -0.0f}), 1.0f);
  EXPECT_EQ(nvfp4_tensor_scale({}), 1.0f);
  // Values that are not finite do not spoil the scale of the others.
  EXPECT_EQ(nvfp4_tensor_scale(std::vector<float>{INFINITY, NAN, 1344.0f}), 0.5f);
  EXPECT_GT(nvfp4_tensor_scale(std::vector<float>{1e-44f}), 0.0f);
}

TEST(Nvfp4, SmallBlocksKeepTheSmallestScale) {
  std::vector<float> x(32, 0.0f);
  x[0] = 2688.0f;
  x[16] = 1e-6f;  // 1e-6 / 6 is far below the smallest e4m3
  const Quantized q = quantize(x, 1, 32, QuantFormat::nvfp4(), Along::rows, nvfp4_tensor_scale(x));
  EXPECT_EQ(q.linear[0], 0x7E);
  EXPECT_EQ(q.linear[1], 0x01);
}

TEST(SpecialBlocks, TouchNoOther) {
  const auto run = [](float special, const QuantFormat& format, Along along) {
    const std::int64_t n = 64;
    std::vector<float> x(n * n, 1.5f);
    x[33 * n + 40] = special;
    x[33 * n + 41] = -0.0f;
    return quantize(x, n, n, format, along);
  };
  for (const QuantFormat& format : formats)
    for (const Along along : {Along::rows, Along::cols}) {
      SCOPED_TRACE(describe(format));
      const bool mx = format.scale == DType::float8_e8m0fnu;
      const bool fp4 = format.element == DType::float4_e2m1fn_x2;
      const std::uint32_t largest = static_cast<std::uint32_t>(element_oracle(format).value.size() - 1);
      const Quantized plain = run(1.5f, format, along);
      const Quantized nan = run(NAN, format, along);
      const Quantized inf = run(-INFINITY, format, along);
      const std::int64_t line = along == Along::rows ? 33 : 40;
      const std::int64_t block = (along == Along::rows ? 40 : 33) / format.vec;
      const std::int64_t per_line = 64 / format.vec;
      int inside = 0;
      for (std::int64_t r = 0; r < 64; ++r)
        for (std::int64_t c = 0; c < 64; ++c) {
          const std::int64_t l = along == Along::rows ? r : c, i = along == Along::rows ? c : r;
          const std::int64_t k = r * 64 + c;
          if (l == line && i / format.vec == block) {
            ++inside;
            EXPECT_EQ(nan.codes[k], fp4 ? 7 : 0x7F);
            EXPECT_TRUE(std::isnan(nan.dequantized[k]));
          } else {
            EXPECT_EQ(nan.codes[k], plain.codes[k]);
            EXPECT_EQ(inf.codes[k], plain.codes[k]);
          }
        }
      EXPECT_EQ(inside, format.vec);
      EXPECT_EQ(nan.linear[line * per_line + block], mx ? 0xFF : 0x7F);
      EXPECT_EQ(inf.linear[line * per_line + block], mx ? 0xFE : 0x7E);
      EXPECT_EQ(inf.codes[33 * 64 + 40], largest | 1u << element_oracle(format).sign_shift);
      for (std::size_t s = 0; s < plain.linear.size(); ++s)
        if (static_cast<std::int64_t>(s) != line * per_line + block) {
          EXPECT_EQ(nan.linear[s], plain.linear[s]);
          EXPECT_EQ(inf.linear[s], plain.linear[s]);
        }
    }
}

TEST(SpecialBlocks, ZerosKeepTheirSign) {
  std::vector<float> x(64, 0.0f);
  x[3] = -0.0f;
  for (const QuantFormat& format : formats) {
    const Quantized q = quantize(x, 1, 64, format, Along::rows, 1e-30f);
    EXPECT_EQ(q.linear, Bytes(q.linear.size(), 0)) << describe(format);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(q.codes[i], i == 3 ? 1 << element_oracle(format).sign_shift : 0);
    EXPECT_TRUE(std::signbit(q.dequantized[3]));
  }
}

TEST(SpecialBlocks, ExtremeMagnitudes) {
  std::vector<float> x(64, 1e-44f);
  for (int i = 32; i < 64; ++i) x[i] = 2.4e38f;
  for (const QuantFormat& format : formats) {
    const Quantized q = quantize(x, 1, 64, format, Along::rows, nvfp4_tensor_scale(x));
    for (int i = 32; i < 64; ++i) EXPECT_NEAR(q.dequantized[i], 2.4e38, 2.4e38 * 0.26) << describe(format);
    for (int i = 0; i < 32; ++i) EXPECT_LT(std::fabs(q.dequantized[i]), 1e33) << describe(format);
  }
}

TEST(Convert, AgreesWithTheOracleBothWays) {
  std::mt19937 random(6);
  std::vector<float> x(1000);
  for (auto& v : x) v = oracle::from_bits(static_cast<std::uint32_t>(random()));
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2}) {
    const oracle::Format& f = dtype == DType::float16         ? oracle::fp16()
                              : dtype == DType::bfloat16      ? oracle::bf16()
                              : dtype == DType::float8_e4m3fn ? oracle::e4m3()
                                                              : oracle::e5m2();
    Bytes raw(x.size() * size_of(dtype));
    convert(x, dtype, raw.data());
    std::vector<float> back(x.size());
    convert(raw.data(), dtype, back);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint32_t code = size_of(dtype) == 1 ? raw[i] : raw[2 * i] | raw[2 * i + 1] << 8;
      ASSERT_EQ(code, f.encode(x[i])) << name(dtype);
      const std::uint32_t magnitude = code & ((1u << f.sign_shift) - 1);
      if (std::isnan(x[i]))
        ASSERT_TRUE(std::isnan(back[i]));
      else if (magnitude == f.infinity_code && magnitude >= f.value.size() - 1)
        ASSERT_TRUE(std::isinf(back[i]));
      else
        ASSERT_EQ(std::fabs(back[i]), f.value[magnitude]);
    }
  }
}

TEST(Convert, OtherTypes) {
  const std::vector<float> x = {1.5f, -2.0f, 0.5f, 6.0f};
  Bytes packed(2);
  convert(x, DType::float4_e2m1fn_x2, packed.data());
  EXPECT_EQ(packed, (Bytes{0xC3, 0x71}));
  std::vector<float> back(4);
  convert(packed.data(), DType::float4_e2m1fn_x2, back);
  EXPECT_EQ(back, x);
  Bytes scales(4);
  convert(std::vector<float>{1.0f, 3.0f, 0.0f, INFINITY}, DType::float8_e8m0fnu, scales.data());
  EXPECT_EQ(scales, (Bytes{0x7F, 0x81, 0x00, 0xFE}));
  convert(scales.data(), DType::float8_e8m0fnu, back);
  EXPECT_EQ(back, (std::vector<float>{1.0f, 4.0f, 0x1p-127f, 0x1p127f}));
  convert(x.data(), DType::float32, back);
  EXPECT_EQ(back, x);
  convert(back, DType::float32, std::data(back));
  convert(std::vector<float>{}, DType::float32, nullptr);
}

TEST(Arguments, AreChecked) {
  std::vector<float> x(64);
  Bytes codes(64), scales(512);
  const auto rows = [&](std::int64_t r, std::int64_t c, QuantFormat f, float g = 1.0f) {
    return [=, &x, &codes, &scales] { quantize_rows(x, r, c, f, codes.data(), scales.data(), g); };
  };
  const auto throws = [](const char* text) { return ThrowsMessage<InvalidArgument>(HasSubstr(text)); };
  EXPECT_THAT(rows(2, 64, QuantFormat::mxfp8()),
              throws("values holds 64 elements, expected rows * cols = 128"));
  EXPECT_THAT(rows(-1, 64, QuantFormat::mxfp8()), throws("rows = -1"));
  EXPECT_THAT(rows(1LL << 62, 64, QuantFormat::mxfp8()), throws("product below 2^63"));
  EXPECT_THAT(rows(1, 63, QuantFormat::mxfp4()), throws("cols is 63, expected an even number"));
  EXPECT_THAT(rows(1, 64, QuantFormat::nvfp4(), 0.0f), throws("tensor_scale is 0"));
  EXPECT_THAT(rows(1, 64, QuantFormat::nvfp4(), NAN), throws("tensor_scale"));
  EXPECT_THAT(rows(1, 64, QuantFormat::nvfp4(), INFINITY), throws("tensor_scale"));
  const QuantFormat bad[] = {{DType::float8_e4m3fn, DType::float8_e8m0fnu, 16},
                             {DType::float8_e4m3fn, DType::float8_e4m3fn, 32},
                             {DType::float4_e2m1fn_x2, DType::float8_e4m3fn, 32},
                             {DType::float4_e2m1fn_x2, DType::float8_e8m0fnu, 8},
                             {DType::bfloat16, DType::float8_e8m0fnu, 32},
                             {}};
  for (const QuantFormat& f : bad) {
    EXPECT_THAT(rows(1, 64, f), throws("is none of MXFP8"));
    EXPECT_THROW(quantize_cols(x, 1, 64, f, codes.data(), scales.data()), InvalidArgument);
    EXPECT_THROW(dequantize_rows(codes.data(), scales.data(), 1, 64, f, x), InvalidArgument);
    EXPECT_THROW(dequantize_cols(codes.data(), scales.data(), 1, 64, f, x), InvalidArgument);
  }
  EXPECT_THROW(dequantize_rows(codes.data(), scales.data(), 2, 64, QuantFormat::mxfp8(), x), InvalidArgument);
  EXPECT_THROW(dequantize_cols(codes.data(), scales.data(), 2, 64, QuantFormat::mxfp8(), x), InvalidArgument);
  EXPECT_EQ(code_bytes(3, 64, DType::float4_e2m1fn_x2), 96);
  EXPECT_THAT([] { code_bytes(3, 63, DType::float4_e2m1fn_x2); }, throws("cols is 63"));
  EXPECT_THAT([] { code_bytes(3, 64, DType::bfloat16); }, throws("element is bfloat16"));
  EXPECT_THAT([&] { convert(std::span(x).first(3), DType::float4_e2m1fn_x2, codes.data()); },
              throws("3 elements"));
  EXPECT_THAT([&] { convert(x, DType::int32, codes.data()); }, throws("dtype is int32"));
  EXPECT_THAT([&] { convert(codes.data(), DType::uint8, x); }, throws("dtype is uint8"));
}

TEST(Arguments, EmptyMatricesAreNoWork) {
  for (const QuantFormat& format : formats) {
    quantize_rows({}, 0, 64, format, nullptr, nullptr);
    quantize_cols({}, 64, 0, format, nullptr, nullptr);
    dequantize_rows(nullptr, nullptr, 0, 64, format, {});
    dequantize_cols(nullptr, nullptr, 64, 0, format, {});
  }
}

}  // namespace
}  // namespace gemmule
