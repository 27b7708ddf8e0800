// Shared memory of the block-scaled dGLU kernel, computed alike by host and device.
#pragma once

#include "sm90/scaled_layout.hpp"

namespace gemmule::kernels {

namespace scaled {

/// Floats of each warp, with `quantize`: for the gate and for the input, or in turn where the room would cost a stage.
GEMMULE_HD constexpr u32 dglu_scratch(const ScaledOptions& options) {
  return (options.has_amax ? 1 : 2) * quantize_scratch;
}
/// Sums of the 64 columns of a chunk by each warp.
inline constexpr u32 column_sum_bytes = warps_per_group * 64 * 4;
/// Most bytes of one math warpgroup's epilogue: what leaves room for three stages of the main loop.
inline constexpr u32 dglu_staging_limit = 58 * 1024;

}  // namespace scaled

/// Shared memory of one math warpgroup's epilogue: byte offsets from a start aligned to 1024.
struct ScaledDgluStaging {
  u32 c_buffers = 0;
  u32 c_bytes = 0;  ///< of a chunk of C
  u32 stride = 0;   ///< between the buffers of C
  u32 d = 0, atoms = 0, scratch = 0, column_sums = 0, prob = 0, sums = 0, tile = 0;
  u32 bytes = 0;  ///< a multiple of 1024
  bool in_place =
      false;  ///< D is written where C was: by the thread that has read it, with quantize after all threads have
};

/// Two buffers of C if `available` bytes allow, else one; 0 if none fits. D is in place where its values have the size of C's
/// and, with quantize, where two buffers are enough for C or D with D_col.
GEMMULE_HD constexpr ScaledDgluStaging scaled_dglu_staging(const ScaledDgluOptions& options, u32 available) {
  const ScaledOptions& o = options.common;
  ScaledDgluStaging s;
  s.c_bytes = 2 * scaled::box_bytes(o.c);
  const u32 d_bytes = 2 * scaled::box_bytes(o.d) * (o.quantize ? 2 : 1);
  const u32 larger = s.c_bytes > d_bytes ? s.c_bytes : d_bytes;
  const u32 atoms = o.quantize ? 4 * scaled::atom_bytes : 0;
  const u32 scratch = o.quantize ? scaled::warps_per_group * scaled::dglu_scratch(o) * 4 : 0;
  const u32 column_sums = options.has_dbias ? 2 * scaled::column_sum_bytes : 0;
  const u32 prob = scaled::box_rows * 4, tile = scaled::warps_per_group * 32;
  const u32 sums = ((options.has_dprob ? 1 : 0) + (o.has_amax ? 2 : 0)) * scaled::box_rows * 4;
  const u32 small = atoms + scratch + column_sums + prob + sums + tile;
  s.in_place = o.quantize ? 2 * larger + small <= available : bits_of(o.c) == bits_of(o.d);
  s.stride = s.in_place ? larger : s.c_bytes;
  const u32 own_d = s.in_place ? 0 : d_bytes;
  while (s.c_buffers < 2 && (s.c_buffers + 1) * s.stride + own_d + small <= available) s.c_buffers += 1;
  s.d = s.c_buffers * s.stride;
  s.atoms = s.d + own_d;
  s.scratch = s.atoms + atoms;
  s.column_sums = s.scratch + scratch;
  s.prob = s.column_sums + column_sums;
  s.sums = s.prob + prob;
  s.tile = s.sums + sums;
  s.bytes = (s.tile + tile + 1023) / 1024 * 1024;
  return s;
}

/// chunk_buffers: of C; box_stride: of the staging.
GEMMULE_HD constexpr ScaledLayout scaled_dglu_layout(const ScaledDgluOptions& options) {
  const ScaledDgluStaging staging = scaled_dglu_staging(options, scaled::dglu_staging_limit);
  ScaledLayout l;
  l.chunk_buffers = staging.c_buffers;
  l.box_stride = staging.bytes;
  place_mainloop(l, options.common);
  return l;
}

}  // namespace gemmule::kernels
