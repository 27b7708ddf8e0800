#include "backends/cuda/tensor_map.hpp"

#include "backends/cuda/driver.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

std::string dimension(const char* field, int i, std::uint64_t value, const std::string& rule) {
  return std::string(field) + "[" + std::to_string(i) + "] is " + std::to_string(value) + ", must be " + rule;
}

std::uint64_t swizzle_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 0 : 16u << static_cast<int>(swizzle);
}

bool is_float(Element element) {
  return element == Element::f16 || element == Element::f32 || element == Element::bf16;
}

std::string illegal_memory(const TensorMap& map) {
  const bool gaps = map.element == Element::u4_align16;
  const std::uint64_t alignment = gaps ? 32 : 16;
  if (map.base == 0 || map.base % alignment != 0)
    return "base is " + std::to_string(map.base) + ", must be a multiple of " + std::to_string(alignment) +
           " and not null";
  for (int i = 0; i < map.rank; ++i)
    if (map.extent[i] == 0 || map.extent[i] > std::uint64_t{1} << 32)
      return dimension("extent", i, map.extent[i], "1 to 2^32");
  if (gaps && map.extent[0] % 128 != 0)
    return dimension("extent", 0, map.extent[0], "a multiple of 128 for u4_align16");
  if (map.element == Element::u4_align8 && map.extent[0] % 2 != 0)
    return dimension("extent", 0, map.extent[0], "even for u4_align8");
  for (int i = 0; i + 1 < map.rank; ++i)
    if (map.stride[i] % alignment != 0 || map.stride[i] >= std::uint64_t{1} << 40)
      return dimension("stride", i, map.stride[i],
                       "a multiple of " + std::to_string(alignment) + " below 2^40");
  return {};
}

std::string illegal_box(const TensorMap& map) {
  for (int i = 0; i < map.rank; ++i)
    if (map.box[i] == 0 || map.box[i] > 256) return dimension("box", i, map.box[i], "1 to 256");
  if (map.element == Element::u4_align16 && map.box[0] != 128)
    return dimension("box", 0, map.box[0], "128 for u4_align16");
  const std::uint64_t bits = std::uint64_t{map.box[0]} * static_cast<unsigned>(element_bits(map.element));
  if (bits % 128 != 0) return dimension("box", 0, map.box[0], "a multiple of 16 bytes");
  // In shared memory u4_align16 takes a byte per value.
  const std::uint64_t inner = map.element == Element::u4_align16 ? map.box[0] : bits / 8;
  if (map.swizzle != Swizzle::none && inner > swizzle_bytes(map.swizzle))
    return dimension(
        "box", 0, map.box[0],
        "at most " + std::to_string(swizzle_bytes(map.swizzle)) + " bytes, the span of the swizzle");
  if (map.element == Element::u4_align16 && map.swizzle != Swizzle::none && map.swizzle != Swizzle::b128)
    return "swizzle of u4_align16 must be none or b128";
  return {};
}

}  // namespace

int element_bits(Element element) noexcept {
  switch (element) {
    case Element::u4_align8:
    case Element::u4_align16:
      return 4;
    case Element::u8:
      return 8;
    case Element::u16:
    case Element::f16:
    case Element::bf16:
      return 16;
    case Element::u32:
    case Element::i32:
    case Element::f32:
      return 32;
    case Element::u64:
    case Element::i64:
      return 64;
  }
  return 0;
}

std::string illegal(const TensorMap& map) {
  if (element_bits(map.element) == 0) return "element is no element type";
  if (map.rank < 1 || map.rank > TensorMap::max_rank)
    return "rank is " + std::to_string(map.rank) + ", must be 1 to 5";
  if (std::string rule = illegal_memory(map); !rule.empty()) return rule;
  if (std::string rule = illegal_box(map); !rule.empty()) return rule;
  if (map.fill == Fill::nan && !is_float(map.element))
    return "fill is nan, which needs a floating-point element";
  return {};
}

EncodedTensorMap encode(const TensorMap& map) {
  if (const std::string rule = illegal(map); !rule.empty()) throw InvalidArgument("tensor map: " + rule);
  static constexpr unsigned unit_strides[TensorMap::max_rank] = {1, 1, 1, 1, 1};
  EncodedTensorMap encoded;
  check(driver().cuTensorMapEncodeTiled(&encoded, static_cast<int>(map.element),
                                        static_cast<unsigned>(map.rank), reinterpret_cast<void*>(map.base),
                                        map.extent, map.stride, map.box, unit_strides, /*interleave=*/0,
                                        static_cast<int>(map.swizzle), static_cast<int>(map.promotion),
                                        static_cast<int>(map.fill)),
        "cuTensorMapEncodeTiled");
  return encoded;
}

}  // namespace gemmule::cuda
