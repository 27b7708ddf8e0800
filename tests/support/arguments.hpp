// A TestProblem as the arguments of the public operators.
#pragma once

#include "gemmule/grouped_gemm_dglu.hpp"
#include "gemmule/grouped_gemm_srelu.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// Inputs and outputs; outputs that the Problem does not have stay absent.
SreluTensors srelu_tensors(const TestProblem& t, const Outputs& out);
DgluTensors dglu_tensors(const TestProblem& t, const Outputs& out);

SreluOptions srelu_options(const TestProblem& t);
DgluOptions dglu_options(const TestProblem& t);

SreluCall srelu_call(const TestProblem& t);
DgluCall dglu_call(const TestProblem& t);

/// A contiguous (rows, cols, slabs) tensor, cols fastest, then rows. `cols` counts values; packed FP4 halves it.
Tensor matrix(const void* data, DType type, std::int64_t rows, std::int64_t cols, std::int64_t slabs = 1);
/// The (32, 4, R, 4, S, L) tensor of the scale factors of rows x length values.
Tensor scales(const void* data, DType type, std::int64_t rows, std::int64_t length, int vec,
              std::int64_t slabs = 1);

}  // namespace gemmule::test
