// Barriers in shared memory that count arrivals and bytes of asynchronous copies. A phase completes when as many threads
// have arrived as init() said and all expected bytes are there; wait() names the parity of the phase it waits for
// (0 for the first; a fresh barrier counts as having completed a phase of parity 1).
#pragma once

#include "ptx/shared.hpp"

namespace gemmule::ptx {

struct alignas(8) Mbarrier {
  u64 state;
};
using Barrier = Shared<Mbarrier>;

/// mbarrier.init.shared::cta.b64 [a], count;
GEMMULE_DEVICE void init(Barrier barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.address), "r"(count) : "memory");
}

/// fence.mbarrier_init.release.cluster;  after init(), before the cluster barrier that publishes it.
GEMMULE_DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive.release.cta.shared::cta.b64 _, [a];
GEMMULE_DEVICE void arrive(Barrier barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier.address) : "memory");
}

/// arrive() by a thread for which `arrives` holds: one predicated instruction, without a branch around it.
GEMMULE_DEVICE void arrive_if(bool arrives, Barrier barrier) {
  asm volatile(
      "{\n"
      ".reg .pred arrives;\n"
      "setp.ne.u32 arrives, %1, 0;\n"
      "@arrives mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(barrier.address),
      "r"(static_cast<u32>(arrives))
      : "memory");
}

/// mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [a], bytes;  Bytes may arrive before they are expected.
GEMMULE_DEVICE void arrive_expect_bytes(Barrier barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address),
               "r"(bytes)
               : "memory");
}

/// mapa.shared::cluster.u32 d, a, cta;  The address of `cta`'s shared memory that corresponds to ours.
GEMMULE_DEVICE u32 map_shared(u32 address, u32 cta) {
  u32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta));
  return mapped;
}

/// mapa; mbarrier.arrive.shared::cluster.b64 _, [a];  on the same barrier of another CTA of the cluster
/// (or of this one). Scope CTA, the default: orders what the barrier itself tracks, not ordinary stores to other memory
/// (.release.cluster would be a full memory barrier, over a thousand clocks).
GEMMULE_DEVICE void arrive_remote(Barrier barrier, u32 cta) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(map_shared(barrier.address, cta))
               : "memory");
}

/// mapa; mbarrier.arrive.expect_tx.shared::cluster.b64 _, [a], bytes;
GEMMULE_DEVICE void arrive_expect_bytes_remote(Barrier barrier, u32 cta, u32 bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(map_shared(barrier.address, cta)),
      "r"(bytes)
      : "memory");
}

/// mapa; st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [a], {..}, [barrier];  16 bytes into another
/// CTA of the cluster (or this one); completes 16 bytes of its barrier.
GEMMULE_DEVICE void store_remote(Shared<U32x4> to, U32x4 value, Barrier barrier, u32 cta) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          map_shared(to.address, cta)),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(map_shared(barrier.address, cta))
      : "memory");
}

/// mbarrier.try_wait.parity.shared::cta.b64 p, [a], parity;  (acquire, CTA scope) repeated until it succeeds.
GEMMULE_DEVICE void wait(Barrier barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier.address),
      "r"(parity)
      : "memory");
}

/// mbarrier.test_wait.parity.shared::cta.b64 p, [a], parity;  Whether wait() would return at once, and if so with its effect: where
/// the answer is needed only later, it costs no time.
GEMMULE_DEVICE bool test(Barrier barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier.address), "r"(parity)
      : "memory");
  return done != 0;
}

/// wait() of warps that wait most of the time: the thread sleeps until the phase completes (try_wait with a time limit,
/// 10 ms), instead of trying again and again in issue slots that others need.
GEMMULE_DEVICE void wait_asleep(Barrier barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 10000000;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier.address),
      "r"(parity)
      : "memory");
}

}  // namespace gemmule::ptx
