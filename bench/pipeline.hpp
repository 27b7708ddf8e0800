// The straightforward way to the same outputs: dequantize whole operands to float32, one sgemm per expert, then passes
// over the result. Its passes are built with the kernels' flags, vectorise, and run on as many threads.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/problem.hpp"

namespace gemmule::bench {

/// Memory of a pipeline; nothing is allocated while it is timed.
struct PipelineBuffers {
  std::vector<float> a, b;   ///< [M][K], [L][N][K]
  std::vector<float> c;      ///< [M][width], dglu
  std::vector<float> sum;    ///< [M][N]
  std::vector<float> d;      ///< [M][width]
  std::vector<float> dbias;  ///< [width]

  PipelineBuffers(const Problem& problem, std::int64_t m);
};

/// Serves what make_problem() makes: dense k-major weights, BF16 C, D BF16 or quantized to e4m3, and extents in whole
/// blocks of 32.
void run_pipeline(const Problem& problem, const Operands& operands, PipelineBuffers& buffers);
/// Its second step alone.
void run_sgemm(const Problem& problem, const Operands& operands, PipelineBuffers& buffers);

/// One pass over rows (or, for dequantize_b and reduce_dbias, columns) [begin, end).
struct PipelineCall {
  const Problem& problem;
  const Operands& operands;
  PipelineBuffers& buffers;
  int expert = 0;
};
struct PipelinePasses {
  void (*dequantize_a)(const PipelineCall&, std::int64_t begin, std::int64_t end);
  void (*dequantize_b)(const PipelineCall&, std::int64_t begin, std::int64_t end);  ///< rows of [L*N]
  void (*dequantize_c)(const PipelineCall&, std::int64_t begin, std::int64_t end);
  void (*activation)(const PipelineCall&, std::int64_t begin, std::int64_t end);
  void (*reduce_dbias)(const PipelineCall&, std::int64_t begin,
                       std::int64_t end);  ///< columns, in blocks of 32
  void (*maxima)(const PipelineCall&, std::int64_t begin, std::int64_t end, std::int32_t* bits);
  void (*store)(const PipelineCall&, std::int64_t begin, std::int64_t end);
  void (*quantize_rows)(const PipelineCall&, std::int64_t begin, std::int64_t end);
  void (*quantize_cols)(const PipelineCall&, std::int64_t begin,
                        std::int64_t end);  ///< rows, in blocks of 32
};
namespace avx512 {
extern const PipelinePasses passes;
}
namespace avx2 {
extern const PipelinePasses passes;
}
namespace generic {
extern const PipelinePasses passes;
}

}  // namespace gemmule::bench
