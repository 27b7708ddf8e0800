// Matrix multiply-accumulate of sm_100: D[M][N] += A[M][K] B[N][K]^T with A and B in shared memory, FP32 D in tensor
// memory, issued by one thread for one CTA or for a pair (the two CTAs of a cluster whose ranks differ in bit 0). The
// operations of one thread execute in order; commit_tensor_work() makes an mbarrier track their completion.
//
// One CTA, M = 128: row m of D is lane m, column n of D is column n. A pair, M = 256: rows 0..127 lie in the even CTA's
// tensor memory and 128..255 in the odd one's, each with all N columns; each CTA's shared memory holds its 128 rows of A
// and its half of the N rows of B, at the same offsets.
#pragma once

#include "engine/tcgen05.hpp"
#include "ptx/mbarrier.hpp"
#include "ptx/tensor_memory.hpp"

namespace gemmule::ptx {

enum class OperandSwizzle : u8 { none = 0, b128 = 2, b64 = 4, b32 = 6 };

/// Shared-memory descriptor (PTX ISA, "Shared memory descriptor" of tcgen05). Byte quantities are stored divided by 16.
///   K-major, swizzled: stride_bytes between groups of 8 rows; leading_bytes is not used.
///   MN-major, swizzled: leading_bytes between spans of the swizzle along M or N, stride_bytes between groups of 8 k.
///   no swizzle (scale factors): groups of 8 rows of 16 bytes, stride_bytes apart.
struct OperandDescriptor {
  u64 address : 14;
  u64 : 2;
  u64 leading_bytes : 14;
  u64 : 2;
  u64 stride_bytes : 14;
  u64 version : 3;  ///< 1 on sm_100
  u64 base_offset : 3;
  u64 leading_absolute : 1;
  u64 : 8;
  u64 swizzle : 3;  ///< OperandSwizzle

  static OperandDescriptor of(Shared<u8> tile, u32 leading_bytes, u32 stride_bytes, OperandSwizzle swizzle) {
    OperandDescriptor d{};
    d.address = tile.address >> 4 & 0x3fff;
    d.leading_bytes = leading_bytes >> 4 & 0x3fff;
    d.stride_bytes = stride_bytes >> 4 & 0x3fff;
    d.version = 1;
    d.swizzle = static_cast<u64>(swizzle) & 7;
    return d;
  }
  /// The descriptor of what lies `bytes` further on (a multiple of 16, within the swizzle span for K-major steps).
  OperandDescriptor advance(u32 bytes) const {
    const u64 value = __builtin_bit_cast(u64, *this) + (bytes >> 4);
    return __builtin_bit_cast(OperandDescriptor, value);
  }
};
static_assert(sizeof(OperandDescriptor) == 8);

/// Instruction descriptor of kind::f16.
struct InstructionDescriptor {
  u32 sparsity_selector : 2;
  u32 sparse : 1;
  u32 saturate : 1;
  u32 d_format : 2;  ///< 0 f16, 1 f32
  u32 : 1;
  u32 a_format : 3;  ///< 0 f16, 1 bf16
  u32 b_format : 3;
  u32 negate_a : 1;
  u32 negate_b : 1;
  u32 a_mn_major : 1;
  u32 b_mn_major : 1;
  u32 n_over_8 : 6;
  u32 : 1;
  u32 m_over_16 : 5;
  u32 : 1;
  u32 maximum_shift : 2;

