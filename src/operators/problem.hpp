// The plain description of one call that the operators hand to a backend, once every rule has been checked.
#pragma once

#include <cstdint>

#include "gemmule/grouped_gemm_dglu.hpp"
#include "gemmule/options.hpp"
#include "gemmule/tensor.hpp"

namespace gemmule {

enum class Op : std::uint8_t { srelu, dglu };

/// Everything a kernel may be specialised for. Row count and pointers are in Operands: one Problem serves any M.
struct Problem {
  Op op = Op::srelu;
  std::int64_t n = 0;  ///< rows of one expert's B: D has n columns (srelu) or 2n (dglu)
  std::int64_t k = 0;  ///< reduction length in values
  int experts = 0;     ///< 1..1024

  DType ab =
      DType::none;  ///< bfloat16, float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2 (uint8 is mapped to it)
  DType scale = DType::none;  ///< float8_e8m0fnu or float8_e4m3fn; none for BF16
  int vec = 0;                ///< values per input scale: 16 or 32; 0 for BF16
  DType c = DType::none;      ///< srelu: output; dglu: input
  DType d = DType::none;
  DType bias = DType::none;  ///< srelu bias dtype, none if absent
  bool discrete = false;     ///< B (and SFB) come as one pointer per expert
  bool b_n_major = false;    ///< B is [.., K, N] in memory instead of [.., N, K]
  bool quantize = false;     ///< write sfd_row, sfd_col, d_col; D is row-quantized (scales e8m0 per 32)
  bool discrete_col_sfd = false;

  bool has_prob = false, has_dprob = false, has_dbias = false, has_amax = false;
  bool has_d_col = false;  ///< without quantize: d_col receives the same values as d

  float tanh_clamp_scale = 0;  ///< srelu; 0 = no clamp
  ActFunc act = ActFunc::dswiglu;
  bool geglu_value_filter = false;  ///< value-bearing filter instead of the 0/1 mask
  float linear_offset = 0, geglu_alpha = 0, glu_clamp_max = 0, glu_clamp_min = 0;
  float situ_beta1 = 0, situ_beta2 = 0;
  EpilogueOp epilogue_op = EpilogueOp::none;
  bool single_group_runtime_offsets = false;  ///< experts == 1 and its end is Operands::m

  int m_aligned = 256;
  bool deterministic = false;
  TileShape tile{};  ///< requested; no numerical effect
  ClusterShape cluster{};
  bool vector_f32 = false, use_dynamic_sched = false;
  int sm_limit = 0;
  bool programmatic_launch = false;
  int cluster_overlap_margin = 0;

  std::int64_t width() const { return op == Op::srelu ? n : 2 * n; }  ///< columns of C and D
  bool block_scaled() const { return ab != DType::bfloat16; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Pointers and the row count of one call. Null where the Problem says there is none. Scale factors are in memory
/// order; output strides are the contiguous ones. prob_stride: elements between prob[m] and prob[m+1].
struct Operands {
  std::int64_t m = 0;  ///< rows of A, C, D (may exceed the last offset)
  const void* a = nullptr;
  const void* b = nullptr;
  const void* sfa = nullptr;
  const void* sfb = nullptr;
  const std::int64_t* b_ptrs = nullptr;
  const std::int64_t* sfb_ptrs = nullptr;
  const std::int32_t* padded_offsets = nullptr;
  const float* alpha = nullptr;
  const float* beta = nullptr;
  const float* prob = nullptr;
  std::int64_t prob_stride = 1;
  const float* norm_const = nullptr;
  const void* bias = nullptr;  ///< [L][N]
  const void* c_in = nullptr;  ///< dglu
  void* c_out = nullptr;       ///< srelu
  void* d = nullptr;
  void* d_col = nullptr;
  std::uint8_t* sfd_row = nullptr;
  std::uint8_t* sfd_col = nullptr;
  float* amax = nullptr;           ///< srelu [L], dglu [L][2]; maximum is combined with what is there
  float* dprob = nullptr;          ///< [M]; added to
  std::uint16_t* dbias = nullptr;  ///< BF16 [L][2N]; added to with one rounding per call
};

}  // namespace gemmule
