// The public quantizers, dequantizers and plain conversions.
//
// Both directions work on strips: at most `vec` rows or columns that share their scale factors, buffered on the stack,
// so that the inner loops run over consecutive values and vectorise.
#include "gemmule/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "gemmule/layout.hpp"
#include "layout/scale_factors.hpp"
#include "numerics/formats.hpp"
#include "numerics/quantization.hpp"

namespace gemmule {
namespace {

using numerics::i32;
using numerics::u8;

constexpr int max_vec = 32;
constexpr float max_e2m1 = 6.0f;
constexpr float max_e4m3 = 448.0f;

// The element types as types: conversion, reciprocal of the largest value, values per byte.
struct E4m3 {
  static constexpr float rcp_max = numerics::rcp_max_e4m3;
  static constexpr int per_byte = 1;
  GEMMULE_HD static u8 encode(float x) { return numerics::encode_e4m3(x); }
  GEMMULE_HD static float decode(u8 code) { return numerics::decode_e4m3(code); }
};
struct E5m2 {
  static constexpr float rcp_max = numerics::rcp_max_e5m2_input;
  static constexpr int per_byte = 1;
  GEMMULE_HD static u8 encode(float x) { return numerics::encode_e5m2(x); }
  GEMMULE_HD static float decode(u8 code) { return numerics::decode_e5m2(code); }
};
struct E2m1 {
  static constexpr float rcp_max = numerics::rcp_max_e2m1;
  static constexpr int per_byte = 2;
  GEMMULE_HD static u8 encode(float x) { return numerics::encode_e2m1(x); }
  GEMMULE_HD static float decode(u8 code) { return numerics::decode_e2m1(code); }
};

template <class Visit>
void with_element(DType element, Visit visit) {
  if (element == DType::float8_e4m3fn) return visit(E4m3{});
  if (element == DType::float8_e5m2) return visit(E5m2{});
  visit(E2m1{});
}

std::string describe(const QuantFormat& format) {
  return std::string("element ") + name(format.element) + ", scale " + name(format.scale) + ", vec " +
         std::to_string(format.vec);
}

void check_format(const QuantFormat& format) {
  const bool fp8 = format.element == DType::float8_e4m3fn || format.element == DType::float8_e5m2;
  const bool fp4 = format.element == DType::float4_e2m1fn_x2;
  const bool mx = format.scale == DType::float8_e8m0fnu && (format.vec == 32 || (fp4 && format.vec == 16));
  const bool nv = fp4 && format.scale == DType::float8_e4m3fn && format.vec == 16;
  if (!((fp8 || fp4) && mx) && !nv)
    throw InvalidArgument(
        "format (" + describe(format) +
        ") is none of MXFP8 (float8_e4m3fn or float8_e5m2, float8_e8m0fnu, 32), MXFP4 "
        "(float4_e2m1fn_x2, float8_e8m0fnu, 16 or 32), NVFP4 (float4_e2m1fn_x2, float8_e4m3fn, 16)");
}

/// rows * cols, checked.
std::int64_t matrix_size(std::int64_t rows, std::int64_t cols, bool fp4) {
  std::int64_t size = 0;
  if (rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &size))
    throw InvalidArgument("rows = " + std::to_string(rows) + ", cols = " + std::to_string(cols) +
                          ": expected extents that are not negative and a product below 2^63");
  if (fp4 && cols % 2 != 0)
    throw InvalidArgument("cols is " + std::to_string(cols) +
                          ", expected an even number: two FP4 values share a byte");
  return size;
}

void check_call(std::size_t values, std::int64_t rows, std::int64_t cols, const QuantFormat& format,
                float tensor_scale) {
  check_format(format);
  const std::int64_t size = matrix_size(rows, cols, format.element == DType::float4_e2m1fn_x2);
  if (values < static_cast<std::uint64_t>(size))
    throw InvalidArgument("values holds " + std::to_string(values) +
                          " elements, expected rows * cols = " + std::to_string(size));
  if (!(tensor_scale > 0.0f) || std::isinf(tensor_scale))
    throw InvalidArgument("tensor_scale is " + std::to_string(tensor_scale) +
                          ", expected a positive finite number");
}

struct BlockScale {
  u8 code;
  float divisor;  ///< codes are RN(x / divisor)
};

/// The scale of a block whose largest magnitude has the bits `amax_bits`. A NaN gives a NaN divisor.
BlockScale block_scale(i32 amax_bits, const QuantFormat& format, float rcp_max, float tensor_scale) {
  if (amax_bits == 0) return {0, 1.0f};
  const float amax = numerics::float_of(static_cast<numerics::u32>(amax_bits));
  if (format.scale == DType::float8_e8m0fnu) {
    const u8 code = numerics::encode_e8m0(amax * rcp_max);
    return {code, numerics::decode_e8m0(code)};
  }
  const u8 rounded = numerics::encode_e4m3(amax / (max_e2m1 * tensor_scale));
  const u8 code = rounded == 0 ? u8{1} : rounded;
  const float divisor = tensor_scale * numerics::decode_e4m3(code);
  // A tensor scale near the bottom of float32 may leave nothing of the product.
  return {code, divisor == 0.0f ? std::numeric_limits<float>::denorm_min() : divisor};
}

/// Codes of `count` values, packed for FP4; `count` is then even.
template <class Element>
void store_codes(const u8* unpacked, std::int64_t count, u8* codes) {
  if constexpr (Element::per_byte == 1)
    std::memcpy(codes, unpacked, static_cast<std::size_t>(count));
  else
    for (std::int64_t i = 0; i < count / 2; ++i)
      codes[i] = numerics::pack_e2m1(unpacked[2 * i], unpacked[2 * i + 1]);
}

/// Unpacked codes of `count` values that start at element `first`.
template <class Element>
void load_codes(const u8* codes, std::int64_t first, std::int64_t count, u8* unpacked) {
  if constexpr (Element::per_byte == 1)
    std::memcpy(unpacked, codes + first, static_cast<std::size_t>(count));
  else
    for (std::int64_t i = 0; i < count / 2; ++i) {
      unpacked[2 * i] = numerics::unpack_e2m1(codes[first / 2 + i], 0);
      unpacked[2 * i + 1] = numerics::unpack_e2m1(codes[first / 2 + i], 1);
    }
}

template <class Element>
void quantize_row_block(const float* x, std::int64_t count, const QuantFormat& format, float tensor_scale,
                        u8* codes, u8* scale) {
  float block[max_vec] = {};
  std::copy_n(x, count, block);
  i32 amax = 0;
  for (const float value : block) amax = std::max(amax, numerics::amax_bits(value));
  const BlockScale s = block_scale(amax, format, Element::rcp_max, tensor_scale);
  u8 unpacked[max_vec];
  for (int i = 0; i < max_vec; ++i) unpacked[i] = Element::encode(block[i] / s.divisor);
  store_codes<Element>(unpacked, count, codes);
  *scale = s.code;
}

/// Columns handled together by the column direction.
constexpr std::int64_t strip = 64;

/// `height` rows x `width` columns that share one scale per column. Writes code(row, ...) and scales[column].
template <class Element>
void quantize_col_blocks(const float* x, std::int64_t height, std::int64_t width, std::int64_t cols,
                         const QuantFormat& format, float tensor_scale, u8* codes, u8* scales) {
  i32 amax[strip] = {};
  for (std::int64_t r = 0; r < height; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      amax[c] = std::max(amax[c], numerics::amax_bits(x[r * cols + c]));
  float divisor[strip];
  for (std::int64_t c = 0; c < width; ++c) {
    const BlockScale s = block_scale(amax[c], format, Element::rcp_max, tensor_scale);
    scales[c] = s.code;
    divisor[c] = s.divisor;
  }
  u8 unpacked[strip];
  for (std::int64_t r = 0; r < height; ++r) {
    for (std::int64_t c = 0; c < width; ++c) unpacked[c] = Element::encode(x[r * cols + c] / divisor[c]);
    store_codes<Element>(unpacked, width, codes + r * cols / Element::per_byte);
  }
}

float decode_scale(u8 code, const QuantFormat& format) {
  return format.scale == DType::float8_e8m0fnu ? numerics::decode_e8m0(code) : numerics::decode_e4m3(code);
}

/// The tensor scale as dequantization sees it: MX formats have none.
float effective_tensor_scale(const QuantFormat& format, float tensor_scale) {
  return format.scale == DType::float8_e8m0fnu ? 1.0f : tensor_scale;
}

}  // namespace

std::int64_t code_bytes(std::int64_t rows, std::int64_t cols, DType element) {
  const bool fp4 = element == DType::float4_e2m1fn_x2;
  if (!fp4 && element != DType::float8_e4m3fn && element != DType::float8_e5m2)
    throw InvalidArgument(std::string("element is ") + name(element) +
                          ", expected float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2");
  return matrix_size(rows, cols, fp4) / (fp4 ? 2 : 1);
}

float nvfp4_tensor_scale(std::span<const float> values) {
  i32 amax = 0;
  for (const float value : values) {
    const i32 bits = numerics::amax_bits(value);
    amax = std::max(amax, bits < static_cast<i32>(numerics::infinity_bits) ? bits : 0);
  }
  if (amax == 0) return 1.0f;
  const float scale = numerics::float_of(static_cast<numerics::u32>(amax)) / (max_e4m3 * max_e2m1);
  return std::max(scale, std::numeric_limits<float>::denorm_min());
}

void quantize_rows(std::span<const float> values, std::int64_t rows, std::int64_t cols, QuantFormat format,
                   std::uint8_t* codes, std::uint8_t* scales, float tensor_scale) {
  check_call(values.size(), rows, cols, format, tensor_scale);
  if (rows == 0 || cols == 0) return;
  std::memset(scales, 0, static_cast<std::size_t>(scale_bytes(rows, cols, format.vec)));
  const std::int64_t atoms = layout::block_atoms(cols, format.vec);
  with_element(format.element, [&]<class Element>(Element) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t first = 0; first < cols; first += format.vec) {
        const std::int64_t at = row * cols + first;
        quantize_row_block<Element>(values.data() + at, std::min<std::int64_t>(format.vec, cols - first),
                                    format, tensor_scale, codes + at / Element::per_byte,
                                    scales + layout::scale_offset(row, first / format.vec, atoms));
      }
  });
}

