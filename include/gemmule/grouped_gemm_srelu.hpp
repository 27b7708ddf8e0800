// Grouped GEMM + squared ReLU: block-scaled forward of an MoE layer's first projection.
//
// For the rows m of expert g, padded_offsets[g-1] <= m < padded_offsets[g]:
//   x       = alpha[g] * sum_k deq(A[m,k], SFA) * deq(B[n,k,g], SFB) + bias[n,g]
//   C[m,n]  = cast(x)
//   D[m,n]  = prob[m] * relu(x)^2,   or   prob[m] * (s * tanh(relu(x) / s))^2 with tanh_clamp_scale = s
//   amax[g] = max |D| before rounding
// M rows, N columns, K reduction, L experts, v = sf_vec_size, R(x) = ceil(x/128), S(x) = ceil(x/4).
//
// | tensor         | shape                                | strides                     | dtype                         |
// | a              | (M, K, 1)                            | (K, 1, M*K)                 | FP4, uint8, e4m3, e5m2        |
// | b (dense)      | (N, K, L)                            | (K, 1, N*K); FP8 (1,N,N*K)  | as a                          |
// | sfa            | (32,4,R(M),4,S(ceil(K/v)),1)         | docs/formats.md             | e8m0, e4m3                    |
// | sfb (dense)    | (32,4,R(N),4,S(ceil(K/v)),L)         | docs/formats.md             | as sfa                        |
// | b_ptrs/sfb_ptrs| (L)                                  | (1)                         | int64, on a's device          |
// | padded_offsets | (L)                                  | (1)                         | int32                         |
// | alpha          | (L)                                  | (1)                         | float32                       |
// | prob           | (M, 1, 1)                            | (1, ., .)                   | float32                       |
// | norm_const     | (1)                                  | any                         | float32                       |
// | bias           | (N, L)                               | (1, N)                      | bf16, f16, f32                |
// | c              | (M, N, 1)                            | (N, 1, M*N)                 | f32 f16 bf16 e4m3 e5m2 FP4    |
// | d, d_col       | (M, N, 1)                            | (N, 1, M*N)                 | FP4 in: f16 bf16 f32; FP8 in: f16 bf16 e4m3 e5m2 FP4 |
// | sfd_row        | (32,4,R(M),4,S(ceil(N/32)),1)        | docs/formats.md             | as sfa                        |
// | sfd_col        | (32,4,R(N),4,S(ceil(M/32)),1)        | docs/formats.md             | as sfa                        |
// | amax           | (L, 1)                               | (1, 1)                      | float32, accumulated into     |
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "gemmule/options.hpp"
#include "gemmule/tensor.hpp"

namespace gemmule {

/// Arguments of one call. Absent tensors stand for None.
struct SreluTensors {
  Tensor a, b, sfa, sfb, padded_offsets, alpha, bias;
  Tensor b_ptrs,
      sfb_ptrs;  // execute and one-call form only; the class is told by num_experts, b_shape, b_dtype
  Tensor norm_const, prob;
  Tensor c, d, d_col, sfd_row, sfd_col, amax;  // outputs
};

struct SreluOptions : CommonOptions {
  std::optional<double> tanh_clamp_scale;  ///< s: finite and > 0
  friend bool operator==(const SreluOptions&, const SreluOptions&) = default;
};

/// Compile-once object. After compile() it may be executed from several threads and on several streams at once.
class GroupedGemmSrelu {
 public:
  /// `samples` gives shapes, strides, dtypes and devices; M of later calls may differ.
  GroupedGemmSrelu(const SreluTensors& samples, const SreluOptions& options);
  ~GroupedGemmSrelu();
  GroupedGemmSrelu(GroupedGemmSrelu&&) noexcept;
  GroupedGemmSrelu& operator=(GroupedGemmSrelu&&) noexcept;

  /// Checks every rule that needs no device memory. Throws InvalidArgument, Unsupported or RuntimeFailure.
  void check_support();
  /// Makes the object executable; calls check_support() if that was not done. A second call does nothing.
  void compile();
  bool compiled() const noexcept;
  /// Scratch bytes execute() needs for `rows` = A's first extent. The scratch is 256-byte aligned, uninitialised on
  /// entry and worthless afterwards; concurrent executions need one each.
  std::size_t workspace_size(std::int64_t rows) const;
  /// Enqueues the work on `stream` (CPU: does it). No allocation, no synchronisation. amax is accumulated into.
  void execute(const SreluTensors& tensors, void* workspace, std::size_t workspace_bytes,
               Stream stream = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Arguments that only the one-call form has.
struct SreluCall {
  DType c_dtype = DType::bfloat16;
  DType d_dtype = DType::bfloat16;
  char cd_major = 'n';  ///< only 'n'
  friend bool operator==(const SreluCall&, const SreluCall&) = default;
};

/// Outputs of the one-call form; absent where the configuration has none.
struct SreluResult {
  Tensor c, d, d_col, amax, sfd_row, sfd_col;
};

/// Shapes, strides and dtypes (data null) of the outputs that grouped_gemm_srelu() would return; checks the arguments
/// that this needs. `tensors` holds inputs only.
SreluResult describe_outputs(const SreluTensors& tensors, const SreluOptions& options, const SreluCall& call);

/// One call: checks, allocates the outputs (amax starts at -inf), compiles or finds the compiled object in a bounded
/// process-wide cache, executes.
SreluResult grouped_gemm_srelu(const SreluTensors& inputs, const SreluOptions& options, const SreluCall& call,
                               Allocator& allocator, Stream stream = {});

}  // namespace gemmule
