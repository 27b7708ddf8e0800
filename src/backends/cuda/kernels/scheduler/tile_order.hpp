// Which tile comes when: pure arithmetic, the same on every backend and in the tests.
#pragma once

#include "numerics/config.hpp"

namespace gemmule::kernels {

using numerics::u32;

struct TilePosition {
  u32 row;     ///< in row units from the first of the expert
  u32 column;  ///< in column tiles
};

/// Row units that are neighbours in time. Tiles in flight at once then form a patch of about as many rows as columns,
/// which reads the fewest distinct bytes of A and B.
inline constexpr u32 rows_per_group = 8;

/// Tile `index` of an expert with row_units x column_tiles tiles: groups of rows_per_group row units one after the
/// other, in a group the row varies fastest.
GEMMULE_HD TilePosition tile_position(u32 index, u32 row_units, u32 column_tiles) {
  const u32 group = index / (rows_per_group * column_tiles);
  const u32 first = group * rows_per_group;
  const u32 left = row_units - first;
  const u32 rows = left < rows_per_group ? left : rows_per_group;
  const u32 in_group = index - first * column_tiles;
  return {first + in_group % rows, in_group / rows};
}

}  // namespace gemmule::kernels