void quantize_cols(std::span<const float> values, std::int64_t rows, std::int64_t cols, QuantFormat format,
                   std::uint8_t* codes, std::uint8_t* scales, float tensor_scale) {
  check_call(values.size(), rows, cols, format, tensor_scale);
  if (rows == 0 || cols == 0) return;
  std::memset(scales, 0, static_cast<std::size_t>(scale_bytes(cols, rows, format.vec)));
  const std::int64_t atoms = layout::block_atoms(rows, format.vec);
  with_element(format.element, [&]<class Element>(Element) {
    for (std::int64_t row = 0; row < rows; row += format.vec)
      for (std::int64_t col = 0; col < cols; col += strip) {
        const std::int64_t at = row * cols + col;
        const std::int64_t width = std::min(strip, cols - col);
        u8 strip_scales[strip];
        quantize_col_blocks<Element>(values.data() + at, std::min<std::int64_t>(format.vec, rows - row),
                                     width, cols, format, tensor_scale, codes + at / Element::per_byte,
                                     strip_scales);
        for (std::int64_t c = 0; c < width; ++c)
          scales[layout::scale_offset(col + c, row / format.vec, atoms)] = strip_scales[c];
      }
  });
}

void dequantize_rows(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t rows,
                     std::int64_t cols, QuantFormat format, std::span<float> values, float tensor_scale) {
  check_call(values.size(), rows, cols, format, tensor_scale);
  const float g = effective_tensor_scale(format, tensor_scale);
  const std::int64_t atoms = layout::block_atoms(cols, format.vec);
  with_element(format.element, [&]<class Element>(Element) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t first = 0; first < cols; first += format.vec) {
        const std::int64_t at = row * cols + first;
        const std::int64_t count = std::min<std::int64_t>(format.vec, cols - first);
        const float scale =
            decode_scale(scales[layout::scale_offset(row, first / format.vec, atoms)], format);
        u8 unpacked[max_vec];
        load_codes<Element>(codes, at, count, unpacked);
        for (std::int64_t i = 0; i < count; ++i) values[at + i] = (Element::decode(unpacked[i]) * scale) * g;
      }
  });
}

