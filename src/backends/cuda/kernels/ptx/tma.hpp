// Copies of boxes between global tensors and shared memory by the Tensor Memory Accelerator. One thread issues them.
// Coordinates are elements, innermost dimension first. A load completes bytes on an mbarrier; stores are collected in
// groups of the issuing thread, which must be the one that commits and waits.
#pragma once

#include "ptx/mbarrier.hpp"
#include "ptx/tensor_map.hpp"

namespace gemmule::ptx {

/// L2 eviction priorities, as createpolicy.fractional encodes them for all lines.
enum class CachePolicy : u64 {
  normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,
  evict_last = 0x14F0000000000000,
};

/// prefetch.tensormap [a];
GEMMULE_DEVICE void prefetch(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [to], [map, {x, y}], [b], p;
GEMMULE_DEVICE void load_box(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier,
                             CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(barrier.address), "l"(static_cast<u64>(policy))
      : "memory");
}

/// The same from a tensor of three dimensions.
GEMMULE_DEVICE void load_box(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                             CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier.address), "l"(static_cast<u64>(policy))
      : "memory");
}

/// ....multicast::cluster.L2::cache_hint [to], [map, {x, y}], [b], ctas, p;  Bit r of `ctas`: write to the same offset of
/// CTA r's shared memory and complete the bytes on the same barrier there.
GEMMULE_DEVICE void load_box_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier,
                                       u16 ctas, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::"
      "cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(barrier.address), "h"(ctas), "l"(static_cast<u64>(policy))
      : "memory");
}

/// The same from a tensor of three dimensions.
GEMMULE_DEVICE void load_box_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z,
                                       Barrier barrier, u16 ctas, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::"
      "cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier.address), "h"(ctas), "l"(static_cast<u64>(policy))
      : "memory");
}

/// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], bytes, [b];  16-byte units.
GEMMULE_DEVICE void load_bytes(Shared<u8> to, const u8* from, u32 bytes, Barrier barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          to.address),
      "l"(from), "r"(bytes), "r"(barrier.address)
      : "memory");
}

/// cp.async.bulk.prefetch.L2.global [from], bytes;  16-byte units.
GEMMULE_DEVICE void prefetch_bytes(const u8* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [map, {x, y}], [from], p;
GEMMULE_DEVICE void store_box(const TensorMap* map, i32 x, i32 y, Shared<u8> from, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(
          map),
      "r"(x), "r"(y), "r"(from.address), "l"(static_cast<u64>(policy))
      : "memory");
}

/// cp.async.bulk.commit_group;
GEMMULE_DEVICE void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// cp.async.bulk.wait_group.read N;  All but the latest N groups have read their shared memory.
template <int pending>
GEMMULE_DEVICE void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/// cp.async.bulk.wait_group N;  All but the latest N groups are complete and visible to this thread.
template <int pending>
GEMMULE_DEVICE void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/// tensormap.replace.tile.global_address.global.b1024.b64 [map], address;
GEMMULE_DEVICE void replace_address(TensorMap* map, u64 address) {
  asm volatile(
      "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(__cvta_generic_to_global(map)),
      "l"(address)
      : "memory");
}

/// fence.proxy.tensormap::generic.release.gpu;  after a tensor map in global memory was written.
GEMMULE_DEVICE void fence_tensor_map_release() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

/// fence.proxy.tensormap::generic.acquire.gpu [map], 128;  before the first use of a map another thread has written.
GEMMULE_DEVICE void fence_tensor_map_acquire(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace gemmule::ptx
