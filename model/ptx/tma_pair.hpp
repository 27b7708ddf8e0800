// TMA loads for pairs of CTAs that multiply together (sm_100): into the own shared memory, or also into that of CTAs of other
// pairs; the bytes complete on the barrier of the even CTA of the destination's pair. Modelled, never run on hardware.
#pragma once

#include "ptx/tma.hpp"

namespace gemmule::ptx {

inline void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier, u32 leader,
                          CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::require_cluster(e.t, site);
    model::tma_load_pair(e.t, to.address, {map, 2, {x, y}}, map_shared(barrier.address, leader), {}, site);
  }
}
inline void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                          u32 leader, CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::require_cluster(e.t, site);
    model::tma_load_pair(e.t, to.address, {map, 3, {x, y, z}}, map_shared(barrier.address, leader), {}, site);
  }
}
inline void load_box_pair_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier,
                                    u32 leader, u16 ctas, CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load_pair(e.t, to.address, {map, 2, {x, y}}, map_shared(barrier.address, leader), ctas, site);
  }
}
inline void load_box_pair_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                                    u32 leader, u16 ctas, CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load_pair(e.t, to.address, {map, 3, {x, y, z}}, map_shared(barrier.address, leader), ctas,
                         site);
  }
}

}  // namespace gemmule::ptx
