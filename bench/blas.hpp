// OpenBLAS, loaded at run time.
#pragma once

#include <cstdint>
#include <string>

namespace gemmule::bench {

/// One process has one Blas. Unless OPENBLAS_CORETYPE is set, OpenBLAS is told which core to assume, because releases
/// older than the processor fall back to kernels from before AVX.
class Blas {
 public:
  static const Blas& instance();

  bool loaded() const { return sgemm_ != nullptr; }
  const std::string& description() const { return description_; }
  void set_num_threads(int threads) const { set_num_threads_(threads); }
  /// c[m][n] = a[m][k] * b[n][k]^T, all row-major and contiguous.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                float* c) const;

 private:
  Blas();

  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm sgemm_ = nullptr;
  void (*set_num_threads_)(int) = nullptr;
  std::string description_ = "not built: libopenblas.so.0 was not found";
};

}  // namespace gemmule::bench
