// Barriers among the threads of a CTA or a cluster, and the fence between ordinary and asynchronous accesses.
#pragma once

#include "engine/barriers.hpp"
#include "ptx/types.hpp"

namespace gemmule::ptx {

inline void fence_async_shared(Site site = Site::here()) {
  if (Entry e = enter(model::Op::fence_proxy_async, site)) {
    e.t.clock.fence();
    e.t.released = true;
    model::fence_mbarrier_init(e.t);
  }
}
inline void sync_cta(Site site = Site::here()) {
  if (Entry e = enter(model::Op::barrier_sync, site)) {
    model::named_barrier(e.t, 0, static_cast<u32>(e.t.machine->options().threads), true, site);
  }
}
inline void named_barrier_sync(u32 id, u32 threads, Site site = Site::here()) {
  if (Entry e = enter(model::Op::barrier_sync, site)) model::named_barrier(e.t, id, threads, true, site);
}
inline void named_barrier_arrive(u32 id, u32 threads, Site site = Site::here()) {
  if (Entry e = enter(model::Op::barrier_arrive, site)) model::named_barrier(e.t, id, threads, false, site);
}
inline void sync_cluster(Site site = Site::here()) {
  if (Entry e = enter(model::Op::cluster_sync, site)) {
    model::require_cluster(e.t, site);
    model::cluster_arrive(e.t);
    model::cluster_wait(e.t, site);
  }
}

}  // namespace gemmule::ptx
