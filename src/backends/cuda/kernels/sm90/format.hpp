// Element formats of a kernel's tensors. Plain C++, shared by host and device.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::kernels {

using numerics::i32;
using numerics::i64;
using numerics::u16;
using numerics::u32;
using numerics::u64;
using numerics::u8;

enum class Format : u8 { bf16, fp16, f32, e4m3, e5m2, e2m1 };

GEMMULE_HD constexpr u32 bits_of(Format format) {
  return format == Format::f32 ? 32 : format <= Format::fp16 ? 16 : format == Format::e2m1 ? 4 : 8;
}

/// Of a column in a tensor map, where two e2m1 values are one byte.
GEMMULE_HD constexpr i32 coordinate(Format format, u32 column) {
  return static_cast<i32>(format == Format::e2m1 ? column / 2 : column);
}

/// Of a format of whole bytes.
GEMMULE_HD constexpr u32 bytes_of(Format format) {
  return bits_of(format) / 8;
}

}  // namespace gemmule::kernels
