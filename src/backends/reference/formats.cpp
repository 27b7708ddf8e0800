#include "backends/reference/formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace gemmule::reference {
namespace {

/// How the codes with the largest exponent field are used.
enum class Specials { ieee, only_nan, none };

struct Format {
  int bits, mantissa, bias;
  Specials specials;
  int min_exponent() const { return 1 - bias; }
};

Format format_of(DType type) {
  switch (type) {
    case DType::float32:
      return {32, 23, 127, Specials::ieee};
    case DType::float16:
      return {16, 10, 15, Specials::ieee};
    case DType::bfloat16:
      return {16, 7, 127, Specials::ieee};
    case DType::float8_e5m2:
      return {8, 2, 15, Specials::ieee};
    case DType::float8_e4m3fn:
      return {8, 3, 7, Specials::only_nan};
    case DType::float4_e2m1fn_x2:
      return {4, 1, 1, Specials::none};
    default:
      throw InvalidArgument(std::string(name(type)) + " is not a floating-point element type");
  }
}

double decode_generic(const Format& f, std::uint32_t code) {
  const std::uint32_t sign = code >> (f.bits - 1);
  const std::uint32_t exponent_ones = (1u << (f.bits - 1 - f.mantissa)) - 1;
  const std::uint32_t exponent = (code >> f.mantissa) & exponent_ones;
  const std::uint32_t fraction = code & ((1u << f.mantissa) - 1);
  const std::uint32_t fraction_ones = (1u << f.mantissa) - 1;
  double magnitude;
  if (f.specials == Specials::ieee && exponent == exponent_ones)
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (f.specials == Specials::only_nan && exponent == exponent_ones && fraction == fraction_ones)
    magnitude = std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, f.min_exponent() - f.mantissa);
  else
    magnitude = std::ldexp((1u << f.mantissa) + fraction, static_cast<int>(exponent) - f.bias - f.mantissa);
  return sign ? -magnitude : magnitude;
}

std::array<double, 256> make_table(DType type) {
  std::array<double, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    if (type == DType::float8_e8m0fnu)
      table[code] = code == 0xFF ? std::numeric_limits<double>::quiet_NaN()
                                 : std::ldexp(1.0, static_cast<int>(code) - 127);
    else
      table[code] = decode_generic(format_of(type), type == DType::float4_e2m1fn_x2 ? code & 15 : code);
  }
  return table;
}

}  // namespace

int bits_of(DType type) {
  return type == DType::float8_e8m0fnu ? 8 : format_of(type).bits;
}

bool saturates(DType type) {
  return bits_of(type) <= 8;
}

double max_finite(DType type) {
  const Format f = format_of(type);
  std::uint32_t largest = (1u << (f.bits - 1)) - 1;
  if (f.specials == Specials::only_nan) largest -= 1;
  if (f.specials == Specials::ieee) largest -= 1u << f.mantissa;
  return decode_generic(f, largest);
}

double half_ulp(DType type, double magnitude) {
  const Format f = format_of(type);
  const double limit = std::min(magnitude, max_finite(type));
  const int exponent = limit > 0 ? std::max(std::ilogb(limit), f.min_exponent()) : f.min_exponent();
  return std::ldexp(0.5, exponent - f.mantissa);
}

double decode(DType type, std::uint32_t code) {
  static const std::array<double, 256> e4m3 = make_table(DType::float8_e4m3fn);
  static const std::array<double, 256> e5m2 = make_table(DType::float8_e5m2);
  static const std::array<double, 256> e2m1 = make_table(DType::float4_e2m1fn_x2);
  static const std::array<double, 256> e8m0 = make_table(DType::float8_e8m0fnu);
  switch (type) {
    case DType::float8_e4m3fn:
      return e4m3[code];
    case DType::float8_e5m2:
      return e5m2[code];
    case DType::float4_e2m1fn_x2:
      return e2m1[code];
    case DType::float8_e8m0fnu:
      return e8m0[code];
    default:
      return decode_generic(format_of(type), code);
  }
}

std::uint32_t encode(DType type, float value) {
  if (type == DType::float32) return std::bit_cast<std::uint32_t>(value);
  const Format f = format_of(type);
  const std::uint32_t sign = std::signbit(value) ? 1u << (f.bits - 1) : 0u;
  const std::uint32_t largest = (1u << (f.bits - 1)) - 1;  // every exponent and fraction bit set
  if (std::isnan(value)) return largest;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  const std::uint32_t top = largest - (f.specials == Specials::only_nan ? 1u
                                       : f.specials == Specials::ieee   ? 1u << f.mantissa
                                                                        : 0u);
  const std::uint32_t overflow = saturates(type) ? top : top + 1;
  if (std::isinf(magnitude)) return sign | overflow;
  const int exponent = std::max(std::ilogb(magnitude), f.min_exponent());
  const double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent));  // ties to even
  // A carry into the next binade adds 1 to the exponent field, and `steps` below 2^mantissa is a subnormal code.
  const double code = std::ldexp(exponent - f.min_exponent(), f.mantissa) + steps;
  return sign | (code > top ? overflow : static_cast<std::uint32_t>(code));
}

std::uint8_t encode_e8m0_up(float value) {
  if (std::isnan(value)) return 0xFF;
  if (std::isinf(value)) return 0xFE;
  if (value == 0) return 0x00;
  int exponent;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);  // value = fraction * 2^exponent
  if (fraction == 0.5) exponent -= 1;
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 254));
}

std::uint32_t load_code(const void* data, DType type, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  switch (bits_of(type)) {
    case 4:
      return (bytes[index / 2] >> (index % 2 * 4)) & 15u;
    case 8:
      return bytes[index];
    case 16: {
      std::uint16_t code;
      std::memcpy(&code, bytes + 2 * index, 2);
      return code;
    }
    default: {
      std::uint32_t code;
      std::memcpy(&code, bytes + 4 * index, 4);
      return code;
    }
  }
}

double load(const void* data, DType type, std::int64_t index) {
  const std::uint32_t code = load_code(data, type, index);
  return type == DType::float32 ? static_cast<double>(std::bit_cast<float>(code)) : decode(type, code);
}

void store(void* data, DType type, std::int64_t index, float value) {
  auto* bytes = static_cast<unsigned char*>(data);
  const std::uint32_t code = encode(type, value);
  switch (bits_of(type)) {
    case 4: {
      unsigned char& byte = bytes[index / 2];
      const unsigned shift = index % 2 * 4;
      byte = static_cast<unsigned char>((byte & ~(15u << shift)) | (code << shift));
      return;
    }
    case 8:
      bytes[index] = static_cast<unsigned char>(code);
      return;
    case 16:
      std::memcpy(bytes + 2 * index, &code, 2);
      return;
    default:
      std::memcpy(bytes + 4 * index, &code, 4);
      return;
  }
}

}  // namespace gemmule::reference
