// Copies of boxes between global tensors and shared memory by the Tensor Memory Accelerator.
#pragma once

#include "ptx/mbarrier.hpp"
#include "ptx/tensor_map.hpp"

namespace gemmule::ptx {

enum class CachePolicy : u64 {
  normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,
  evict_last = 0x14F0000000000000,
};

inline void prefetch(const TensorMap* map, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_prefetch, site)) model::tma_prefetch(e.t, map, site);
}
inline void load_box(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier, CachePolicy,
                     Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load(e.t, to.address, {map, 2, {x, y}}, barrier.address, {}, site);
  }
}
inline void load_box(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier, CachePolicy,
                     Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load(e.t, to.address, {map, 3, {x, y, z}}, barrier.address, {}, site);
  }
}
inline void load_box_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier, u16 ctas,
                               CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load(e.t, to.address, {map, 2, {x, y}}, barrier.address, ctas, site);
  }
}
inline void load_box_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                               u16 ctas, CachePolicy, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site)) {
    model::tma_load(e.t, to.address, {map, 3, {x, y, z}}, barrier.address, ctas, site);
  }
}
inline void load_bytes(Shared<u8> to, const u8* from, u32 bytes, Barrier barrier, Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_load, site))
    model::bulk_load(e.t, to.address, from, bytes, barrier.address, site);
}
inline void prefetch_bytes(const u8*, u32) {}
inline void store_box(const TensorMap* map, i32 x, i32 y, Shared<u8> from, CachePolicy,
                      Site site = Site::here()) {
  if (Entry e = enter(model::Op::tma_store, site))
    model::tma_store(e.t, {map, 2, {x, y}}, from.address, site);
}
inline void commit_stores(Site site = Site::here()) {
  if (Entry e = enter(model::Op::bulk_commit, site)) model::bulk_commit(e.t);
}
template <int pending>
void wait_stores_read(Site site = Site::here()) {
  if (Entry e = enter(model::Op::bulk_wait_read, site)) model::bulk_wait(e.t, pending, true);
}
template <int pending>
void wait_stores(Site site = Site::here()) {
  if (Entry e = enter(model::Op::bulk_wait, site)) model::bulk_wait(e.t, pending, false);
}
inline void replace_address(TensorMap* map, u64 address, Site site = Site::here()) {
  if (Entry e = enter(model::Op::global_store, site)) model::replace_map_address(e.t, map, address, site);
}
inline void fence_tensor_map_release(Site site = Site::here()) {
  enter(model::Op::fence_tensor_map, site);
}
inline void fence_tensor_map_acquire(const TensorMap* map, Site site = Site::here()) {
  if (Entry e = enter(model::Op::fence_tensor_map, site)) model::acquire_map(e.t, map);
}

}  // namespace gemmule::ptx
