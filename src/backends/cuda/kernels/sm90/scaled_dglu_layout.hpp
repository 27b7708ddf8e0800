// Shared memory of the block-scaled dGLU kernel, computed alike by host and device.
#pragma once

#include "sm90/scaled_layout.hpp"

namespace gemmule::kernels {

namespace scaled {

/// Sums of the 64 columns of a chunk by each warp.
inline constexpr u32 column_sum_bytes = warps_per_group * 64 * 4;
/// Accumulators of each thread that wait in shared memory.
inline constexpr u32 dglu_parked = 8;
/// Most bytes of one math warpgroup's epilogue: what leaves room for three stages of the main loop.
inline constexpr u32 dglu_staging_limit = 58 * 1024;

}  // namespace scaled

/// Shared memory of one math warpgroup's epilogue: byte offsets from a start aligned to 1024.
struct ScaledDgluStaging {
  u32 c_buffers = 0;
  u32 c_bytes = 0, d_bytes = 0;  ///< of a chunk
  u32 d = 0, atoms = 0, scratch = 0, column_sums = 0, prob = 0, tile = 0, parked = 0;
  u32 bytes = 0;          ///< a multiple of 1024
  bool in_place = false;  ///< D is written over the C that a thread has read
};

/// As many buffers of C as `available` bytes allow, 4 at most; 0 if none fits.
GEMMULE_HD constexpr ScaledDgluStaging scaled_dglu_staging(const ScaledDgluOptions& options, u32 available) {
  const ScaledOptions& o = options.common;
  ScaledDgluStaging s;
  s.in_place = !o.quantize && bits_of(o.c) == bits_of(o.d);
  s.c_bytes = 2 * scaled::box_bytes(o.c);
  s.d_bytes = s.in_place ? 0 : 2 * scaled::box_bytes(o.d) * (o.quantize ? 2 : 1);
  const u32 atoms = o.quantize ? 4 * scaled::atom_bytes : 0;
  const u32 scratch = o.quantize ? scaled::warps_per_group * scaled::quantize_scratch * 4 : 0;
  const u32 sums = options.has_dbias ? 2 * scaled::column_sum_bytes : 0;
  const u32 prob = scaled::box_rows * 4, tile = scaled::warps_per_group * 32;
  const u32 parked = scaled::dglu_parked * scaled::box_rows * 4;
  const u32 rest = s.d_bytes + atoms + scratch + sums + prob + tile + parked;
  const u32 wanted = s.in_place ? 4 : 2;
  while (s.c_buffers < wanted && (s.c_buffers + 1) * s.c_bytes + rest <= available) s.c_buffers += 1;
  s.d = s.c_buffers * s.c_bytes;
  s.atoms = s.d + s.d_bytes;
  s.scratch = s.atoms + atoms;
  s.column_sums = s.scratch + scratch;
  s.prob = s.column_sums + sums;
  s.tile = s.prob + prob;
  s.parked = s.tile + tile;
  s.bytes = (s.parked + parked + 1023) / 1024 * 1024;
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
