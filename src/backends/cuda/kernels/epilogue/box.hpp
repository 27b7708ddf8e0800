// A thread's part of a staged box of C or D: 128 rows by 32 columns in shared memory, of which the thread has 8
// neighbouring columns in each of 4 rows (sm90/scaled_fragment.hpp).
//
// Rows are 16 (e2m1), 32 (8-bit), 64 (16-bit) or 128 (f32) bytes without gaps, as TMA copies them; those of f32 have the
// 128-byte swizzle (16-byte pieces permuted by exclusive or with the row modulo 8). Every access of a warp is free of
// bank conflicts.
#pragma once

#include "numerics/formats.hpp"
#include "ptx/convert.hpp"
#include "ptx/shared.hpp"
#include "sm90/scaled_fragment.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

using ptx::F32x2;
using ptx::Shared;
using ptx::U32x2;
using ptx::U32x4;

namespace box {

/// The bytes of 8 neighbouring values: 1, 2, 4 or 8 words.
struct Raw {
  u32 word[8];
};

/// Where a thread's values of row 0 lie in a box.
GEMMULE_DEVICE u32 thread_offset(Format format, u32 thread) {
  const u32 row = fragment::row(thread, 0);
  const u32 t = thread % 4;
  if (format == Format::f32) return row * 128 + ((2 * t ^ row % 8) << 4);
  return row * scaled::box_row_bytes(format) + t * (scaled::box_row_bytes(format) / 4);
}

/// `at`: the box plus thread_offset().
GEMMULE_DEVICE Shared<u8> row_address(Shared<u8> at, Format format, u32 r) {
  return at.bytes(8 * r * scaled::box_row_bytes(format));
}

GEMMULE_DEVICE Raw load_raw(Shared<u8> at, Format format) {
  Raw raw;
  if (bits_of(format) == 8) {
    const U32x2 words = ptx::load(at.as<U32x2>());
    raw.word[0] = words.x;
    raw.word[1] = words.y;
    return raw;
  }
  const U32x4 first = ptx::load(at.as<U32x4>());
  raw.word[0] = first.x;
  raw.word[1] = first.y;
  raw.word[2] = first.z;
  raw.word[3] = first.w;
  if (format != Format::f32) return raw;
  const U32x4 second = ptx::load(Shared<U32x4>{at.address ^ 16});
  raw.word[4] = second.x;
  raw.word[5] = second.y;
  raw.word[6] = second.z;
  raw.word[7] = second.w;
  return raw;
}

/// Values 2 `pair` and the next; of every format but e2m1.
GEMMULE_DEVICE F32x2 decode(const Raw& raw, Format format, u32 pair) {
  if (format == Format::f32)
    return {numerics::float_of(raw.word[2 * pair]), numerics::float_of(raw.word[2 * pair + 1])};
  if (format == Format::bf16) return ptx::unpack_bf16(raw.word[pair]);
  if (format == Format::fp16) return ptx::unpack_fp16(raw.word[pair]);
  const u32 bits = raw.word[pair / 2] >> (pair % 2 * 16);
  return format == Format::e4m3 ? ptx::unpack_e4m3(bits) : ptx::unpack_e5m2(bits);
}

/// Rounds and stores 8 values.
GEMMULE_DEVICE void store(Shared<u8> at, Format format, const float (&v)[8]) {
  using numerics::bits_of;
  if (format == Format::f32) {
    ptx::store(at.as<U32x4>(), U32x4{bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])});
    ptx::store(Shared<U32x4>{at.address ^ 16},
               U32x4{bits_of(v[4]), bits_of(v[5]), bits_of(v[6]), bits_of(v[7])});
  } else if (format == Format::bf16) {
    ptx::store(at.as<U32x4>(), U32x4{ptx::pack_bf16(v[0], v[1]), ptx::pack_bf16(v[2], v[3]),
                                     ptx::pack_bf16(v[4], v[5]), ptx::pack_bf16(v[6], v[7])});
  } else if (format == Format::fp16) {
    ptx::store(at.as<U32x4>(), U32x4{ptx::pack_fp16(v[0], v[1]), ptx::pack_fp16(v[2], v[3]),
                                     ptx::pack_fp16(v[4], v[5]), ptx::pack_fp16(v[6], v[7])});
  } else if (format == Format::e4m3) {
    ptx::store(at.as<U32x2>(),
               U32x2{ptx::pack_e4m3(v[0], v[1], v[2], v[3]), ptx::pack_e4m3(v[4], v[5], v[6], v[7])});
  } else if (format == Format::e5m2) {
    ptx::store(at.as<U32x2>(),
               U32x2{ptx::pack_e5m2(v[0], v[1], v[2], v[3]), ptx::pack_e5m2(v[4], v[5], v[6], v[7])});
  } else {
    u32 codes = 0;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) codes |= static_cast<u32>(numerics::encode_e2m1(v[i])) << (4 * i);
    ptx::store(at.as<u32>(), codes);
  }
}

}  // namespace box

}  // namespace gemmule::kernels
