// The cases of the tcgen05 litmus kernel, as host and device see them.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::litmus {

using numerics::u32;

enum class TensorType : numerics::u8 { bf16, e4m3, e5m2, mxf4, nvf4, nvf4_e8m0 };

/// D[m][n] = A[m][128 bytes] B[n][128 bytes]^T, `tiles` times with two sets of scale factors in turn.
struct TensorCase {
  TensorType type = TensorType::bf16;
  u32 ctas = 1, m = 128, n = 64;
  bool b_n_major = false;
  u32 tiles = 3;

  GEMMULE_HD constexpr bool scaled() const { return type != TensorType::bf16; }
  GEMMULE_HD constexpr u32 element_bits() const {
    return type == TensorType::bf16 ? 16 : type == TensorType::e4m3 || type == TensorType::e5m2 ? 8 : 4;
  }
  GEMMULE_HD constexpr u32 k() const { return 1024 / element_bits(); }
  GEMMULE_HD constexpr u32 block() const {
    return type == TensorType::nvf4 || type == TensorType::nvf4_e8m0 ? 16 : 32;
  }
  /// Words of four scales per row.
  GEMMULE_HD constexpr u32 scale_words() const { return k() / block() / 4; }
  GEMMULE_HD constexpr u32 a_rows() const { return m / ctas; }  ///< in one CTA
  GEMMULE_HD constexpr u32 b_rows() const { return n / ctas; }
};

/// What a test may spoil.
struct TensorChange {
  u32 a_stride = 1024, b_stride = 1024, scale_stride = 128;
  u32 scale_id = 0;      ///< added to the scale factor's byte
  u32 scale_column = 0;  ///< added to the columns that the multiplication reads
  u32 lanes = 0;         ///< added to the lanes that the warps read
  u32 columns = 512;     ///< allocated
  bool free = true;
  bool stale = false;  ///< scale factors are copied for the first tile only
};

/// Bytes that each CTA's shared memory takes of an operand, and of one set of scale factors.
inline constexpr u32 a_bytes = 16384, b_bytes = 32768, a_scale_bytes = 2048, b_scale_bytes = 4096;

}  // namespace gemmule::litmus
