// Captured MoE batches as test problems: quantized, padded, and compared with what PyTorch's autograd computed for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// A capture file as float32.
class Capture {
 public:
  explicit Capture(const std::string& path);
  std::vector<float> values(const char* tensor) const;
  std::vector<std::int64_t> shape(const char* tensor) const { return reader_.entry(tensor).shape; }
  std::string activation() const { return reader_.metadata().at("activation"); }
  bool forward() const { return activation().starts_with("srelu"); }

  std::vector<std::int64_t> tokens;

 private:
  io::SafetensorsReader reader_;
};

/// The prepared problem, and for every captured row its row in the padded problem.
struct Prepared {
  TestProblem t;
  std::vector<std::int64_t> rows;
};
Prepared prepare(const Capture& capture, Format format);

/// Relative Frobenius error of a padded D (as float32) against the capture's gradient or activation.
double error_of_d(const Capture& capture, const Prepared& prepared, std::vector<float> d);
/// The same of dprob, which only dGLU has.
double error_of_dprob(const Capture& capture, const Prepared& prepared, const std::vector<double>& dprob);

/// D as float32 from the outputs of a call; with scales those of the rows or, `columns`, D_col with those of the columns.
std::vector<float> decoded_d(const Prepared& prepared, const Outputs& out, bool columns);

/// Rounding D to e4m3 adds an error of about 2.6 %, which the tolerances of the operand formats leave out.
inline constexpr double e4m3_output_error = 0.03;

/// The error to expect of D before it is rounded to its own format.
double operand_error(Format format, bool forward);

}  // namespace gemmule::test
