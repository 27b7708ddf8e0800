// TMA loads for pairs of CTAs that multiply together (sm_100): each loads into its own shared memory, or also into that of
// CTAs of other pairs, and completes the bytes on the barrier of the even CTA of the destination's pair, whose thread issues
// the multiplications.
#pragma once

#include "ptx/tma.hpp"

namespace gemmule::ptx {

/// mapa; cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint
/// [to], [map, {x, y}], [b of CTA leader], p;
GEMMULE_DEVICE void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, Barrier barrier,
                                  u32 leader, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
      "cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(map_shared(barrier.address, leader)), "l"(static_cast<u64>(policy))
      : "memory");
}

/// The same from a tensor of three dimensions.
GEMMULE_DEVICE void load_box_pair(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z, Barrier barrier,
                                  u32 leader, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
      "cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(map_shared(barrier.address, leader)),
      "l"(static_cast<u64>(policy))
      : "memory");
}

/// ....multicast::cluster.L2::cache_hint [to], [map, {x, y}], [b of CTA leader], ctas, p;  Bit r of `ctas`: write to the same
/// offset of CTA r's shared memory and complete the bytes on the same barrier of the even (leader even) CTA of its pair.
GEMMULE_DEVICE void load_box_pair_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y,
                                            Barrier barrier, u32 leader, u16 ctas, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes."
      "multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(map_shared(barrier.address, leader)), "h"(ctas),
      "l"(static_cast<u64>(policy))
      : "memory");
}

/// The same from a tensor of three dimensions.
GEMMULE_DEVICE void load_box_pair_multicast(Shared<u8> to, const TensorMap* map, i32 x, i32 y, i32 z,
                                            Barrier barrier, u32 leader, u16 ctas, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes."
      "multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to.address),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(map_shared(barrier.address, leader)), "h"(ctas),
      "l"(static_cast<u64>(policy))
      : "memory");
}

}  // namespace gemmule::ptx