void dequantize_cols(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t rows,
                     std::int64_t cols, QuantFormat format, std::span<float> values, float tensor_scale) {
  check_call(values.size(), rows, cols, format, tensor_scale);
  const float g = effective_tensor_scale(format, tensor_scale);
  const std::int64_t atoms = layout::block_atoms(rows, format.vec);
  with_element(format.element, [&]<class Element>(Element) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t first = 0; first < cols; first += strip) {
        const std::int64_t at = row * cols + first;
        const std::int64_t count = std::min(strip, cols - first);
        u8 unpacked[strip];
        load_codes<Element>(codes, at, count, unpacked);
        for (std::int64_t i = 0; i < count; ++i) {
          const float scale =
              decode_scale(scales[layout::scale_offset(first + i, row / format.vec, atoms)], format);
          values[at + i] = (Element::decode(unpacked[i]) * scale) * g;
        }
      }
  });
}

namespace {

template <class Code, class Encode>
void encode_all(std::span<const float> values, void* out, Encode encode) {
  auto* codes = static_cast<Code*>(out);
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = encode(values[i]);
}

template <class Code, class Decode>
void decode_all(const void* in, std::span<float> values, Decode decode) {
  const auto* codes = static_cast<const Code*>(in);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(codes[i]);
}

void check_even(std::size_t count) {
  if (count % 2 != 0)
    throw InvalidArgument("values holds " + std::to_string(count) +
                          " elements, expected an even number: two FP4 values share a byte");
}

[[noreturn]] void no_conversion(DType dtype) {
  throw InvalidArgument(std::string("dtype is ") + name(dtype) + ", which is not a floating-point type");
}

}  // namespace

