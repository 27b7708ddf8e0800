// The epilogue formulas in double, each with the error that a float32 evaluation may show.
#pragma once

#include "operators/problem.hpp"

namespace gemmule::reference {

/// A value before it is rounded to the output format, and the largest error allowed for it.
struct Estimate {
  double value = 0;
  double error = 0;
};

/// D of sReLU for the pre-activation x: prob * relu(x)^2, or prob * (s * tanh(relu(x) / s))^2.
Estimate srelu(const Problem& p, Estimate x, double prob);

/// d act/d gate, d act/d input and act itself, with the error of each formula. D and the dprob term are R times these.
struct Derivatives {
  Estimate gate, input, act;
};
Derivatives glu(const Problem& p, double gate, double input);

/// The product of two estimates, limited().
Estimate product(Estimate r, Estimate factor);

/// epilogue_op on a final d value.
Estimate post_process(EpilogueOp op, Estimate d);

/// The same value, without a bound (infinite error) if float32 overflows on the way to it.
Estimate limited(Estimate e);

}  // namespace gemmule::reference
