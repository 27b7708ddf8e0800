// Shared memory of the block-scaled sm_90a kernels, computed alike by host and device.
#pragma once

#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

namespace scaled {

inline constexpr u32 threads = 512;
inline constexpr u32 groups = 2;  ///< math warpgroups, 128 rows of the tile each
inline constexpr u32 warps_per_group = 4;
inline constexpr u32 raw_a_bytes = tile_rows * raw_row_bytes;
inline constexpr u32 raw_b_bytes = tile_n * raw_row_bytes;
inline constexpr u32 expanded_bytes = tile_n * tile_k * 2;
inline constexpr u32 atom_bytes = 512;  ///< scales of 128 rows x 4 blocks
inline constexpr u32 shared_limit = 232448;

/// Expanded tiles of B that a stage becomes, of 64 k each.
GEMMULE_HD constexpr u32 steps_per_stage(const ScaledOptions& options) {
  return raw_tile_k(options.ab) / tile_k;
}
/// Atoms of scales along k that a stage reads: it holds 2, 4 or 8 blocks.
GEMMULE_HD constexpr u32 stage_atoms(const ScaledOptions& options) {
  return raw_tile_k(options.ab) / options.vec > 4 ? 2 : 1;
}
/// Scales of A's two row tiles, then of B.
GEMMULE_HD constexpr u32 stage_scale_bytes(const ScaledOptions& options) {
  return (groups + 1) * stage_atoms(options) * atom_bytes;
}
GEMMULE_HD constexpr u32 stage_bytes(const ScaledOptions& options) {
  return raw_a_bytes + raw_b_bytes + stage_scale_bytes(options);
}

}  // namespace scaled

/// Byte offsets; raw A is at 0. What belongs to the epilogue is there once per math warpgroup, group_bytes apart.
struct ScaledLayout {
  u32 stages = 0;         ///< ring of raw A, raw B and their scales
  u32 b_buffers = 0;      ///< ring of expanded B
  u32 chunk_buffers = 0;  ///< of chunks of C and D per warpgroup (dGLU: of C)
  u32 b = 0, expanded = 0, scales = 0;
  u32 c = 0, d = 0, d_col = 0;  ///< of warpgroup 0; each has chunk_buffers chunks
  u32 c_chunk = 0, d_chunk = 0;
  u32 atoms = 0;                         ///< of warpgroup 0: scale atoms of D, along rows and along columns
  u32 scratch = 0;                       ///< of warpgroup 0: 4 warps x 64 floats
  u32 box_stride = 0, small_stride = 0;  ///< between the warpgroups: of c, d, d_col; of atoms, scratch, sums
  u32 tiles = 0, barriers = 0;
  u32 bytes = 0;
};

/// Places the main loop around the epilogue's memory, box_stride + small_stride per warpgroup: as many stages as fit.
GEMMULE_HD constexpr void place_mainloop(ScaledLayout& l, const ScaledOptions& options) {
  const u32 fixed = scaled::groups * (l.box_stride + l.small_stride) + 4 * 16 + 512;
  const u32 stage = scaled::stage_bytes(options);
  // A third tile of expanded B lets the expanding warps run further ahead, with FP8 publish late too, but not at the price of the
  // stages it comes from.
  const u32 enough = options.ab == Format::e2m1 ? 2 : 3;
  l.b_buffers = scaled::shared_limit >= fixed + 3 * scaled::expanded_bytes + enough * stage ? 3 : 2;
  l.stages = (scaled::shared_limit - fixed - l.b_buffers * scaled::expanded_bytes) / stage;
  if (l.stages > 6) l.stages = 6;
  l.b = l.stages * scaled::raw_a_bytes;
  l.expanded = l.b + l.stages * scaled::raw_b_bytes;
  l.c = l.expanded + l.b_buffers * scaled::expanded_bytes;
  l.scales = l.c + scaled::groups * l.box_stride;
  l.atoms = l.scales + l.stages * scaled::stage_scale_bytes(options);
  l.tiles = l.atoms + scaled::groups * l.small_stride;
  l.barriers = l.tiles + 4 * 16;
  l.bytes = l.barriers + 512;
}

/// Of the sReLU kernel.
GEMMULE_HD constexpr ScaledLayout scaled_layout(const ScaledOptions& options) {
  ScaledLayout l;
  l.c_chunk = scaled::box_bytes(options.c);
  l.d_chunk = scaled::box_bytes(options.d);
  const u32 chunk = l.c_chunk + (options.quantize ? 2 : 1) * l.d_chunk;
  l.chunk_buffers = 2 * chunk <= 32768 ? 2 : 1;
  l.box_stride = l.chunk_buffers * chunk;
  const u32 atoms = options.quantize ? 2 * scaled::atom_bytes : 0;
  l.small_stride = atoms + (options.quantize ? scaled::warps_per_group * scaled::quantize_scratch * 4 : 0);
  place_mainloop(l, options);
  l.d = l.c + l.chunk_buffers * l.c_chunk;
  l.d_col = l.d + l.chunk_buffers * l.d_chunk;
  l.scratch = l.atoms + atoms;
  return l;
}

/// Position in a ring whose size is a constant of the layout.
struct ScaledRing {
  u32 index = 0;
  u32 parity = 0;
  GEMMULE_HD static constexpr ScaledRing after(u32 count, u32 size) {
    return {count % size, count / size % 2};
  }
  GEMMULE_HD constexpr void advance(u32 size) {
    index += 1;
    if (index == size) {
      index = 0;
      parity ^= 1;
    }
  }
};

}  // namespace gemmule::kernels
