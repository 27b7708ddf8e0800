// A small kernel around tcgen05: shared memory is filled by its threads, one thread multiplies several tiles into one
// accumulator, four warps read it. Every synchronising line of it is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/machine.hpp"
#include "ptx/fence.hpp"
#include "ptx/global.hpp"
#include "ptx/identity.hpp"
#include "ptx/tcgen05.hpp"
#include "ptx/warp.hpp"

namespace gemmule::test {

enum class TensorType { bf16, e4m3, e5m2, mxf4, nvf4, nvf4_e8m0 };

/// D[m][n] = A[m][128 bytes] B[n][128 bytes]^T, `tiles` times with different scale factors.
struct TensorCase {
  TensorType type = TensorType::bf16;
  ptx::u32 ctas = 1, m = 128, n = 64;
  bool b_n_major = false;
  ptx::u32 tiles = 3;

  bool scaled() const { return type != TensorType::bf16; }
  ptx::u32 element_bits() const {
    return type == TensorType::bf16 ? 16 : type == TensorType::e4m3 || type == TensorType::e5m2 ? 8 : 4;
  }
  ptx::u32 k() const { return 1024 / element_bits(); }
  ptx::u32 block() const { return type == TensorType::nvf4 || type == TensorType::nvf4_e8m0 ? 16 : 32; }
  ptx::u32 scale_words() const { return k() / block() / 4; }  ///< words of four scales per row
};

struct TensorData {
  explicit TensorData(const TensorCase& c, std::uint32_t seed);
  TensorCase test;
  std::vector<std::uint8_t> a, b;                ///< bytes of every CTA's shared memory, [cta][...], swizzled
  std::vector<std::uint8_t> a_scales, b_scales;  ///< [tile % 2][cta][word][512 bytes per 128 rows]
  std::vector<float> expected;                   ///< [tile][m][n]
};

/// What a test may spoil.
struct TensorChange {
  ptx::u32 a_stride = 1024, b_stride = 1024, scale_stride = 128;
  ptx::u32 scale_id = 0;      ///< added to the scale factor's byte
  ptx::u32 scale_column = 0;  ///< added to the columns that the multiplication reads
  ptx::u32 lanes = 0;         ///< added to the lanes that the warps read
  ptx::u32 columns = 512;     ///< allocated
  bool free = true;
  bool stale = false;  ///< scale factors are copied for the first tile only
};

struct TensorOutcome {
  model::Report report;
  bool correct = false;
};
TensorOutcome run_tensor_kernel(const TensorData& data, model::LaunchOptions options,
                                const TensorChange& change = {});

}  // namespace gemmule::test
