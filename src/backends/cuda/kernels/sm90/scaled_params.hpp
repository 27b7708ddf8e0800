// What the host tells the sm90_scaled_srelu and sm90_scaled_dglu kernels. Plain C++, shared by host and device.
//
// FP8 tensors are maps of bytes, packed FP4 tensors maps of bytes that hold two values. A "column" of the product is a
// row of one expert's B; C and D of dGLU have two columns per column of the product.
#pragma once

#include "layout/scale_factors.hpp"
#include "numerics/activation.hpp"
#include "numerics/quantization.hpp"
#include "ptx/tensor_map.hpp"
#include "sm90/bf16_dglu_params.hpp"
#include "sm90/format.hpp"

namespace gemmule::kernels {

// ------------------------------------------------------------------------------------------------------- geometry

namespace scaled {

inline constexpr u32 tile_rows = 256;  ///< of a CTA; the last tile of an expert has 128 when m_aligned is 128
inline constexpr u32 tile_n = 128;     ///< columns of the product
inline constexpr u32 tile_k = 64;
inline constexpr u32 box_rows = 128;  ///< of A, B, C and D: a warpgroup's rows, or all of B's

/// Bytes of a row of a raw tile of A, or of a K-major one of B: a box, and the span of its swizzle.
inline constexpr u32 raw_row_bytes = 64;
/// Values in it: 64 or 128.
GEMMULE_HD constexpr u32 raw_tile_k(Format ab) {
  return raw_row_bytes * 8 / bits_of(ab);
}

/// C and D are staged in boxes of 128 rows by 32 columns (dGLU: the gate's box, then the input's), rows of 16 to 128
/// bytes. Not swizzled, except f32 (128-byte swizzle).
inline constexpr u32 box_columns = 32;
/// Floats of a math warp for each box that it quantizes at a time.
inline constexpr u32 quantize_scratch = 64;

GEMMULE_HD constexpr u32 box_row_bytes(Format format) {
  return box_columns * bits_of(format) / 8;
}
GEMMULE_HD constexpr u32 box_bytes(Format format) {
  return box_rows * box_row_bytes(format);
}

}  // namespace scaled

// -------------------------------------------------------------------------------------------------------- options

enum class ScaleFormat : u8 { e8m0, e4m3 };
enum class ScaledActivation : u8 { dswiglu, dgeglu, dsituglu };
enum class PostOperation : u8 { none, relu, srelu };

/// What both operators have in common. Constants of one specialization on the device, values of one call on the model.
struct ScaledOptions {
  Format ab = Format::e4m3;  ///< e4m3, e5m2 or e2m1
  ScaleFormat scale = ScaleFormat::e8m0;
  u32 vec = 32;            ///< values per scale of A and B: 32 or 16
  bool discrete = false;   ///< B's tensor maps are in b_maps, its scales behind sfb_ptrs
  bool b_n_major = false;  ///< B is [K][N] in memory (8-bit formats only)
  bool dynamic = false;    ///< tiles from a global counter instead of a fixed stride
  bool half_tiles = true;  ///< experts end at multiples of 128 rows, not of 256
  Format c = Format::bf16;
  Format d = Format::bf16;
  bool quantize = false;          ///< D and D_col have scales (8- or 4-bit D)
  bool discrete_col_sfd = false;  ///< the column scales of each expert are contiguous
  bool has_d_col = false;         ///< D_col is written; without `quantize` it receives D's values
  bool has_amax = false;
};

struct ScaledSreluOptions {
  ScaledOptions common;
  bool has_bias = false;
  Format bias = Format::bf16;  ///< bf16, fp16 or f32
  bool clamp = false;
  float clamp_scale = 0;      ///< of the tanh clamp, and its reciprocal
  float clamp_scale_rcp = 0;  ///< numerics::finite_reciprocal(clamp_scale)
};

struct ScaledDgluOptions {
  ScaledOptions common;
  ScaledActivation activation = ScaledActivation::dswiglu;
  numerics::GegluParams geglu{};
  numerics::SituParams situ{};
  PostOperation post = PostOperation::none;  ///< of d, before amax and D, after dprob and dbias
  bool has_dprob = false;
  bool has_dbias = false;
  bool deterministic = false;  ///< dprob through per-tile sums instead of atomic additions
};

// ----------------------------------------------------------------------------------------------------- parameters

/// W is the number of columns of C and D: N or 2N.
struct ScaledParams {
  ptx::TensorMap a;  ///< bytes of [M][K], box 128 x raw_row_bytes, 64-byte swizzle
  ptx::TensorMap
      b;  ///< bytes of [L][N][K], box as A's; n-major: [L][K][N], box 64 k x 128 n, 128-byte swizzle
  ptx::TensorMap c;                        ///< [M][W], box 128 x 32 values, bytes for 8- and 4-bit formats
  ptx::TensorMap d;                        ///< likewise
  ptx::TensorMap d_col;                    ///< likewise
  const ptx::TensorMap* b_maps = nullptr;  ///< discrete: [L], each like b with L = 1
  const u8* sfa = nullptr;                 ///< atoms [M / 128][block_atoms(K)], 512 bytes each
  const u8* sfb = nullptr;                 ///< dense: atoms [L][ceil(N / 128)][block_atoms(K)]
  const i64* sfb_ptrs = nullptr;  ///< discrete: [L] addresses of atoms [ceil(N / 128)][block_atoms(K)]
  const i32* offsets = nullptr;   ///< [L] ends of the experts' rows, multiples of 256, half_tiles: of 128
  const float* alpha = nullptr;   ///< [L]
  const float* prob = nullptr;    ///< [M], prob_stride elements apart; null: 1
  i64 prob_stride = 1;
  const float* norm_const = nullptr;  ///< [1], with quantize
  u8* sfd_row = nullptr;              ///< with quantize: atoms [ceil(M / 128)][block_atoms(W, 32)]
  u8* sfd_col = nullptr;     ///< with quantize: atoms [ceil(W / 128)][block_atoms(M, 32)], or per expert
  float* amax = nullptr;     ///< [L] or, dGLU, [L][2]; maximum with what is there
  u32* next_tile = nullptr;  ///< dynamic: 0 at launch
  i64 m = 0;                 ///< rows of the buffers, a multiple of 128 except for rows no expert owns
  u32 n = 0;                 ///< columns of the product
  u32 k = 0;                 ///< values
  u32 experts = 0;
};

struct ScaledSreluParams {
  ScaledParams common;
  const void* bias = nullptr;  ///< [L][N]
};

struct ScaledDgluParams {
  ScaledParams common;
  const float* beta = nullptr;   ///< [L]
  float* dprob = nullptr;        ///< [M], added to; deterministic: [column tiles][M], overwritten
  float* column_sums = nullptr;  ///< dbias: [M / 128][2N], overwritten
};

}  // namespace gemmule::kernels
