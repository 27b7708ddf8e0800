// What the host files of the block-scaled sm_90a kernels have in common: tensor maps and parameters of one call.
// The tests of the host model fill their parameters with the same functions.
#pragma once

#include "backends/cuda/scaled_host.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::cuda::sm90 {

/// Spills that the kernels may have, per thread: the common specializations have none, a third of dGLU's others some in the epilogue,
/// 52 bytes at most as far as seen.
inline constexpr int scaled_spill_bytes = 64;

host::Scratch scaled_scratch(const Problem& p, std::int64_t m);

/// Tensor maps of one call, not yet encoded. With discrete weights `b` is a pattern whose address is replaced on the
/// device. Maps of tensors that the problem does not have are those of D.
struct ScaledMaps {
  TensorMap a, b, c, d, d_col;
};
ScaledMaps scaled_maps(const Problem& p, const Operands& o);

/// Everything but the tensor maps.
kernels::ScaledSreluParams scaled_srelu_params(const Problem& p, const Operands& o, std::byte* workspace);
kernels::ScaledDgluParams scaled_dglu_params(const Problem& p, const Operands& o, std::byte* workspace);

std::int64_t scaled_column_tiles(const Problem& p);
/// Tiles of all experts, at most.
std::int64_t scaled_tiles(const Problem& p, std::int64_t m);

/// Enqueues prepare, main (entry 0) and finish. `params` lacks the tensor maps, which go to `common`, a part of it.
void launch_scaled(const Launch& launch, const void* params, kernels::ScaledParams& common);

}  // namespace gemmule::cuda::sm90
