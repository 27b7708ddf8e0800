// The numerics of a device: its own conversion instructions against the integer arithmetic of numerics/formats.hpp, for every
// float32, and its elementary functions against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/cuda/device.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/module.hpp"
#include "gemmule/error.hpp"
#include "numerics/formats.hpp"
#include "numerics/math.hpp"
#include "numerics/quantization.hpp"

namespace gemmule::cuda {
namespace {

constexpr std::uint32_t counters = 8;

struct Params {
  std::uint32_t* mismatches;  ///< [counters]
  std::uint32_t* codes;       ///< [count] of the patterns first, first + stride, ...: e4m3, e5m2 and FP16
  float* functions;           ///< [2][count] sigmoid and tanh of the same
  std::uint32_t count, first, stride;
};

Specialization kernels() {
  return {R"(
#include "numerics/formats.hpp"
#include "numerics/math.hpp"
#include "numerics/quantization.hpp"
#include "ptx/convert.hpp"
#include "ptx/global.hpp"
#include "ptx/identity.hpp"
using namespace gemmule;
using numerics::u32;
struct Params {
  u32* mismatches;
  u32* codes;
  float* functions;
  u32 count, first, stride;
};
__device__ __forceinline__ bool is_nan(float x) { return (numerics::bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u; }
__device__ __forceinline__ bool same(float a, float b) {
  return numerics::bits_of(a) == numerics::bits_of(b) || (is_nan(a) && is_nan(b));
}
extern "C" __global__ void __launch_bounds__(256, 1) every_float(const __grid_constant__ Params params) {
  const u32 threads = ptx::cta_count() * 256;
  u32 wrong[8] = {};
  for (unsigned long long i = ptx::cta_index() * 256 + ptx::thread_index(); i < 1ull << 30; i += threads) {
    float x[4];
    u32 e4m3 = 0, e5m2 = 0;
    for (u32 j = 0; j < 4; ++j) {
      x[j] = numerics::float_of(static_cast<u32>(i) + (j << 30));
      e4m3 |= u32{numerics::encode_e4m3(x[j])} << (8 * j);
      e5m2 |= u32{numerics::encode_e5m2(x[j])} << (8 * j);
      const float plain = is_nan(x[j]) ? x[j] : x[j] <= 0.0f ? 0.0f : x[j];
      wrong[4] += !same(numerics::relu(x[j]), plain);
      for (const float running : {-numerics::float_of(0x7F800000u), 0.0f, 1.5f}) {
        const float magnitude = numerics::absolute(x[j]);
        wrong[5] += !same(numerics::amax_step(running, x[j]), is_nan(x[j]) ? x[j] : magnitude > running ? magnitude : running);
      }
      wrong[5] += !is_nan(numerics::amax_step(numerics::float_of(0x7FC00000u), x[j]));
    }
    wrong[0] += ptx::pack_e4m3(x[0], x[1], x[2], x[3]) != e4m3;
    wrong[1] += ptx::pack_e5m2(x[0], x[1], x[2], x[3]) != e5m2;
    for (u32 j = 0; j < 4; j += 2) {
      wrong[2] += ptx::pack_bf16(x[j], x[j + 1]) != (numerics::encode_bf16(x[j]) | u32{numerics::encode_bf16(x[j + 1])} << 16);
      wrong[3] += ptx::pack_fp16(x[j], x[j + 1]) != (numerics::encode_fp16(x[j]) | u32{numerics::encode_fp16(x[j + 1])} << 16);
    }
    if (i < 65536) {
      const u32 pair = static_cast<u32>(i);
      const ptx::F32x2 a = ptx::unpack_e4m3(pair), b = ptx::unpack_e5m2(pair);
      wrong[6] += !same(a.x, numerics::decode_e4m3(pair & 0xFF)) + !same(a.y, numerics::decode_e4m3(pair >> 8));
      wrong[7] += !same(b.x, numerics::decode_e5m2(pair & 0xFF)) + !same(b.y, numerics::decode_e5m2(pair >> 8));
    }
  }
  for (u32 j = 0; j < 8; ++j)
    if (wrong[j] != 0) ptx::fetch_add(params.mismatches + j, wrong[j]);
}
extern "C" __global__ void __launch_bounds__(256, 1) some_floats(const __grid_constant__ Params params) {
  for (u32 i = ptx::cta_index() * 256 + ptx::thread_index(); i < params.count; i += ptx::cta_count() * 256) {
    const float x = numerics::float_of(params.first + i * params.stride);
    ptx::store(params.codes + i, (ptx::pack_e4m3(x, 0, 0, 0) & 0xFF) | (ptx::pack_e5m2(x, 0, 0, 0) & 0xFF) << 8 |
                                     ptx::pack_fp16(x, 0) << 16);
    ptx::store(params.functions + i, numerics::sigmoid(x));
    ptx::store(params.functions + (params.count + i), numerics::tanh(x));
  }
}
)",
          {{"every_float", 256, 0, 1}, {"some_floats", 256, 0, 1}}};
}

class CudaNumerics : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_driver(&why)) GTEST_SKIP() << "NOT TESTED, no GPU: " << why;
    if (!gpu(0).arch) GTEST_SKIP() << "NOT TESTED, unsupported GPU: " << gpu(0).describe();
  }
  static void run(std::size_t entry, const Params& params) {
    const Gpu& g = gpu(0);
    const auto module = get_module(kernels(), g);
    const Problem problem;
    const Operands operands;
    const ContextScope scope(primary_context(0));
    const Launch launch{problem, operands, g.limits, module->functions};
    launch.run(entry, launch.persistent_ctas(entry, 1 << 20), &params);
    synchronize(0);
  }
  /// Codes and functions of count patterns.
  static void sample(std::uint32_t first, std::uint32_t stride, std::vector<std::uint32_t>& codes,
                     std::vector<float>& functions) {
    const std::size_t count = codes.size();
    functions.resize(2 * count);
    DeviceMemory device_codes(0, 4 * count), device_functions(0, 8 * count);
    run(1, {nullptr, static_cast<std::uint32_t*>(device_codes.data()),
            static_cast<float*>(device_functions.data()), static_cast<std::uint32_t>(count), first, stride});
    device_codes.download(codes.data(), 4 * count);
    device_functions.download(functions.data(), 8 * count);
  }
};

