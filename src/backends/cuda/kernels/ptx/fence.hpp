// Barriers among the threads of a CTA or a cluster, and the fence between ordinary and asynchronous accesses.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// fence.proxy.async.shared::cta;  Orders this thread's ordinary accesses to shared memory before asynchronous ones (TMA,
/// wgmma) that follow the next barrier.
GEMMULE_DEVICE void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// bar.sync 0;  all threads of the CTA.
GEMMULE_DEVICE void sync_cta() {
  asm volatile("bar.sync 0;" ::: "memory");
}

/// bar.sync id, threads;  id 1..15; `threads` counts all that sync or arrive, a multiple of 32.
GEMMULE_DEVICE void named_barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive id, threads;
GEMMULE_DEVICE void named_barrier_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// barrier.cluster.arrive.release; barrier.cluster.wait.acquire;  all threads of all CTAs of the cluster.
GEMMULE_DEVICE void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

}  // namespace gemmule::ptx
