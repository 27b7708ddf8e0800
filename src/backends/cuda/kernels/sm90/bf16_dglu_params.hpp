// What the host tells the sm90_bf16_dglu kernels. Plain C++, shared by host and device.
#pragma once

#include "numerics/activation.hpp"
#include "ptx/tensor_map.hpp"
#include "sm90/format.hpp"

namespace gemmule::kernels {

enum class Activation : u8 { dswiglu, dgeglu };

/// Constants of one specialization on the device, values of one call on the host model.
struct DgluOptions {
  Format c = Format::bf16;
  Format d = Format::bf16;
  Activation activation = Activation::dswiglu;
  numerics::GegluParams geglu{};
  bool discrete = false;       ///< B's tensor maps are in DgluParams::b_maps
  bool b_n_major = false;      ///< B is [K][N] in memory
  bool has_dprob = false;      ///< dprob is wanted
  bool has_dbias = false;      ///< column sums are wanted
  bool deterministic = false;  ///< dprob through per-tile sums instead of atomic additions
  bool dynamic = false;        ///< tiles from a global counter instead of a fixed stride

  /// C and D chunks have the same size: D overwrites C in shared memory.
  GEMMULE_HD constexpr bool in_place() const { return bytes_of(c) == bytes_of(d); }
};

struct DgluParams {
  ptx::TensorMap a;  ///< [M][K], box 128 x 64
  ptx::TensorMap b;  ///< [L][N][K], box tile_n / cluster x 64; n-major: [L][K][N], box 64 / cluster x 64
  ptx::TensorMap c;  ///< [M][2N], box 128 x 128 bytes
  ptx::TensorMap d;  ///< [M][2N], box 128 x 128 bytes
  const ptx::TensorMap* b_maps = nullptr;  ///< discrete: [L], each like b with L = 1
  const i32* offsets = nullptr;            ///< [L] ends of the experts' rows, multiples of 128 x cluster
  const float* alpha = nullptr;            ///< [L]
  const float* beta = nullptr;             ///< [L]
  const float* prob = nullptr;             ///< [M], prob_stride elements apart; null: 1
  i64 prob_stride = 1;
  float* dprob = nullptr;        ///< [M], added to; deterministic: [column tiles][M], overwritten
  float* column_sums = nullptr;  ///< dbias: [M / 128][2N], overwritten
  u32* next_tile = nullptr;      ///< dynamic: 0 at launch
  i64 m = 0;                     ///< rows of the buffers
  u32 n = 0;                     ///< compact columns, a multiple of 32
  u32 k = 0;                     ///< a multiple of 8
  u32 experts = 0;
};

/// Before the main kernel: tensor maps of discrete weights, the tile counter, and the end of a single expert whose offset
/// in memory is not to be looked at.
struct DgluPrepareParams {
  ptx::TensorMap pattern;  ///< a map like DgluParams::b with L = 1, whose address is replaced
  ptx::TensorMap* b_maps = nullptr;
  const i64* b_ptrs = nullptr;
  u32* next_tile = nullptr;
  u32 experts = 0;
  u32* offset = nullptr;  ///< null: none
  u32 end = 0;            ///< goes to *offset
};

/// After it: sums of the per-tile results, in a fixed order.
struct DgluFinishParams {
  const float* dprob_tiles = nullptr;  ///< [column tiles][M], null: none
  float* dprob = nullptr;
  const float* column_sums = nullptr;  ///< [M / 128][2N], null: none
  u16* dbias = nullptr;                ///< BF16 [L][2N], added to with one rounding
  const i32* offsets = nullptr;
  i64 m = 0;
  u32 column_tiles = 0;
  u32 columns = 0;  ///< 2N
  u32 experts = 0;
};

inline constexpr u32 finish_threads = 256;

/// CTAs of the finishing kernel: for dbias one per expert and 256 columns, then for dprob one per 256 rows.
GEMMULE_HD i64 finish_bias_ctas(const DgluFinishParams& params) {
  if (params.column_sums == nullptr) return 0;
  return i64{params.experts} * ((params.columns + finish_threads - 1) / finish_threads);
}
GEMMULE_HD i64 finish_ctas(const DgluFinishParams& params) {
  const i64 rows = params.dprob_tiles == nullptr ? 0 : (params.m + finish_threads - 1) / finish_threads;
  return finish_bias_ctas(params) + rows;
}

}  // namespace gemmule::kernels
