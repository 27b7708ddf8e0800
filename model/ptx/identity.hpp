// Who is running: thread, warp, CTA and cluster. Grids and CTAs are one-dimensional.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

inline constexpr u32 warp_size = 32;
inline constexpr u32 warpgroup_size = 128;

inline u32 thread_index() {
  return static_cast<u32>(model::current().index);
}
inline u32 reread_thread_index() {
  return thread_index();
}
inline u64 computed_here(u64 value) {
  return value;
}
inline u32 computed_here(u32 value) {
  return value;
}
template <int number>
inline void stay() {}
inline u32 lane_index() {
  return static_cast<u32>(model::current().lane);
}
inline u32 warp_index() {
  return thread_index() / warp_size;
}
inline u32 cta_index() {
  return static_cast<u32>(model::current().cta->index);
}
inline u32 cta_count() {
  return static_cast<u32>(model::current().machine->options().grid);
}
inline u32 thread_count() {
  return static_cast<u32>(model::current().machine->options().threads);
}
inline u32 cluster_cta_rank() {
  return static_cast<u32>(model::current().cta->rank);
}
inline u32 cluster_index() {
  return static_cast<u32>(model::current().cta->cluster->index);
}
inline u32 cluster_count() {
  const model::LaunchOptions& o = model::current().machine->options();
  return static_cast<u32>(o.grid / o.cluster);
}

}  // namespace gemmule::ptx
