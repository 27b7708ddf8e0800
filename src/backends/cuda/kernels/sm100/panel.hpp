// Panels: 32 columns of 128 rows of C or D in shared memory, one row per thread of a warpgroup.
//
// A row has 16 (e2m1), 32 (8-bit), 64 (16-bit) or 128 bytes (f32) without gaps, with the swizzle of that span: 16-byte
// pieces permuted by exclusive or with bits 7.. of the address. Eight neighbouring threads that access the same piece of
// their rows then touch all banks once.
#pragma once

#include "numerics/formats.hpp"
#include "ptx/convert.hpp"
#include "ptx/convert_sm100.hpp"
#include "ptx/identity.hpp"
#include "ptx/shared.hpp"
#include "ptx/warp.hpp"
#include "sm100/layout.hpp"

namespace gemmule::kernels {

using ptx::F32x2;
using ptx::Shared;
using ptx::U32x4;

namespace panel {

/// 32 values of a row.
struct Values {
  float at[columns];
};

/// Where a row's pieces lie; `panel` is a multiple of 1024.
struct Row {
  u32 address;  ///< of piece 0; piece i: exclusive or with 16 i

  GEMMULE_DEVICE static Row of(Shared<u8> panel, Format format, u32 row) {
    const u32 start = panel.address + row * row_bytes(format);
    return {start ^ (start >> 7 & (row_bytes(format) / 16 - 1)) << 4};
  }
  GEMMULE_DEVICE Shared<U32x4> piece(u32 index) const { return {address ^ index << 4}; }
};

GEMMULE_DEVICE void decode_word(Format format, u32 word, float* to) {
  if (format == Format::f32) {
    to[0] = numerics::float_of(word);
    return;
  }
  if (format == Format::bf16 || format == Format::fp16) {
    const F32x2 pair = format == Format::bf16 ? ptx::unpack_bf16(word) : ptx::unpack_fp16(word);
    to[0] = pair.x;
    to[1] = pair.y;
    return;
  }
  const F32x2 low = format == Format::e4m3 ? ptx::unpack_e4m3(word) : ptx::unpack_e5m2(word);
  const F32x2 high = format == Format::e4m3 ? ptx::unpack_e4m3(word >> 16) : ptx::unpack_e5m2(word >> 16);
  to[0] = low.x;
  to[1] = low.y;
  to[2] = high.x;
  to[3] = high.y;
}

/// Every format but e2m1.
GEMMULE_DEVICE void load(Shared<u8> panel, Format format, u32 row, Values& v) {
  const Row from = Row::of(panel, format, row);
  const u32 per_word = 32 / bits_of(format);
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    if (i >= row_bytes(format) / 16) break;
    const U32x4 piece = ptx::load(from.piece(i));
    const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (u32 j = 0; j < 4; ++j) decode_word(format, words[j], v.at + (4 * i + j) * per_word);
  }
}

/// The word that holds values v[0], v[1], ... of a row.
GEMMULE_DEVICE u32 encode_word(Format format, const float* v) {
  switch (format) {
    case Format::f32:
      return numerics::bits_of(v[0]);
    case Format::bf16:
      return ptx::pack_bf16(v[0], v[1]);
    case Format::fp16:
      return ptx::pack_fp16(v[0], v[1]);
    case Format::e4m3:
      return ptx::pack_e4m3(v[0], v[1], v[2], v[3]);
    case Format::e5m2:
      return ptx::pack_e5m2(v[0], v[1], v[2], v[3]);
    case Format::e2m1:
      break;
  }
  return ptx::pack_e2m1(v[0], v[1]) | ptx::pack_e2m1(v[2], v[3]) << 8 | ptx::pack_e2m1(v[4], v[5]) << 16 |
         ptx::pack_e2m1(v[6], v[7]) << 24;
}

/// Rounds and stores a row.
GEMMULE_DEVICE void store(Shared<u8> panel, Format format, u32 row, const Values& v) {
  const Row to = Row::of(panel, format, row);
  const u32 per_word = 32 / bits_of(format);
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    if (i >= row_bytes(format) / 16) break;
    const float* from = v.at + 4 * i * per_word;
    ptx::store(to.piece(i),
               U32x4{encode_word(format, from), encode_word(format, from + per_word),
                     encode_word(format, from + 2 * per_word), encode_word(format, from + 3 * per_word)});
  }
}

}  // namespace panel

/// Joins, over the 32 lanes of a warp, value i of every lane: lane i returns the result. `join` is commutative; the order
/// is fixed. 31 shuffles.
template <class Join>
GEMMULE_DEVICE float join_lanes(const panel::Values& v, const Join& join) {
  const u32 lane = ptx::lane_index();
  float value[32];
#pragma unroll
  for (u32 i = 0; i < 32; ++i) value[i] = v.at[i];
#pragma unroll
  for (u32 half = 16; half != 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (u32 i = 0; i < half; ++i) {
      const float received = ptx::shuffle_xor(upper ? value[i] : value[i + half], half);
      value[i] = join(upper ? value[i + half] : value[i], received);
    }
  }
  return value[0];
}

}  // namespace gemmule::kernels
