// How the epilogues of the block-scaled kernels walk over the accumulators, chunk by chunk in one loop: registers cannot be
// indexed, and unrolled chunks would not stay in the instruction cache.
#pragma once

#include "ptx/identity.hpp"
#include "ptx/wgmma.hpp"
#include "sm90/scaled_fragment.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::kernels {

/// One thread's sums of 128 rows: element 4 j + 2 u + c of half h, as scaled_fragment.hpp has it; after the main loop
/// times expand::result_factor().
using ScaledAccumulators = ptx::Accumulator<scaled::tile_n>[2];

/// Chunks of a tile.
inline constexpr u32 scaled_chunks = scaled::tile_n / fragment::chunk_columns;

/// Those of chunk 0, or of the chunk that has been brought down.
struct ChunkAccumulators {
  const ScaledAccumulators& all;
  GEMMULE_DEVICE float get(u32 half, u32 element) const { return all[half].get(static_cast<int>(element)); }
};

/// Puts the accumulators of chunk 1, 2 or 3 where those of chunk 0 were. All of the old ones are replaced, so that they live
/// no longer.
GEMMULE_DEVICE void bring_down(ScaledAccumulators& accumulators, u32 chunk) {
  constexpr int elements = static_cast<int>(fragment::chunk_elements);
  const auto bring = [&](int next) {
    accumulators[0].bring_down(next * elements, elements);
    accumulators[1].bring_down(next * elements, elements);
  };
  static_assert(scaled_chunks == 4);
  // Branches: as selections, the moves of chunk 1 would come before those of 2 and 3.
  if (chunk == 3) {
    ptx::stay<3>();
    bring(3);
  } else if (chunk == 2) {
    ptx::stay<2>();
    bring(2);
  } else {
    ptx::stay<1>();
    bring(1);
  }
}

}  // namespace gemmule::kernels