TEST_F(CudaNumerics, InstructionsConvertEveryFloatAsTheIntegerRulesDo) {
  DeviceMemory memory(0, 4 * counters);
  memory.fill(0);
  run(0, {static_cast<std::uint32_t*>(memory.data()), nullptr, nullptr, 0, 0, 0});
  std::vector<std::uint32_t> wrong(counters);
  memory.download(wrong.data(), 4 * counters);
  const char* names[counters] = {"e4m3", "e5m2", "bf16", "fp16", "relu", "amax", "from e4m3", "from e5m2"};
  for (std::uint32_t i = 0; i < counters; ++i) EXPECT_EQ(wrong[i], 0u) << names[i];
}

TEST_F(CudaNumerics, CodesAreThoseOfTheHost) {
  std::vector<std::uint32_t> codes(1 << 20);
  std::vector<float> functions;
  sample(77, 4093, codes, functions);
  for (std::uint32_t i = 0; i < codes.size(); ++i) {
    const float x = numerics::float_of(77 + i * 4093);
    const std::uint32_t expected = numerics::encode_e4m3(x) | numerics::encode_e5m2(x) << 8 |
                                   std::uint32_t{numerics::encode_fp16(x)} << 16;
    ASSERT_EQ(codes[i], expected) << x;
  }
}

/// From 2^-30 to 64, both signs.
TEST_F(CudaNumerics, SigmoidAndTanhAreAsAccurateAsTheHosts) {
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    const std::uint32_t first = sign | (127 - 30) << 23, stride = 137;
    std::vector<std::uint32_t> codes((36u << 23) / stride);
    std::vector<float> functions;
    sample(first, stride, codes, functions);
    double sigmoid_error = 0, tanh_error = 0, tanh_relative = 0;
    for (std::uint32_t i = 0; i < codes.size(); ++i) {
      const double x = numerics::float_of(first + i * stride);
      const double s = 1 / (1 + std::exp(-x)), t = std::tanh(x);
      sigmoid_error = std::max(sigmoid_error, std::abs(functions[i] - s) / s);
      tanh_error = std::max(tanh_error, std::abs(functions[codes.size() + i] - t));
      tanh_relative = std::max(tanh_relative, std::abs(functions[codes.size() + i] - t) / std::abs(t));
    }
    EXPECT_LT(sigmoid_error, 8e-6);
    EXPECT_LT(tanh_error, 1e-6);
    EXPECT_LT(tanh_relative, 1e-5);
  }
}

TEST_F(CudaNumerics, SigmoidAndTanhAreExactWhereExactProblemsNeedIt) {
  const auto at = [](float x) {
    std::vector<std::uint32_t> codes(1);
    std::vector<float> functions;
    sample(numerics::bits_of(x), 1, codes, functions);
    return functions;
  };
  EXPECT_EQ(at(0.0f), (std::vector<float>{0.5f, 0.0f}));
  EXPECT_EQ(at(128.0f), (std::vector<float>{1.0f, 1.0f}));
  EXPECT_EQ(at(-128.0f), (std::vector<float>{0.0f, -1.0f}));
  EXPECT_EQ(at(32.0f)[1], 1.0f);
  EXPECT_EQ(at(-32.0f)[1], -1.0f);
  for (const float x : at(std::nanf(""))) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace gemmule::cuda