  /// BF16 operands, FP32 D, K-major A.
  static constexpr InstructionDescriptor bf16(u32 m, u32 n, bool b_mn_major) {
    InstructionDescriptor d{};
    d.d_format = 1;
    d.a_format = 1;
    d.b_format = 1;
    d.b_mn_major = b_mn_major ? 1 : 0;
    d.n_over_8 = n >> 3 & 0x3f;
    d.m_over_16 = m >> 4 & 0x1f;
    return d;
  }
};
static_assert(sizeof(InstructionDescriptor) == 4);

/// What the block-scaled operands are made of.
///   mxf8f6f4  e4m3 or e5m2, e8m0 scales per 32;    32 k per instruction, 1 scale per row
///   mxf4      e2m1, e8m0 scales per 32;            64 k, 2 scales
///   mxf4nvf4  e2m1, e4m3 or e8m0 scales per 16;    64 k, 4 scales
enum class ScaledKind : u8 { mxf8f6f4, mxf4, mxf4nvf4 };

/// Instruction descriptor of the block-scaled kinds. A row's scales for four consecutive blocks are the bytes of one word
/// of tensor memory: a_scale_id and b_scale_id name the first byte the instruction reads.
struct ScaledInstructionDescriptor {
  u32 : 2;
  u32 sparse : 1;
  u32 : 1;
  u32 b_scale_id : 2;
  u32 : 1;
  u32 a_format : 3;  ///< mxf8f6f4: 0 e4m3, 1 e5m2, 5 e2m1; mxf4 and mxf4nvf4: 1 e2m1
  u32 b_format : 3;
  u32 negate_a : 1;
  u32 negate_b : 1;
  u32 a_mn_major : 1;
  u32 b_mn_major : 1;
  u32 n_over_8 : 6;
  u32 scale_format : 1;  ///< 0 e4m3, 1 e8m0
  u32 m_over_16 : 5;
  u32 a_scale_id : 2;
  u32 k_96 : 1;

  static constexpr ScaledInstructionDescriptor of(u32 format, u32 scale_format, u32 m, u32 n, bool b_mn_major,
                                                  u32 scale_id) {
    ScaledInstructionDescriptor d{};
    d.a_format = format & 7;
    d.b_format = format & 7;
    d.b_mn_major = b_mn_major ? 1 : 0;
    d.n_over_8 = n >> 3 & 0x3f;
    d.scale_format = scale_format & 1;
    d.m_over_16 = m >> 4 & 0x1f;
    d.a_scale_id = scale_id & 3;
    d.b_scale_id = scale_id & 3;
    return d;
  }
};
static_assert(sizeof(ScaledInstructionDescriptor) == 4);

template <u32 ctas>
void multiply_f16(TensorAddress d, OperandDescriptor a, OperandDescriptor b,
                  InstructionDescriptor instruction, bool accumulate, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_mma, site)) {
    model::tensor_multiply(e.t,
                           {.kind = model::TensorKind::f16,
                            .block = 0,
                            .ctas = ctas,
                            .d = d.value,
                            .a = __builtin_bit_cast(u64, a),
                            .b = __builtin_bit_cast(u64, b),
                            .instruction = __builtin_bit_cast(u32, instruction),
                            .accumulate = accumulate},
                           site);
  }
}

template <ScaledKind kind, u32 block, u32 ctas>
void multiply_scaled(TensorAddress d, OperandDescriptor a, OperandDescriptor b,
                     ScaledInstructionDescriptor instruction, TensorAddress a_scales, TensorAddress b_scales,
                     bool accumulate, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  constexpr model::TensorKind modelled = kind == ScaledKind::mxf8f6f4 ? model::TensorKind::mxf8f6f4
                                         : kind == ScaledKind::mxf4   ? model::TensorKind::mxf4
                                                                      : model::TensorKind::mxf4nvf4;
  if (Entry e = enter(model::Op::tensor_mma, site)) {
    model::tensor_multiply(e.t,
                           {.kind = modelled,
                            .block = block,
                            .ctas = ctas,
                            .d = d.value,
                            .a = __builtin_bit_cast(u64, a),
                            .b = __builtin_bit_cast(u64, b),
                            .instruction = __builtin_bit_cast(u32, instruction),
                            .a_scales = a_scales.value,
                            .b_scales = b_scales.value,
                            .accumulate = accumulate},
                           site);
  }
}

template <u32 ctas>
void copy_scales(TensorAddress to, OperandDescriptor from, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_copy, site)) {
    model::tensor_copy(e.t, to.value, __builtin_bit_cast(u64, from), ctas, site);
  }
}

template <u32 ctas>
void commit_tensor_work(Barrier barrier, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_commit, site))
    model::tensor_commit(e.t, barrier.address, {}, ctas, site);
}
template <u32 ctas>
void commit_tensor_work_multicast(Barrier barrier, u16 destinations, Site site = Site::here()) {
  static_assert(ctas == 1 || ctas == 2);
  if (Entry e = enter(model::Op::tensor_commit, site)) {
    model::tensor_commit(e.t, barrier.address, destinations, ctas, site);
  }
}

}  // namespace gemmule::ptx
