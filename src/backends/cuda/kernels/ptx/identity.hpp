// Who is running: thread, warp, CTA and cluster. Grids and CTAs are one-dimensional.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

inline constexpr u32 warp_size = 32;
inline constexpr u32 warpgroup_size = 128;

/// %tid.x
GEMMULE_DEVICE u32 thread_index() {
  u32 value;
  asm("mov.u32 %0, %%tid.x;" : "=r"(value));
  return value;
}

/// %tid.x, read where it is called: the compiler neither moves nor merges this, so that nothing computed from it occupies
/// a register before.
GEMMULE_DEVICE u32 reread_thread_index() {
  u32 value;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(value));
  return value;
}

/// `value`, computed before whatever volatile follows.
GEMMULE_DEVICE u64 computed_here(u64 value) {
  asm volatile("" : "+l"(value));
  return value;
}

GEMMULE_DEVICE u32 computed_here(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// Nothing. Different `number` are never merged and a branch around one stays a branch.
template <int number>
GEMMULE_DEVICE void stay() {
  asm volatile("// %0" ::"n"(number));
}

/// %laneid
GEMMULE_DEVICE u32 lane_index() {
  u32 value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

/// thread_index() / 32, broadcast by shfl.sync so that the compiler knows it is the same in the whole warp.
GEMMULE_DEVICE u32 warp_index() {
  u32 value;
  asm("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(value) : "r"(thread_index() / warp_size));
  return value;
}

/// %ctaid.x
GEMMULE_DEVICE u32 cta_index() {
  u32 value;
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(value));
  return value;
}

/// %nctaid.x
GEMMULE_DEVICE u32 cta_count() {
  u32 value;
  asm("mov.u32 %0, %%nctaid.x;" : "=r"(value));
  return value;
}

/// %ntid.x
GEMMULE_DEVICE u32 thread_count() {
  u32 value;
  asm("mov.u32 %0, %%ntid.x;" : "=r"(value));
  return value;
}

/// %cluster_ctarank: index of this CTA in its cluster.
GEMMULE_DEVICE u32 cluster_cta_rank() {
  u32 value;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
  return value;
}

/// %clusterid.x
GEMMULE_DEVICE u32 cluster_index() {
  u32 value;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(value));
  return value;
}

/// %nclusterid.x
GEMMULE_DEVICE u32 cluster_count() {
  u32 value;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(value));
  return value;
}

}  // namespace gemmule::ptx
