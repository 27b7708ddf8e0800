// What the host files of the block-scaled sm_90a kernels have in common: options, tensor maps and parameters of one call.
// The tests of the host model fill their parameters with the same functions.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/kernel.hpp"
#include "backends/cuda/sm90_host.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::cuda::sm90 {

/// Why the block-scaled kernels, on either architecture, cannot take the problem; empty when they can.
std::string refuse_scaled_srelu(const Problem& p);
std::string refuse_scaled_dglu(const Problem& p);

kernels::ScaledOptions scaled_options(const Problem& p);
kernels::ScaledSreluOptions scaled_srelu_options(const Problem& p);
kernels::ScaledDgluOptions scaled_dglu_options(const Problem& p);

std::string literal(const kernels::ScaledOptions& options);
std::string literal(const kernels::ScaledSreluOptions& options);
std::string literal(const kernels::ScaledDgluOptions& options);

/// Spills that the kernels may have, per thread: ptxas reports up to 48 bytes in some specializations, outside of the main loop.
inline constexpr int scaled_spill_bytes = 64;

Scratch scaled_scratch(const Problem& p, std::int64_t m);

/// Tensor maps of one call, not yet encoded. With discrete weights `b` is a pattern whose address is replaced on the
/// device. Maps of tensors that the problem does not have are those of D.
struct ScaledMaps {
  TensorMap a, b, c, d, d_col;
};
ScaledMaps scaled_maps(const Problem& p, const Operands& o);

/// What both operators, on either architecture, have in common but for the tensor maps.
kernels::ScaledParams common_params(const Problem& p, const Operands& o, std::byte* workspace,
                                    const Scratch& s);
/// Everything but the tensor maps.
kernels::ScaledSreluParams scaled_srelu_params(const Problem& p, const Operands& o, std::byte* workspace);
kernels::ScaledDgluParams scaled_dglu_params(const Problem& p, const Operands& o, std::byte* workspace);

std::int64_t scaled_column_tiles(const Problem& p);
/// Tiles of all experts, at most.
std::int64_t scaled_tiles(const Problem& p, std::int64_t m);

/// Enqueues prepare, main (entry 0) and finish. `params` lacks the tensor maps, which go to `common`, a part of it.
void launch_scaled(const Launch& launch, const void* params, kernels::ScaledParams& common);

/// Every operand format with BF16 D, FP8 operands with quantized D in both layouts of the column scales; dense and
/// discrete; then the clamp.
std::vector<Problem> common_scaled_srelu();
/// dSwiGLU in every operand format, dense and discrete, then with dbias; the other activations in MXFP8 and NVFP4;
/// deterministic sums.
std::vector<Problem> common_scaled_dglu();

}  // namespace gemmule::cuda::sm90
