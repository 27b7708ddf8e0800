// Timing of the CPU operators beside their baselines, measured in turns within one process.
//
// Three things are timed on the same synthetic problem and the same number of threads:
//   ours      cpu::run, the fused operator
//   pipeline  the straightforward way: dequantize whole operands to float32, cblas_sgemm per expert, epilogue passes
//   products  only the cblas_sgemm calls, on operands that are already float32
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::bench {

struct Case {
  std::string label;               ///< shown in reports
  Problem problem;                 ///< make_problem() fills in the usual dtypes
  std::vector<std::int64_t> rows;  ///< rows of each expert, multiples of 128; problem.experts entries
};

struct Options {
  int repeats = 5;         ///< rounds; each round times ours, pipeline and products once
  bool baseline = true;    ///< false: ours only
  bool cpu_time = false;   ///< time the process' CPU time: for one thread on a machine that is busy otherwise
  std::uint64_t seed = 1;  ///< of the synthetic operands
  std::function<void(int round, int rounds)> progress;  ///< called after every round, if set
};

struct Timing {
  double best = 0;  ///< seconds
  double median = 0;
  bool measured() const { return best > 0; }
};

struct Result {
  std::string label;
  std::string target;  ///< cpu::target()
  int threads = 0;
  double flops = 0;  ///< 2 * rows * N * K over all experts
  double bytes = 0;  ///< operands read once and outputs written once
  Timing ours, pipeline, products;

  double gflops(const Timing& t) const { return t.measured() ? flops / t.best * 1e-9 : 0; }
};

/// The Problem of a benchmark: `format` is bf16 (dglu only), mxfp8, mxfp8_e5m2, mxfp4 or nvfp4; C is bfloat16; D is
/// bfloat16, or float8_e4m3fn with scales for FP8 operands. Throws InvalidArgument for an unknown format.
Problem make_problem(Op op, const std::string& format, int experts, std::int64_t n, std::int64_t k);

/// True when OpenBLAS was found (it is loaded at run time).
bool has_baseline();
/// Name, configuration and chosen core of the BLAS behind the baselines; "not built: ..." without one.
std::string baseline_description();

/// The cuda backend on one device, and cuBLAS's BF16 products of the same shape as Result::products: the faster of
/// one cublasGemmEx per expert and one cublasGemmGroupedBatchedEx. There is no pipeline. Timed in turns with the device's
/// events, several calls at a time. Throws what cuda::compile() throws.
Result run_case_on_device(const Case& which, const Options& options, int device_index);
/// "cuBLAS 13.0", or why there is none.
std::string device_limit_description(int device_index);

/// Runs the case on num_threads() threads. Throws InvalidArgument unless N and K are multiples of 32 and rows of 128.
/// Timings of the baselines stay empty when they are off or not built.
Result run_case(const Case& which, const Options& options);

}  // namespace gemmule::bench
