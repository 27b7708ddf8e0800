// Rows of 32 values in every element type, converted by the formulas of numerics/.
#pragma once

#include "backends/cpu/kernel.hpp"
#include "backends/cpu/simd.hpp"
#include "numerics/formats.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

using numerics::u16;
using numerics::u32;
using numerics::u8;

struct Float32 {
  using Code = float;
  static constexpr int bits = 32;
  GEMMULE_INLINE static float decode(float x) { return x; }
  GEMMULE_INLINE static float encode(float x) { return x; }
};
struct Float16 {
  using Code = u16;
  static constexpr int bits = 16;
  GEMMULE_INLINE static float decode(u32 x) { return numerics::Fp16::decode(x); }
  GEMMULE_INLINE static u32 encode(float x) { return numerics::encode_fp16(x); }
};
struct BFloat16 {
  using Code = u16;
  static constexpr int bits = 16;
  GEMMULE_INLINE static float decode(u32 x) { return numerics::decode_bf16(static_cast<u16>(x)); }
  GEMMULE_INLINE static u32 encode(float x) { return numerics::encode_bf16(x); }
};
struct Float8E4m3 {
  using Code = u8;
  static constexpr int bits = 8;
  GEMMULE_INLINE static float decode(u32 x) { return numerics::E4m3::decode(x); }
  GEMMULE_INLINE static u32 encode(float x) { return numerics::E4m3::encode(x, 0x7F); }
};
struct Float8E5m2 {
  using Code = u8;
  static constexpr int bits = 8;
  GEMMULE_INLINE static float decode(u32 x) { return numerics::E5m2::decode(x); }
  GEMMULE_INLINE static u32 encode(float x) { return numerics::E5m2::encode(x, 0x7F); }
};
struct Float4E2m1 {
  using Code = u8;
  static constexpr int bits = 4;  // two per byte, the even index in the low half
  GEMMULE_INLINE static float decode(u32 x) { return numerics::E2m1::decode(x); }
  GEMMULE_INLINE static u32 encode(float x) { return numerics::E2m1::encode(x, 0x7); }
};

template <class Format>
GEMMULE_INLINE std::int64_t bytes(std::int64_t values) {
  return values * Format::bits / 8;
}

/// Calls body with a value of the format's type.
template <class Body>
GEMMULE_INLINE void with_format(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::float32:
      return body(Float32{});
    case DType::float16:
      return body(Float16{});
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::float8_e4m3fn:
      return body(Float8E4m3{});
    case DType::float8_e5m2:
      return body(Float8E5m2{});
    case DType::float4_e2m1fn_x2:
      return body(Float4E2m1{});
    default:
      __builtin_trap();  // The operators admit no other element type.
  }
}

/// The same for the types that A and B may have.
template <class Body>
GEMMULE_INLINE void with_operand_format(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::bfloat16:
      return body(BFloat16{});
    case DType::float8_e4m3fn:
      return body(Float8E4m3{});
    case DType::float8_e5m2:
      return body(Float8E5m2{});
    case DType::float4_e2m1fn_x2:
      return body(Float4E2m1{});
    default:
      __builtin_trap();
  }
}

/// out[0..31] = value(decoded code, index). The codes are widened in a loop of their own, see encode_row.
template <class Format, class Value>
GEMMULE_INLINE void decode_row(const void* in, float* __restrict out, const Value& value) {
  if constexpr (Format::bits == 32) {
    float values[block];
    __builtin_memcpy(values, in, sizeof values);
    for (int i = 0; i < block; ++i) out[i] = value(values[i], i);
  } else if constexpr (Format::bits == 4) {
    Vec values[block / lanes];
    decode_e2m1(static_cast<const u8*>(in), values);
    float plain[block];
    __builtin_memcpy(plain, values, sizeof plain);
    for (int i = 0; i < block; ++i) out[i] = value(plain[i], i);
  } else {
    u32 wide[block];
    if constexpr (Format::bits == 8) {
      widen(static_cast<const u8*>(in), wide);
    } else {
      typename Format::Code codes[block];
      __builtin_memcpy(codes, in, sizeof codes);
      for (int i = 0; i < block; ++i) wide[i] = codes[i];
    }
    for (int i = 0; i < block; ++i) out[i] = value(Format::decode(wide[i]), i);
  }
}

/// Encodes value(index) for index 0..31. The codes are narrowed in a loop of their own: g++ would otherwise do the last
/// steps of the conversion on vectors of bytes and move predicates between the widths.
template <class Format, class Value>
GEMMULE_INLINE void encode_row(void* out, const Value& value) {
  if constexpr (Format::bits == 32) {
    float values[block];
    for (int i = 0; i < block; ++i) values[i] = value(i);
    __builtin_memcpy(out, values, sizeof values);
  } else {
    u32 wide[block];
    for (int i = 0; i < block; ++i) wide[i] = Format::encode(value(i));
    if constexpr (Format::bits == 4) {
      u8 pairs[block / 2];
      for (int i = 0; i < block / 2; ++i) pairs[i] = static_cast<u8>(wide[2 * i] | (wide[2 * i + 1] << 4));
      __builtin_memcpy(out, pairs, sizeof pairs);
    } else if constexpr (Format::bits == 8) {
      narrow(wide, static_cast<u8*>(out));
    } else {
      typename Format::Code codes[block];
      for (int i = 0; i < block; ++i) codes[i] = static_cast<typename Format::Code>(wide[i]);
      __builtin_memcpy(out, codes, sizeof codes);
    }
  }
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
