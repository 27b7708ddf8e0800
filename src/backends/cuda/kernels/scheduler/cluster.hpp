// Places in a cluster, by one formula: what the scheduler, the kernels and the tests know of it.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::kernels {

using numerics::u32;

/// A cluster takes `width` tiles of the same rows, side by side. `ctas` CTAs of 128 rows each take a tile together: CTA
/// `rank` is part rank % ctas of tile rank / ctas.
struct ClusterPlace {
  u32 ctas = 1, width = 1, rank = 0;

  GEMMULE_HD constexpr u32 size() const { return ctas * width; }
  GEMMULE_HD constexpr u32 part() const { return width == 1 ? rank : rank % ctas; }
  GEMMULE_HD constexpr u32 tile() const { return width == 1 ? 0 : rank / ctas; }
  /// The first CTA of the tile.
  GEMMULE_HD constexpr u32 leader() const { return tile() * ctas; }

  // Sets of CTAs, bit r for rank r.
  GEMMULE_HD constexpr u32 all() const { return (1u << size()) - 1; }
  GEMMULE_HD constexpr u32 own_tile() const { return ((1u << ctas) - 1) << leader(); }
  /// One of every tile.
  GEMMULE_HD constexpr u32 own_rows() const { return all() / ((1u << ctas) - 1) << part(); }
};

}  // namespace gemmule::kernels