void convert(std::span<const float> values, DType to, void* out) {
  switch (to) {
    case DType::float32:
      if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
      return;
    case DType::float16:
      return encode_all<std::uint16_t>(values, out, [](float x) { return numerics::encode_fp16(x); });
    case DType::bfloat16:
      return encode_all<std::uint16_t>(values, out, [](float x) { return numerics::encode_bf16(x); });
    case DType::float8_e4m3fn:
      return encode_all<u8>(values, out, [](float x) { return numerics::encode_e4m3(x); });
    case DType::float8_e5m2:
      return encode_all<u8>(values, out, [](float x) { return numerics::encode_e5m2(x); });
    case DType::float8_e8m0fnu:
      return encode_all<u8>(values, out, [](float x) { return numerics::encode_e8m0(x); });
    case DType::float4_e2m1fn_x2: {
      check_even(values.size());
      auto* codes = static_cast<u8*>(out);
      for (std::size_t i = 0; i < values.size(); i += 2)
        codes[i / 2] =
            numerics::pack_e2m1(numerics::encode_e2m1(values[i]), numerics::encode_e2m1(values[i + 1]));
      return;
    }
    default:
      no_conversion(to);
  }
}

void convert(const void* in, DType from, std::span<float> values) {
  switch (from) {
    case DType::float32:
      if (!values.empty()) std::memcpy(values.data(), in, values.size_bytes());
      return;
    case DType::float16:
      return decode_all<std::uint16_t>(in, values, [](std::uint16_t c) { return numerics::decode_fp16(c); });
    case DType::bfloat16:
      return decode_all<std::uint16_t>(in, values, [](std::uint16_t c) { return numerics::decode_bf16(c); });
    case DType::float8_e4m3fn:
      return decode_all<u8>(in, values, [](u8 c) { return numerics::decode_e4m3(c); });
    case DType::float8_e5m2:
      return decode_all<u8>(in, values, [](u8 c) { return numerics::decode_e5m2(c); });
    case DType::float8_e8m0fnu:
      return decode_all<u8>(in, values, [](u8 c) { return numerics::decode_e8m0(c); });
    case DType::float4_e2m1fn_x2: {
      check_even(values.size());
      const auto* codes = static_cast<const u8*>(in);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = numerics::decode_e2m1(numerics::unpack_e2m1(codes[i / 2], static_cast<int>(i % 2)));
      return;
    }
    default:
      no_conversion(from);
  }
}

}  // namespace gemmule
