// The epilogue formulas in double, each with the error that a float32 evaluation may show.
#pragma once

#include "operators/problem.hpp"

namespace gemmule::reference {

/// A value before it is rounded to the output format, and the largest error allowed for it.
struct Estimate {
  double value = 0;
  double error = 0;
  bool overflow = false;  ///< a float32 intermediate may exceed FLT_MAX: infinity and NaN are allowed too
};

/// What one float32 operation loses below the smallest normal number, twice over: every formula has several of them.
inline constexpr double underflow = 0x1p-148;

/// D of sReLU for the pre-activation x: prob * relu(x)^2, or prob * (s * tanh(relu(x) / s))^2.
Estimate srelu(const Problem& p, Estimate x, double prob);

/// What R is multiplied with, in several steps. `reach` bounds the product of any of these steps (at least 1): it decides
/// whether an intermediate can overflow, and how much one that underflows is magnified afterwards.
struct Factor {
  double value = 0;
  double error = 0;
  double reach = 1;
};

/// d act/d gate, d act/d input and act itself, with the error of each formula. D and the dprob term are R times these.
struct Derivatives {
  Factor gate, input, act;
};
Derivatives glu(const Problem& p, double gate, double input);

/// R times a factor, limited().
Estimate product(Estimate r, const Factor& factor);

/// epilogue_op on a final d value.
Estimate post_process(EpilogueOp op, Estimate d);

/// Marks what may have overflowed in float32.
Estimate limited(Estimate e);

}  // namespace gemmule::reference
