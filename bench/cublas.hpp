// cuBLAS, loaded when it is needed: the matrix products alone, in BF16, beside the cuda backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gemmule/tensor.hpp"

namespace gemmule::bench {

/// R[rows][N] = A[rows][K] B[N][K]^T of every expert, all BF16 in device memory, accumulated in FP32.
struct GroupedProduct {
  std::vector<std::int64_t>
      rows;  ///< of each expert, one after the other in A and R; B has a slab per expert
  std::int64_t n = 0, k = 0;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* r = nullptr;
};

class Cublas {
 public:
  /// Loads the library and makes a handle on the device. `why` says why there is none; available() is false then.
  Cublas(int device_index, Stream stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  bool available() const { return handle_ != nullptr; }
  bool has_grouped() const { return available() && grouped_ != nullptr; }
  /// "cuBLAS 13.0", or why there is none.
  const std::string& description() const { return description_; }

  /// One cublasGemmEx per expert.
  void multiply_each(const GroupedProduct& product) const;
  /// One cublasGemmGroupedBatchedEx. `pointers`: device memory, what device_pointers() returns.
  void multiply_grouped(const GroupedProduct& product, const void* pointers) const;
  /// Addresses of A, B and R of every expert with rows, in this order.
  static std::vector<const void*> device_pointers(const GroupedProduct& product);

 private:
  using Status = int;
  Status (*create_)(void** handle) = nullptr;
  Status (*destroy_)(void* handle) = nullptr;
  Status (*set_stream_)(void* handle, void* stream) = nullptr;
  Status (*version_)(void* handle, int* version) = nullptr;
  Status (*gemm_)(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                  const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                  void* c, int c_type, int ldc, int compute, int algorithm) = nullptr;
  Status (*grouped_)(void* handle, const int* trans_a, const int* trans_b, const int* m, const int* n,
                     const int* k, const void* alpha, const void* const* a, int a_type, const int* lda,
                     const void* const* b, int b_type, const int* ldb, const void* beta, void* const* c,
                     int c_type, const int* ldc, int groups, const int* group_size, int compute) = nullptr;

  void load();

  int device_;
  void* handle_ = nullptr;
  std::string description_;
};

}  // namespace gemmule::bench
