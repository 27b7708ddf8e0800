// Rows of 32 values in every element type, converted by the formulas of numerics/.
#pragma once

#include "backends/cpu/kernel.hpp"
#include "backends/cpu/simd.hpp"
#include "numerics/formats.hpp"

namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE {
namespace {

using numerics::u16;
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
  GEMMULE_INLINE static float decode(u16 x) { return numerics::decode_fp16(x); }
  GEMMULE_INLINE static u16 encode(float x) { return numerics::encode_fp16(x); }
};
struct BFloat16 {
  using Code = u16;
  static constexpr int bits = 16;
  GEMMULE_INLINE static float decode(u16 x) { return numerics::decode_bf16(x); }
  GEMMULE_INLINE static u16 encode(float x) { return numerics::encode_bf16(x); }
};
struct Float8E4m3 {
  using Code = u8;
  static constexpr int bits = 8;
  GEMMULE_INLINE static float decode(u8 x) { return numerics::decode_e4m3(x); }
  GEMMULE_INLINE static u8 encode(float x) { return numerics::encode_e4m3(x); }
};
struct Float8E5m2 {
  using Code = u8;
  static constexpr int bits = 8;
  GEMMULE_INLINE static float decode(u8 x) { return numerics::decode_e5m2(x); }
  GEMMULE_INLINE static u8 encode(float x) { return numerics::encode_e5m2(x); }
};
struct Float4E2m1 {
  using Code = u8;
  static constexpr int bits = 4;  // two per byte, the even index in the low half
  GEMMULE_INLINE static float decode(u8 x) { return numerics::decode_e2m1(x); }
  GEMMULE_INLINE static u8 encode(float x) { return numerics::encode_e2m1(x); }
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

/// out[0..31] = value(decoded code, index).
template <class Format, class Value>
GEMMULE_INLINE void decode_row(const void* in, float* __restrict out, const Value& value) {
  if constexpr (Format::bits == 4) {
    const u8* pairs = static_cast<const u8*>(in);
    u8 codes[block];
    for (int i = 0; i < block / 2; ++i) {
      codes[2 * i] = pairs[i] & 0xF;
      codes[2 * i + 1] = pairs[i] >> 4;
    }
    for (int i = 0; i < block; ++i) out[i] = value(Format::decode(codes[i]), i);
  } else {
    typename Format::Code codes[block];
    __builtin_memcpy(codes, in, sizeof codes);
    for (int i = 0; i < block; ++i) out[i] = value(Format::decode(codes[i]), i);
  }
}

/// Encodes value(index) for index 0..31.
template <class Format, class Value>
GEMMULE_INLINE void encode_row(void* out, const Value& value) {
  typename Format::Code codes[block];
  for (int i = 0; i < block; ++i) codes[i] = Format::encode(value(i));
  if constexpr (Format::bits == 4) {
    u8 pairs[block / 2];
    for (int i = 0; i < block / 2; ++i) pairs[i] = numerics::pack_e2m1(codes[2 * i], codes[2 * i + 1]);
    __builtin_memcpy(out, pairs, sizeof pairs);
  } else {
    __builtin_memcpy(out, codes, sizeof codes);
  }
}

}  // namespace
}  // namespace gemmule::cpu::GEMMULE_CPU_NAMESPACE
