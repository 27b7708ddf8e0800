// Asynchronous matrix multiply-accumulate of a warpgroup, sm_90a: D[64][N] += A[64][16] * B[N][16]^T, BF16 operands in
// shared memory (or A in registers and FP16 operands), FP32 accumulators in registers. Accumulators and operands in registers may be touched only
// before fence_accumulators() of the next multiplication and after a wait that covers the last one.
#pragma once

#include "ptx/shared.hpp"

namespace gemmule::ptx {

/// Shared-memory matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor Format"). Byte quantities are stored divided by
/// 16, so 18-bit addresses fit 14 bits. With the 128-byte swizzle, rows of 128 bytes form groups of eight (1024 bytes,
/// the alignment of a tile).
///   K-major:  stride_bytes between groups of 8 rows; leading_bytes is not used.
///   MN-major: leading_bytes between spans of 64 rows (M or N), stride_bytes between groups of 8 k.
struct MatrixDescriptor {
  u64 address : 14;
  u64 : 2;
  u64 leading_bytes : 14;
  u64 : 2;
  u64 stride_bytes : 14;
  u64 : 3;
  u64 base_offset : 3;
  u64 : 10;
  u64 swizzle : 2;  ///< 0 none, 1 128-byte, 2 64-byte, 3 32-byte

  /// The descriptor of what lies `bytes` further on (a multiple of 16, within the swizzle span for K-major steps).
  GEMMULE_DEVICE MatrixDescriptor advance(u32 bytes) const {
    const u64 value = __builtin_bit_cast(u64, *this) + (bytes >> 4);
    return __builtin_bit_cast(MatrixDescriptor, value);
  }
};
static_assert(sizeof(MatrixDescriptor) == 8);

GEMMULE_DEVICE MatrixDescriptor swizzled_128(Shared<u8> tile, u32 leading_bytes, u32 stride_bytes) {
  MatrixDescriptor d{};
  d.address = tile.address >> 4;
  d.leading_bytes = leading_bytes >> 4;
  d.stride_bytes = stride_bytes >> 4;
  d.swizzle = 1;
  return d;
}

/// FP32 accumulators of a 64 x N tile, N/2 per thread. Element 4j + 2h + c of thread t belongs to row
/// 16 (t / 32) + (t % 32) / 4 + 8 h and column 8 j + 2 (t % 4) + c.
template <int N>
struct Accumulator {
  static constexpr int count = N / 2;
  float value[count];

  GEMMULE_DEVICE float get(int index) const { return value[index]; }
  GEMMULE_DEVICE void scale(float factor) {
#pragma unroll
    for (int i = 0; i < count; ++i) value[i] *= factor;
  }
  GEMMULE_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < count; ++i) value[i] = 0;
  }
  /// Elements first .. first + number - 1 become elements 0 .. number - 1; number <= first. The others stay.
  GEMMULE_DEVICE void bring_down(int first, int number) {
#pragma unroll
    for (int i = 0; i < number; ++i) value[i] = value[first + i];
  }
};

/// One thread's part of A[64][16] in registers: pairs of neighbouring k of rows r = 16 (t / 32) + (t % 32) / 4 and r + 8:
///   pair 0  row r, k = 2 (t % 4) and the next      pair 2  row r, k + 8
///   pair 1  row r + 8, the same k                  pair 3  row r + 8, k + 8
struct OperandA {
  u32 pair[4];
  GEMMULE_DEVICE void set(int index, u32 value) { pair[index] = value; }
  GEMMULE_DEVICE u32 get(int index) const { return pair[index]; }
};

/// wgmma.fence.sync.aligned;
GEMMULE_DEVICE void fence_accumulators() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// wgmma.commit_group.sync.aligned;
GEMMULE_DEVICE void commit_multiplications() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// wgmma.wait_group.sync.aligned N;  All but the latest N groups of this warpgroup are complete.
template <int pending>
GEMMULE_DEVICE void wait_multiplications() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 d, a, b, scale_d, 1, 1, 0, transpose_b;
// The first `width` columns of the accumulator; scale_d = 0 starts from zero. a is K-major; b_mn_major: b is MN-major.
template <int N>
struct Width {};

#define GEMMULE_ACCUMULATORS_4(i) \
  "+f"(d.value[i]), "+f"(d.value[i + 1]), "+f"(d.value[i + 2]), "+f"(d.value[i + 3])
#define GEMMULE_ACCUMULATORS_16(i)                                                         \
  GEMMULE_ACCUMULATORS_4(i), GEMMULE_ACCUMULATORS_4(i + 4), GEMMULE_ACCUMULATORS_4(i + 8), \
      GEMMULE_ACCUMULATORS_4(i + 12)

