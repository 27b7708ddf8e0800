// Cooperation within a warp, and the register budget of a warpgroup.
#pragma once

#include "engine/barriers.hpp"
#include "ptx/types.hpp"

namespace gemmule::ptx {

inline constexpr u32 whole_warp = 0xffffffff;

/// The elected lane is the seed's choice, the same each time.
inline bool elect_one(Site site = Site::here()) {
  Entry e = enter(model::Op::elect, site);
  return e && model::warp_collective(e.t, model::WarpOp::elect, whole_warp, 0, 0, site) != 0;
}
inline void sync_warp(Site site = Site::here()) {
  if (Entry e = enter(model::Op::warp_sync, site)) {
    model::warp_collective(e.t, model::WarpOp::sync, whole_warp, 0, 0, site);
  }
}
inline float shuffle_xor(float value, u32 mask, Site site = Site::here()) {
  Entry e = enter(model::Op::shuffle, site);
  if (!e) return value;
  return numerics::float_of(static_cast<u32>(model::warp_collective(
      e.t, model::WarpOp::shuffle_xor, whole_warp, numerics::bits_of(value), mask, site)));
}
inline u32 shuffle(u32 value, u32 lane, Site site = Site::here()) {
  Entry e = enter(model::Op::shuffle, site);
  if (!e) return value;
  return static_cast<u32>(
      model::warp_collective(e.t, model::WarpOp::shuffle_index, whole_warp, value, lane, site));
}
inline u32 warp_ballot(bool predicate, Site site = Site::here()) {
  Entry e = enter(model::Op::shuffle, site);
  if (!e) return predicate ? 1u << e.t.lane : 0;
  return static_cast<u32>(model::warp_collective(e.t, model::WarpOp::ballot, whole_warp, predicate, 0, site));
}
inline u32 population_count(u32 bits) {
  return static_cast<u32>(__builtin_popcount(bits));
}
template <int registers>
void raise_registers(Site site = Site::here()) {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "setmaxnreg takes 24, 32, ... 256");
  if (Entry e = enter(model::Op::setmaxnreg, site)) model::set_registers(e.t, registers, true, site);
}
template <int registers>
void lower_registers(Site site = Site::here()) {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "setmaxnreg takes 24, 32, ... 256");
  if (Entry e = enter(model::Op::setmaxnreg, site)) model::set_registers(e.t, registers, false, site);
}

}  // namespace gemmule::ptx
