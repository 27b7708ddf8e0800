// Compares the outputs of a problem that `prepare` made with what PyTorch computed for the same batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture.hpp"
#include "io/problem_file.hpp"

namespace gemmule::cli {

struct CaptureCheck {
  std::string output;    ///< "c", "d", "d_row", "dprob"
  std::string expected;  ///< the capture's tensor
  std::int64_t elements = 0;
  double relative_error = 0;  ///< Frobenius, over the real (unpadded) rows
  double limit = 0;
  bool passed() const { return relative_error <= limit; }  // false for NaN
};

/// What a format's rounding of A and B, and of the output to its type, may cost, relative to PyTorch's BF16 result; see
/// compare_capture.cpp.
double capture_limit(const std::string& format, const std::string& output, DType type);

/// Throws InvalidArgument when the capture does not belong to the problem.
std::vector<CaptureCheck> compare_capture(const io::LoadedProblem& problem, const io::TensorMap& result,
                                          const Capture& capture);

}  // namespace gemmule::cli