template <bool b_mn_major, int N>
requires(N >= 64) GEMMULE_DEVICE void multiply_width(Width<64>, Accumulator<N>& d, MatrixDescriptor a,
                                                     MatrixDescriptor b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, %35;\n"
      "}"
      : GEMMULE_ACCUMULATORS_16(0), GEMMULE_ACCUMULATORS_16(16)
      : "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)), "r"(static_cast<u32>(accumulate)),
        "n"(b_mn_major ? 1 : 0));
}

template <bool b_mn_major, int N>
requires(N >= 128) GEMMULE_DEVICE void multiply_width(Width<128>, Accumulator<N>& d, MatrixDescriptor a,
                                                      MatrixDescriptor b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %67;\n"
      "}"
      : GEMMULE_ACCUMULATORS_16(0), GEMMULE_ACCUMULATORS_16(16), GEMMULE_ACCUMULATORS_16(32),
        GEMMULE_ACCUMULATORS_16(48)
      : "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)), "r"(static_cast<u32>(accumulate)),
        "n"(b_mn_major ? 1 : 0));
}

template <bool b_mn_major, int N>
requires(N >= 192) GEMMULE_DEVICE void multiply_width(Width<192>, Accumulator<N>& d, MatrixDescriptor a,
                                                      MatrixDescriptor b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, p, 1, 1, 0, %99;\n"
      "}"
      : GEMMULE_ACCUMULATORS_16(0), GEMMULE_ACCUMULATORS_16(16), GEMMULE_ACCUMULATORS_16(32),
        GEMMULE_ACCUMULATORS_16(48), GEMMULE_ACCUMULATORS_16(64), GEMMULE_ACCUMULATORS_16(80)
      : "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)), "r"(static_cast<u32>(accumulate)),
        "n"(b_mn_major ? 1 : 0));
}

template <bool b_mn_major, int N>
requires(N >= 256) GEMMULE_DEVICE void multiply_width(Width<256>, Accumulator<N>& d, MatrixDescriptor a,
                                                      MatrixDescriptor b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, %131;\n"
      "}"
      : GEMMULE_ACCUMULATORS_16(0), GEMMULE_ACCUMULATORS_16(16), GEMMULE_ACCUMULATORS_16(32),
        GEMMULE_ACCUMULATORS_16(48), GEMMULE_ACCUMULATORS_16(64), GEMMULE_ACCUMULATORS_16(80),
        GEMMULE_ACCUMULATORS_16(96), GEMMULE_ACCUMULATORS_16(112)
      : "l"(__builtin_bit_cast(u64, a)), "l"(__builtin_bit_cast(u64, b)), "r"(static_cast<u32>(accumulate)),
        "n"(b_mn_major ? 1 : 0));
}

// ... d, {a0, a1, a2, a3}, b, scale_d, 1, 1, transpose_b;  a in registers; both operands BF16, or FP16.
// The operands' type, "f16" or "bf16", is part of the text.
#define GEMMULE_MULTIPLY_128(type)                                                                       \
  asm volatile(                                                                                          \
      "{\n"                                                                                              \
      ".reg .pred p;\n"                                                                                  \
      "setp.ne.u32 p, %69, 0;\n"                                                                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                       \
      " {"                                                                                               \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                 \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                 \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                \
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n"                                                       \
      "}"                                                                                                \
      : GEMMULE_ACCUMULATORS_16(0), GEMMULE_ACCUMULATORS_16(16), GEMMULE_ACCUMULATORS_16(32),            \
        GEMMULE_ACCUMULATORS_16(48)                                                                      \
      : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "l"(__builtin_bit_cast(u64, b)), \
        "r"(static_cast<u32>(accumulate)), "n"(b_mn_major ? 1 : 0))

template <bool fp16, bool b_mn_major, int N>
requires(N >= 128) GEMMULE_DEVICE void multiply_width(Width<128>, Accumulator<N>& d, const OperandA& a,
                                                      MatrixDescriptor b, bool accumulate) {
  if constexpr (fp16)
    GEMMULE_MULTIPLY_128("f16");
  else
    GEMMULE_MULTIPLY_128("bf16");
}

#undef GEMMULE_MULTIPLY_128
#undef GEMMULE_ACCUMULATORS_16
#undef GEMMULE_ACCUMULATORS_4

template <int width, bool b_mn_major, int N>
GEMMULE_DEVICE void multiply(Accumulator<N>& d, MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  multiply_width<b_mn_major>(Width<width>{}, d, a, b, accumulate);
}
template <int width, bool fp16, bool b_mn_major, int N>
GEMMULE_DEVICE void multiply(Accumulator<N>& d, const OperandA& a, MatrixDescriptor b, bool accumulate) {
  multiply_width<fp16, b_mn_major>(Width<width>{}, d, a, b, accumulate);
}

}  // namespace gemmule::ptx
