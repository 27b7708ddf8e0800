// What `gemmule bench` measured, and the forms in which it is written down.
#pragma once

#include <string>
#include <vector>

namespace gemmule::cli {

/// One row. Times are the best or the median of the rounds; a time of 0 was not measured.
struct Measurement {
  std::string op, format, shape;
  int experts = 0;
  long long rows = 0, n = 0, k = 0;  ///< rows of all experts together
  double seconds = 0, median = 0;    ///< the operator
  double baseline_seconds = 0;       ///< the straightforward pipeline
  double limit_seconds = 0;          ///< the matrix products alone
  double flops = 0, bytes = 0;       ///< of one call

  double tflops() const { return flops / seconds * 1e-12; }
  double bandwidth() const { return bytes / seconds * 1e-9; }  ///< GB/s
  double share_of_limit() const { return limit_seconds / seconds; }
  double speedup() const { return baseline_seconds / seconds; }
};

struct BenchReport {
  std::string version, device, baseline;  ///< "avx512, 2 threads"; name of the BLAS
  int threads = 0, repeats = 0;           ///< threads: 0 on a device
  std::vector<Measurement> rows;
  std::string statistic = "best";  ///< of the rounds
  std::string limit{};             ///< what it is
};

std::string to_json(const BenchReport& report);
std::string to_csv(const BenchReport& report);
/// One file without references to others: a table and bar charts as inline SVG.
std::string to_html(const BenchReport& report);

}  // namespace gemmule::cli
