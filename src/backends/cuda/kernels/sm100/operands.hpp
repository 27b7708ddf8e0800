// What the main loop of the sm_100 kernels multiplies, and what one stage of its ring holds. Plain C++, shared by host
// and device.
#pragma once

#include "ptx/tensor_map.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

/// A stage is 128 bytes of every row: four instructions of 32 bytes.
struct OperandOptions {
  Format ab = Format::bf16;  ///< bf16: no scales
  ScaleFormat scale = ScaleFormat::e8m0;
  u32 vec = 0;             ///< values per scale, 0: no scales
  bool discrete = false;   ///< B's tensor maps (and its scales') are in b_maps (and sfb_maps)
  bool b_n_major = false;  ///< B is [K][N] in memory (not for e2m1)

  GEMMULE_HD constexpr u32 stage_k() const { return 1024 / bits_of(ab); }
  GEMMULE_HD constexpr u32 slice_k() const { return 256 / bits_of(ab); }
  /// Of a tensor map: packed 4-bit values are counted as bytes.
  GEMMULE_HD constexpr u32 values_per_element() const { return ab == Format::e2m1 ? 2 : 1; }
  /// Atoms of 128 rows x 4 scales along the k of a stage.
  GEMMULE_HD constexpr u32 stage_atoms() const { return vec == 0 ? 0 : stage_k() / vec / 4; }
  /// Columns of B in one span of the swizzle when B is n-major.
  GEMMULE_HD constexpr u32 span_columns() const { return 1024 / bits_of(ab); }
  /// Scales of one instruction's k per row.
  GEMMULE_HD constexpr u32 slice_scales() const { return slice_k() / vec; }
};

/// Tensor maps of the operands. With discrete weights b and sfb are arrays, one map per expert.
struct OperandMaps {
  const ptx::TensorMap* a = nullptr;  ///< [M][K], box a_slice_rows(width) rows x 128 bytes
  /// [L][N][K], box tile_n / ctas rows x 128 bytes; n-major: [L][K][N], box stage_k rows x 128 bytes
  const ptx::TensorMap* b = nullptr;
  /// Pairs of scales as 16-bit values, [ceil(M / 128)][atoms][256], box 1 x (1 / width of stage_atoms x 256)
  const ptx::TensorMap* sfa = nullptr;
  /// [L ceil(N / 128)][atoms][256], box b_scale_rows(tile_n) x stage_atoms x 256
  const ptx::TensorMap* sfb = nullptr;
};

// In a cluster of `width` tiles side by side each CTA loads 1 / width of the rows of A, a multiple of eight (the swizzle's
// period), and of the scales of a stage, which are contiguous: some atoms, or a part of one.

GEMMULE_HD constexpr u32 a_slice_rows(u32 width) {
  return 128 / width;
}
/// 128-row atoms that the scales of tile_n rows of B touch. A tile starts at a multiple of 64 rows.
GEMMULE_HD constexpr u32 b_scale_rows(u32 tile_n) {
  return tile_n % 128 == 0 ? tile_n / 128 : tile_n / 128 + 1;
}

/// Shared memory of the main loop, at the start of the CTA's.
struct OperandLayout {
  u32 a_bytes = 0, b_bytes = 0, sfa_bytes = 0, sfb_bytes = 0;  ///< of one stage
  u32 b = 0, scales = 0, tail = 0, end = 0;                    ///< byte offsets; A is at 0

  GEMMULE_HD constexpr u32 scale_bytes() const { return sfa_bytes + sfb_bytes; }
  GEMMULE_HD constexpr u32 stage_bytes() const { return a_bytes + b_bytes + scale_bytes(); }
};

GEMMULE_HD constexpr OperandLayout operand_layout(const OperandOptions& options, u32 tile_n, u32 stages,
                                                  u32 ctas) {
  OperandLayout l;
  l.a_bytes = 128 * 128;
  l.b_bytes = tile_n / ctas * 128;
  l.sfa_bytes = options.stage_atoms() * 512;
  l.sfb_bytes = b_scale_rows(tile_n) * options.stage_atoms() * 512;
  l.b = stages * l.a_bytes;
  l.scales = l.b + stages * l.b_bytes;
  l.tail = l.scales + stages * l.scale_bytes();
  l.end = l.tail + (options.ab == Format::e2m1 ? l.scale_bytes() : 0);
  return l;
}

/// Where one CTA's part of a stage's scales of A starts.
struct ScaleSlice {
  u32 offset;      ///< in shared memory, bytes
  u32 pair, atom;  ///< in the tensor map, from the stage's first
};
GEMMULE_HD constexpr ScaleSlice sfa_slice(const OperandLayout& layout, u32 width, u32 index) {
  constexpr u32 atom_bytes = static_cast<u32>(layout::atom_bytes);
  const u32 offset = layout.sfa_bytes / width * index;
  return {offset, offset % atom_bytes / 2, offset / atom_bytes};
}

}  // namespace gemmule::kernels
