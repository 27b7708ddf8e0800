// Barriers in shared memory that count arrivals and bytes of asynchronous copies.
#pragma once

#include "engine/barriers.hpp"
#include "engine/tma.hpp"
#include "ptx/shared.hpp"

namespace gemmule::ptx {

struct alignas(8) Mbarrier {
  u64 state;
};
using Barrier = Shared<Mbarrier>;

inline void init(Barrier barrier, u32 count, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_init, site))
    model::mbarrier_init(e.t, barrier.address, count, site);
}
inline void fence_barrier_init(Site site = Site::here()) {
  if (Entry e = enter(model::Op::fence_mbarrier_init, site)) model::fence_mbarrier_init(e.t);
}
inline void arrive(Barrier barrier, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_arrive, site))
    model::mbarrier_arrive(e.t, barrier.address, 0, site);
}
inline void arrive_if(bool arrives, Barrier barrier, Site site = Site::here()) {
  if (arrives) arrive(barrier, site);
}
inline void arrive_expect_bytes(Barrier barrier, u32 bytes, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_expect_tx, site)) {
    model::mbarrier_arrive(e.t, barrier.address, bytes, site);
  }
}
inline u32 map_shared(u32 address, u32 cta) {
  return model::map_rank(address, cta);
}
inline void arrive_remote(Barrier barrier, u32 cta, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_arrive, site)) {
    model::require_cluster(e.t, site);
    model::mbarrier_arrive(e.t, map_shared(barrier.address, cta), 0, site);
  }
}
inline void arrive_expect_bytes_remote(Barrier barrier, u32 cta, u32 bytes, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_expect_tx, site)) {
    model::require_cluster(e.t, site);
    model::mbarrier_arrive(e.t, map_shared(barrier.address, cta), bytes, site);
  }
}
inline void store_remote(Shared<U32x4> to, U32x4 value, Barrier barrier, u32 cta, Site site = Site::here()) {
  if (Entry e = enter(model::Op::store_async, site, 16)) {
    model::require_cluster(e.t, site);
    model::store_async(e.t, map_shared(to.address, cta), &value, map_shared(barrier.address, cta), site);
  }
}
inline void wait(Barrier barrier, u32 parity, Site site = Site::here()) {
  if (Entry e = enter(model::Op::mbarrier_wait, site))
    model::mbarrier_wait(e.t, barrier.address, parity, site);
}
inline bool test(Barrier barrier, u32 parity, Site site = Site::here()) {
  Entry e = enter(model::Op::mbarrier_wait, site);
  return !e || model::mbarrier_test(e.t, barrier.address, parity, site);
}
inline void wait_asleep(Barrier barrier, u32 parity, Site site = Site::here()) {
  wait(barrier, parity, site);
}

}  // namespace gemmule::ptx
