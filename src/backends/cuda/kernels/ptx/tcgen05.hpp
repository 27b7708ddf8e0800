// Matrix multiply-accumulate of sm_100: D[M][N] += A[M][K] B[N][K]^T with A and B in shared memory, FP32 D in tensor
// memory, issued by one thread for one CTA or for a pair (the two CTAs of a cluster whose ranks differ in bit 0). The
// operations of one thread execute in order; commit_tensor_work() makes an mbarrier track their completion.
//
// One CTA, M = 128: row m of D is lane m, column n of D is column n. A pair, M = 256: rows 0..127 lie in the even CTA's
// tensor memory and 128..255 in the odd one's, each with all N columns; each CTA's shared memory holds its 128 rows of A
// and its half of the N rows of B, at the same offsets.
#pragma once

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

  GEMMULE_DEVICE static OperandDescriptor of(Shared<u8> tile, u32 leading_bytes, u32 stride_bytes,
                                             OperandSwizzle swizzle) {
    OperandDescriptor d{};
    d.address = tile.address >> 4;
    d.leading_bytes = leading_bytes >> 4;
    d.stride_bytes = stride_bytes >> 4;
    d.version = 1;
    d.swizzle = static_cast<u64>(swizzle);
    return d;
  }
  /// The descriptor of what lies `bytes` further on (a multiple of 16, within the swizzle span for K-major steps).
  GEMMULE_DEVICE OperandDescriptor advance(u32 bytes) const {
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
  GEMMULE_DEVICE static constexpr InstructionDescriptor bf16(u32 m, u32 n, bool b_mn_major) {
    InstructionDescriptor d{};
    d.d_format = 1;
    d.a_format = 1;
    d.b_format = 1;
    d.b_mn_major = b_mn_major ? 1 : 0;
    d.n_over_8 = n >> 3;
    d.m_over_16 = m >> 4;
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

  GEMMULE_DEVICE static constexpr ScaledInstructionDescriptor of(u32 format, u32 scale_format, u32 m, u32 n,
                                                                 bool b_mn_major, u32 scale_id) {
    ScaledInstructionDescriptor d{};
    d.a_format = format;
    d.b_format = format;
    d.b_mn_major = b_mn_major ? 1 : 0;
    d.n_over_8 = n >> 3;
    d.scale_format = scale_format;
    d.m_over_16 = m >> 4;
    d.a_scale_id = scale_id;
    d.b_scale_id = scale_id;
    return d;
  }
};
static_assert(sizeof(ScaledInstructionDescriptor) == 4);

/// tcgen05.mma.cta_group::N.kind::f16 [d], a, b, instruction, p;  16 k. accumulate = false: D starts from zero.
template <u32 ctas>
GEMMULE_DEVICE void multiply_f16(TensorAddress d, OperandDescriptor a, OperandDescriptor b,
                                 InstructionDescriptor instruction, bool accumulate) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, p;\n"
      "}" ::"r"(d.value),
      "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)),
      "r"(__builtin_bit_cast(u32, instruction)), "r"(static_cast<u32>(accumulate)), "n"(ctas)
      : "memory");
}

/// tcgen05.mma.cta_group::N.kind::K.block_scale.blockB [d], a, b, instruction, [a_scales], [b_scales], p;
/// The scales of rows 32 i + l (l < 32) of A are in column i of a_scales, lane l, and the same in lanes 32 + l, 64 + l,
/// 96 + l; those of B likewise, all N rows, with two CTAs in both.
template <ScaledKind kind, u32 block, u32 ctas>
GEMMULE_DEVICE void multiply_scaled(TensorAddress d, OperandDescriptor a, OperandDescriptor b,
                                    ScaledInstructionDescriptor instruction, TensorAddress a_scales,
                                    TensorAddress b_scales, bool accumulate) {
  static_assert(ctas == 1 || ctas == 2);
  static_assert(kind == ScaledKind::mxf4nvf4 ? block == 16 : block == 32,
                "mxf4nvf4 scales blocks of 16, the others blocks of 32");
#define GEMMULE_MULTIPLY_SCALED(what)                                                      \
  asm volatile(                                                                            \
      "{\n"                                                                                \
      ".reg .pred p;\n"                                                                    \
      "setp.ne.u32 p, %6, 0;\n"                                                            \
      "tcgen05.mma.cta_group::%7." what                                                    \
      " [%0], %1, %2, %3, [%4], [%5], p;\n"                                                \
      "}" ::"r"(d.value),                                                                  \
      "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)),                    \
      "r"(__builtin_bit_cast(u32, instruction)), "r"(a_scales.value), "r"(b_scales.value), \
      "r"(static_cast<u32>(accumulate)), "n"(ctas)                                         \
      : "memory")
  if constexpr (kind == ScaledKind::mxf8f6f4)
    GEMMULE_MULTIPLY_SCALED("kind::mxf8f6f4.block_scale.block32");
  else if constexpr (kind == ScaledKind::mxf4)
    GEMMULE_MULTIPLY_SCALED("kind::mxf4.block_scale.block32");
  else
    GEMMULE_MULTIPLY_SCALED("kind::mxf4nvf4.block_scale.block16");
#undef GEMMULE_MULTIPLY_SCALED
}

/// tcgen05.cp.cta_group::N.32x128b.warpx4 [to], from;  512 bytes, 32 rows of 16: row l goes to four columns of lanes l,
/// 32 + l, 64 + l and 96 + l. With two CTAs, in each from its own shared memory. Ordered before the multiplications
/// that this thread issues afterwards, and after those before.
template <u32 ctas>
GEMMULE_DEVICE void copy_scales(TensorAddress to, OperandDescriptor from) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(to.value),
               "l"(__builtin_bit_cast(u64, from)), "n"(ctas)
               : "memory");
}

/// tcgen05.commit.cta_group::N.mbarrier::arrive::one.shared::cluster.b64 [b];  An arrival on this CTA's barrier when all
/// multiplications and copies that this thread has issued so far are complete.
template <u32 ctas>
GEMMULE_DEVICE void commit_tensor_work(Barrier barrier) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile(
      "tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier.address),
      "n"(ctas)
      : "memory");
}

/// ....multicast::cluster.b64 [b], ctas;  The same on the barrier at the same offset of every CTA r whose bit r is set.
template <u32 ctas>
GEMMULE_DEVICE void commit_tensor_work_multicast(Barrier barrier, u16 destinations) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile(
      "tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::
          "r"(barrier.address),
      "h"(destinations), "n"(ctas)
      : "memory");
}

}  // namespace gemmule::ptx
