// Tensor memory of sm_100: 128 lanes x 512 columns of 32 bits per CTA. It is allocated in columns, written by
// tcgen05.mma and tcgen05.cp, and read into registers by warps, each of which sees its own 32 lanes.
#pragma once

#include "ptx/shared.hpp"

namespace gemmule::ptx {

inline constexpr u32 tensor_columns = 512;

/// Lane in bits 31..16, column in bits 15..0.
struct TensorAddress {
  u32 value;

  GEMMULE_DEVICE TensorAddress columns(u32 count) const { return {value + count}; }
  GEMMULE_DEVICE TensorAddress lanes(u32 count) const { return {value + (count << 16)}; }
};

/// tcgen05.alloc.cta_group::N.sync.aligned.shared::cta.b32 [to], columns;  One warp (with two CTAs: one of each);
/// `columns` is a power of two, 32 to 512. Writes the address of the first column. Waits until there is room.
template <u32 ctas>
GEMMULE_DEVICE void allocate_tensor(Shared<u32> to, u32 columns) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to.address),
               "r"(columns), "n"(ctas)
               : "memory");
}

/// tcgen05.relinquish_alloc_permit.cta_group::N.sync.aligned;  This CTA will not allocate again.
template <u32 ctas>
GEMMULE_DEVICE void relinquish_tensor_allocation() {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(ctas) : "memory");
}

/// tcgen05.dealloc.cta_group::N.sync.aligned.b32 a, columns;  One warp (with two CTAs: one of each), before the CTA ends.
template <u32 ctas>
GEMMULE_DEVICE void free_tensor(TensorAddress address, u32 columns) {
  static_assert(ctas == 1 || ctas == 2);
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address.value), "r"(columns),
               "n"(ctas)
               : "memory");
}

/// Registers that a load fills: element i is column i of the lane of this thread. They may be read after
/// wait_tensor_load() only.
template <int N>
struct TensorRow {
  float value[N];

  GEMMULE_DEVICE float get(int index) const { return value[index]; }
  GEMMULE_DEVICE void set(int index, float x) { value[index] = x; }
};

#define GEMMULE_TENSOR_4(c, i) c(r.value[i]), c(r.value[i + 1]), c(r.value[i + 2]), c(r.value[i + 3])
#define GEMMULE_TENSOR_16(c, i) \
  GEMMULE_TENSOR_4(c, i), GEMMULE_TENSOR_4(c, i + 4), GEMMULE_TENSOR_4(c, i + 8), GEMMULE_TENSOR_4(c, i + 12)

/// tcgen05.ld.sync.aligned.32x32b.x32.b32 r, [a];  32 columns. `from` names the first lane of the warp: 32 (warp % 4).
GEMMULE_DEVICE void load_tensor(TensorRow<32>& r, TensorAddress from) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
      : GEMMULE_TENSOR_16("=f", 0), GEMMULE_TENSOR_16("=f", 16)
      : "r"(from.value));
}

/// tcgen05.wait::ld.sync.aligned;  This thread's loads are complete. Names the registers, so that nothing that reads
/// them moves above the wait.
GEMMULE_DEVICE void wait_tensor_load(TensorRow<32>& r) {
  asm volatile("tcgen05.wait::ld.sync.aligned;"
               : GEMMULE_TENSOR_16("+f", 0), GEMMULE_TENSOR_16("+f", 16)::"memory");
}

/// tcgen05.st.sync.aligned.32x32b.x32.b32 [a], r;  32 columns of this warp's lanes.
GEMMULE_DEVICE void store_tensor(TensorAddress to, const TensorRow<32>& r) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31};" ::GEMMULE_TENSOR_16(
          "f", 0),
      GEMMULE_TENSOR_16("f", 16), "r"(to.value)
      : "memory");
}

/// tcgen05.wait::st.sync.aligned;  This thread's stores are complete.
GEMMULE_DEVICE void wait_tensor_store() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

#undef GEMMULE_TENSOR_16
#undef GEMMULE_TENSOR_4

/// tcgen05.fence::before_thread_sync;  Orders this thread's earlier tcgen05 operations before the barrier that follows.
GEMMULE_DEVICE void fence_tensor_before_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

/// tcgen05.fence::after_thread_sync;  Orders this thread's later tcgen05 operations after the barrier before it.
GEMMULE_DEVICE void fence_tensor_after_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

}  // namespace gemmule::ptx
