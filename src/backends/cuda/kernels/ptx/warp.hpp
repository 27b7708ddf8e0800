// Cooperation within a warp, and the register budget of a warpgroup.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// elect.sync _|p, 0xffffffff;  True in one lane, always the same one while the warp is whole.
GEMMULE_DEVICE bool elect_one() {
  u32 elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

/// bar.warp.sync 0xffffffff;
GEMMULE_DEVICE void sync_warp() {
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

/// shfl.sync.bfly.b32 d, a, mask, 0x1f, 0xffffffff;
GEMMULE_DEVICE float shuffle_xor(float value, u32 mask) {
  float result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(result) : "f"(value), "r"(mask));
  return result;
}

/// shfl.sync.idx.b32 d, a, lane, 0x1f, 0xffffffff;
GEMMULE_DEVICE u32 shuffle(u32 value, u32 lane) {
  u32 result;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(result) : "r"(value), "r"(lane));
  return result;
}

/// vote.sync.ballot.b32 d, p, 0xffffffff;
GEMMULE_DEVICE u32 warp_ballot(bool predicate) {
  u32 result;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "vote.sync.ballot.b32 %0, p, 0xffffffff;\n"
      "}"
      : "=r"(result)
      : "r"(static_cast<u32>(predicate)));
  return result;
}

/// popc.b32 d, a;
GEMMULE_DEVICE u32 population_count(u32 bits) {
  u32 count;
  asm("popc.b32 %0, %1;" : "=r"(count) : "r"(bits));
  return count;
}

/// setmaxnreg.inc.sync.aligned.u32 registers;  every warp of the warpgroup.
template <int registers>
GEMMULE_DEVICE void raise_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "setmaxnreg takes 24, 32, ... 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// setmaxnreg.dec.sync.aligned.u32 registers;
template <int registers>
GEMMULE_DEVICE void lower_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "setmaxnreg takes 24, 32, ... 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace gemmule::ptx
