// TMA loads for a pair of CTAs that multiply together (sm_100): each loads into its own shared memory and completes the
// bytes on the barrier of the even one. Modelled, never run on hardware.
#pragma once

#include "ptx/tma.hpp"

namespace gemmule::ptx {

inline void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier, u32 leader,
                          CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::require_cluster(e.t, site);
    model::tma_load_pair(e.t, to.address, {map, 2, {x, y}}, map_shared(barrier.address, leader), 0, site);
  }
}
inline void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                          u32 leader, CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::require_cluster(e.t, site);
    model::tma_load_pair(e.t, to.address, {map, 3, {x, y, z}}, map_shared(barrier.address, leader), 0, site);
  }
}

}  // namespace gemmule::ptx
