// Values of made problems: random ones as trained models show them, and exact ones on which every backend must produce
// the same bytes.
#pragma once

#include <memory>

#include "problem_builder.hpp"

namespace gemmule::cli {

/// Magnitudes of trained models: activations near 1 with a few outlier channels, weights near 1/sqrt(K), gradients near
/// 1e-3, gating probabilities between 0 and 1.
std::unique_ptr<Values> random_values(std::uint64_t seed, Op op, std::int64_t n, std::int64_t k);

/// Small integers times a power of two (nvfp4: times 2688 2^-12, which its scale factors hold exactly), powers of two for
/// prob, gates 0 and +-128 (dgeglu: 0 and -128), inputs of dsituglu 0 and +-256 (which needs situ_beta2 <= 8): no sum of
/// products, and none of the reductions over a few thousand values, needs rounding. `spec.options` must leave alpha,
/// beta and norm_const powers of two, and tanh_clamp_scale (if any) at most 2^-16.
std::unique_ptr<Values> exact_values(std::uint64_t seed, const ProblemSpec& spec);

}  // namespace gemmule::cli
