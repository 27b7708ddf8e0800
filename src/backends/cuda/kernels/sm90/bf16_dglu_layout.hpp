// Shared memory of the sm90_bf16_dglu kernel, computed alike by host and device.
#pragma once

#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::kernels {

struct DgluLayout {
  u32 stages = 0;
  u32 c_buffers = 0;
  // Byte offsets; A is at 0.
  u32 b = 0, c = 0, d = 0, column_sums = 0, tiles = 0, barriers = 0;
  u32 bytes = 0;
};

/// A, B, C and D first: their boxes need 1024-byte alignment for the 128-byte swizzle.
GEMMULE_HD constexpr DgluLayout dglu_layout(const DgluOptions& options, u32 tile_n, u32 stages) {
  const u32 c_chunk = 128 * 64 * bytes_of(options.c);
  const u32 d_chunk = 128 * 64 * bytes_of(options.d);
  DgluLayout l;
  l.stages = stages;
  l.c_buffers = options.in_place() && options.c != Format::f32 ? 4 : 2;
  l.b = stages * 128 * 64 * 2;
  l.c = l.b + stages * tile_n * 64 * 2;
  l.d = l.c + l.c_buffers * c_chunk;
  l.column_sums = l.d + (options.in_place() ? 0 : 2 * d_chunk);
  l.tiles = l.column_sums + (options.has_dbias ? 2 * 4 * 64 * 4 : 0);
  l.barriers = l.tiles + 4 * 16;
  l.bytes = l.barriers + (2 * stages + 2 * l.c_buffers + 4 + 2 * 4) * 8;
  return l;
}

}  // namespace gemmule::kernels
