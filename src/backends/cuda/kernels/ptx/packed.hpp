// Arithmetic on packed values: pairs of 8-bit floats and of bfloat16. The element at the lower address is in the low half.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// cvt.rn.f16x2.e4m3x2 d, half of a;  exact; NaN gives 0x7FFF.
template <int half>
GEMMULE_DEVICE u32 expand_e4m3(u32 bytes) {
  u32 pair;
  if constexpr (half == 0)
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "}"
        : "=r"(pair)
        : "r"(bytes));
  else
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, high;\n"
        "}"
        : "=r"(pair)
        : "r"(bytes));
  return pair;
}

/// mul.rn.bf16x2 d, a, b;  subnormals kept; NaN gives 0x7FFF.
GEMMULE_DEVICE u32 multiply_bf16(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// fma.rn.bf16x2 d, a, b, c;  one rounding; subnormals kept.
GEMMULE_DEVICE u32 multiply_add_bf16(u32 a, u32 b, u32 c) {
  u32 sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// mul.rn.f16x2 d, a, b;  subnormals kept; NaN gives 0x7FFF.
GEMMULE_DEVICE u32 multiply_fp16(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// max.u16x2 d, a, b;
GEMMULE_DEVICE u32 max_u16(u32 a, u32 b) {
  u32 result;
  asm("max.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// min.u16x2 d, a, b;
GEMMULE_DEVICE u32 min_u16(u32 a, u32 b) {
  u32 result;
  asm("min.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// add.u16x2 d, a, b;  each half by itself.
GEMMULE_DEVICE u32 add_u16(u32 a, u32 b) {
  u32 result;
  asm("add.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// mad.lo.u32 d, a, b, c;
GEMMULE_DEVICE u32 multiply_add(u32 a, u32 b, u32 c) {
  u32 result;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

/// prmt.b32 d, a, b, selector;  Byte i of the result is byte (selector >> 4 i & 7) of {a, b}, a's first.
GEMMULE_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
}

}  // namespace gemmule::ptx
