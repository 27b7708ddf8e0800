// What the host files of the block-scaled kernels of both architectures have in common: which problems they take, their
// options, and the parameters of one call that do not depend on the tile.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/host.hpp"
#include "backends/cuda/kernel.hpp"
#include "sm90/scaled_params.hpp"

namespace gemmule::cuda::host {

/// Why the block-scaled kernels cannot take the problem; empty when they can.
std::string refuse_scaled_srelu(const Problem& p);
std::string refuse_scaled_dglu(const Problem& p);

kernels::ScaledOptions scaled_options(const Problem& p);
kernels::ScaledSreluOptions scaled_srelu_options(const Problem& p);
kernels::ScaledDgluOptions scaled_dglu_options(const Problem& p);

std::string literal(const kernels::ScaledOptions& options);
std::string literal(const kernels::ScaledSreluOptions& options);
std::string literal(const kernels::ScaledDgluOptions& options);

/// What both operators have in common but for the tensor maps.
kernels::ScaledParams common_params(const Problem& p, const Operands& o, std::byte* workspace,
                                    const Scratch& s);

/// Every operand format with BF16 D, FP8 operands with quantized D in both layouts of the column scales; dense and
/// discrete; then the clamp.
std::vector<Problem> common_scaled_srelu();
/// dSwiGLU in every operand format, dense and discrete, then with dbias; the other activations in MXFP8 and NVFP4;
/// deterministic sums.
std::vector<Problem> common_scaled_dglu();

}  // namespace gemmule::cuda::host
