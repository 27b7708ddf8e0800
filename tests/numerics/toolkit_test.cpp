// Comparison with the host emulation of the CUDA toolkit's conversions, where a toolkit is installed.
#include <gtest/gtest.h>

#include "numerics/formats.hpp"
#include "numerics/oracle.hpp"

#if defined(GEMMULE_HAVE_CUDA_FP8) && __has_include(<cuda_fp8.h>) && __has_include(<cuda_fp4.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

namespace gemmule {
namespace {

TEST(Toolkit, ConversionsAgree) {
  std::int64_t wrong = 0;
  const auto check = [&](std::uint32_t bits) {
    const float x = oracle::from_bits(bits);
    wrong += numerics::encode_e4m3(x) != __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    wrong += numerics::encode_e5m2(x) != __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    wrong += numerics::encode_e2m1(x) != __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    wrong += numerics::encode_bf16(x) != std::bit_cast<std::uint16_t>(__float2bfloat16_rn(x));
    wrong += numerics::encode_fp16(x) != std::bit_cast<std::uint16_t>(__float2half_rn(x));
    const auto magnitude = std::fabs(x);
    wrong += numerics::encode_e8m0(magnitude) !=
             __nv_cvt_float_to_e8m0(magnitude, __NV_SATFINITE, cudaRoundPosInf);
  };
  for (std::uint32_t bits = 0; bits < 0xFFFFFFFFu - 1009; bits += 1009) check(bits);
  for (std::uint32_t c = 0; c < 0x10000; ++c)
    for (std::uint32_t d : {0u, 1u, 0xFFFFu}) check((c << 16) + d);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gemmule
#else
TEST(Toolkit, ConversionsAgree) {
  GTEST_SKIP()
      << "no CUDA toolkit with cuda_fp8.h and cuda_fp4.h: its conversions were NOT compared with ours";
}
#endif
