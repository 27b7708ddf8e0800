// Grouped GEMM + dGLU: backward of a gated MoE layer through its second projection, BF16 or block-scaled.
//
// For the rows m of expert g, with R = alpha[g]^2 * sum_k deq(A[m,k]) * deq(B[n,k,g]) and X = beta[g] * C:
// columns of C and D alternate in blocks of 32, gate first: compact column n = 32q+j has its gate at 64q+j and its
// input at 64q+32+j. docs/operators.md has the gradients of dSwiGLU, dGeGLU and dSiTU-GLU.
//   D[m, gate]  = prob[m] * R * d act/d gate      D[m, input] = prob[m] * R * d act/d input
//   dprob[m]   += sum_n R * act(gate, input)      dbias[g, .] += sum over the expert's rows of D before rounding
//   amax[g, 0/1] = max |D| of the gate / input columns before rounding
//
// | tensor         | shape                                | strides                     | dtype                         |
// | a              | (M, K, 1)                            | (K, 1, M*K)                 | bf16, FP4, uint8, e4m3, e5m2  |
// | b (dense)      | (N, K, L)                            | (K, 1, N*K); FP8 (1,N,N*K)  | as a                          |
// | c              | (M, 2N, 1)                           | (2N, 1, 2N*M)               | f32 f16 bf16; FP8 if block-scaled |
// | sfa, sfb, b_ptrs, sfb_ptrs, padded_offsets, alpha, norm_const: as in grouped_gemm_srelu.hpp                       |
// | beta           | (L)                                  | (1)                         | float32                       |
// | prob, dprob    | (M, 1, 1)                            | (1, 1, 1)                   | float32                       |
// | d_row, d_col   | (M, 2N, 1)                           | (2N, 1, 2N*M)               | bf16 in: f32 f16 bf16; FP4 in: same; FP8 in: e4m3 e5m2 |
// | dbias          | (L, 2N, 1)                           | (2N, 1, 1)                  | bf16, accumulated into        |
// | amax           | (L, 2, 1)                            | (2, 1, 1)                   | float32, accumulated into     |
// | sfd_row        | (32,4,R(M),4,S(2N/32),1)             | docs/formats.md             | as sfa                        |
// | sfd_col        | (32,4,R(2N),4,S(ceil(M/32)),1)       | docs/formats.md             | as sfa                        |
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "gemmule/options.hpp"
#include "gemmule/tensor.hpp"

namespace gemmule {

enum class ActFunc : std::uint8_t { dswiglu, dgeglu, dsituglu };
const char* name(ActFunc act) noexcept;
ActFunc act_func_from_name(const std::string& text);  // throws InvalidArgument

/// What multiplies the dGeGLU gradients: the 0/1 derivative of the clamps, or NVIDIA's value-bearing filter.
/// automatic: value for BF16, mask for block-scaled. Only mask is the gradient of the forward activation.
enum class GegluFilter : std::uint8_t { automatic, mask, value };

/// Applied to the final d values before amax and quantization, not to dprob and dbias. Block-scaled only.
enum class EpilogueOp : std::uint8_t { none, relu, srelu };
EpilogueOp epilogue_op_from_name(const std::string& text);  // "none", "identity", "relu", "srelu"

/// Arguments of one call. Absent tensors stand for None.
struct DgluTensors {
  Tensor a, b, c, sfa, sfb, padded_offsets, alpha, beta, prob;
  Tensor b_ptrs, sfb_ptrs;  // execute and one-call form only
  Tensor norm_const;
  Tensor dprob;                                        // accumulated into; the caller zeroes it
  Tensor d_row, d_col, dbias, amax, sfd_row, sfd_col;  // outputs
};

struct DgluOptions : CommonOptions {
  ActFunc act_func = ActFunc::dswiglu;
  std::optional<float> linear_offset;  ///< default 1 for dgeglu, 0 otherwise
  float geglu_alpha = 1.702f;
  float glu_clamp_max = 7.0f;
  float glu_clamp_min = -7.0f;
  GegluFilter geglu_filter = GegluFilter::automatic;
  float situ_beta1 = 4.0f;
  float situ_beta2 = 25.0f;
  EpilogueOp epilogue_op = EpilogueOp::none;
  bool use_single_group_runtime_offsets =
      false;  ///< one expert: its end is A's row count, not padded_offsets[0]

  friend bool operator==(const DgluOptions&, const DgluOptions&) = default;
};

/// Compile-once object; see GroupedGemmSrelu.
class GroupedGemmDglu {
 public:
  GroupedGemmDglu(const DgluTensors& samples, const DgluOptions& options);
  ~GroupedGemmDglu();
  GroupedGemmDglu(GroupedGemmDglu&&) noexcept;
  GroupedGemmDglu& operator=(GroupedGemmDglu&&) noexcept;

  void check_support();
  void compile();
  bool compiled() const noexcept;
  std::size_t workspace_size(std::int64_t rows) const;
  /// dprob, dbias and amax are accumulated into.
  void execute(const DgluTensors& tensors, void* workspace, std::size_t workspace_bytes,
               Stream stream = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Arguments that only the one-call form has.
struct DgluCall {
  DType d_dtype = DType::bfloat16;
  char cd_major = 'n';  ///< only 'n'
  bool generate_dbias = false;
  friend bool operator==(const DgluCall&, const DgluCall&) = default;
};

/// Outputs of the one-call form; absent where the configuration has none. dprob is the caller's own tensor. Without
/// scale factors, a block-scaled call returns in d_col the same tensor as d_row.
struct DgluResult {
  Tensor d_row, d_col, dprob, dbias, amax, sfd_row, sfd_col;
};

DgluResult describe_outputs(const DgluTensors& tensors, const DgluOptions& options, const DgluCall& call);

/// One call; dbias starts at 0, amax at -inf, dprob is accumulated into.
DgluResult grouped_gemm_dglu(const DgluTensors& inputs, const DgluOptions& options, const DgluCall& call,
                             Allocator& allocator, Stream stream = {});

}  // namespace gemmule
