// Description of one TMA tensor map: a plain struct that the driver encodes for the device and that the host model
// reads as it is. The encoder's limits are checked here, with messages; a device test proves that the driver agrees.
#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/abi.hpp"

namespace gemmule::cuda {

/// What one element of the box is. Values are CUtensorMapDataType's. FP8 and packed FP4 bytes are u8.
/// u4_align8 and u4_align16 count 4-bit values: 16 values fill 8 bytes of shared memory, or 16 with a gap of 8.
enum class Element : std::uint8_t {
  u8 = 0,
  u16 = 1,
  u32 = 2,
  i32 = 3,
  u64 = 4,
  i64 = 5,
  f16 = 6,
  f32 = 7,
  bf16 = 9,
  u4_align8 = 13,
  u4_align16 = 14,
};

/// 16-byte chunks are permuted within spans of this many bytes. Values are CUtensorMapSwizzle's.
enum class Swizzle : std::uint8_t { none = 0, b32 = 1, b64 = 2, b128 = 3 };

/// Granularity of L2 fetches. Values are CUtensorMapL2promotion's.
enum class L2Promotion : std::uint8_t { none = 0, b64 = 1, b128 = 2, b256 = 3 };

/// What out-of-bounds elements read as. Values are CUtensorMapFloatOOBfill's.
enum class Fill : std::uint8_t { zero = 0, nan = 1 };

struct TensorMap {
  static constexpr int max_rank = 5;

  std::uint64_t base = 0;  ///< device address of element (0, 0, ...)
  Element element = Element::u8;
  int rank = 0;
  std::uint64_t extent[max_rank] = {};      ///< elements, innermost dimension first
  std::uint64_t stride[max_rank - 1] = {};  ///< bytes between neighbours in dimension i + 1
  std::uint32_t box[max_rank] = {};         ///< elements copied at once
  Swizzle swizzle = Swizzle::none;
  L2Promotion promotion = L2Promotion::b128;
  Fill fill = Fill::zero;

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

/// Bits of one element in global memory.
int element_bits(Element element) noexcept;

/// The first rule of the encoder that `map` breaks, with the offending value; empty when there is none.
std::string illegal(const TensorMap& map);

/// Encodes `map` with the driver. Throws InvalidArgument when illegal(map), RuntimeFailure when the driver refuses.
EncodedTensorMap encode(const TensorMap& map);

}  // namespace gemmule::cuda
