// The order of tiles visits every tile of an expert exactly once and keeps tiles in flight close together.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "scheduler/tile_order.hpp"

namespace gemmule::kernels {
namespace {

TEST(TileOrder, VisitsEveryTileOnce) {
  for (u32 rows = 1; rows <= 40; ++rows)
    for (u32 columns = 1; columns <= 24; ++columns) {
      std::vector<int> visits(rows * columns);
      for (u32 index = 0; index < rows * columns; ++index) {
        const TilePosition at = tile_position(index, rows, columns);
        ASSERT_LT(at.row, rows) << index << " of " << rows << " x " << columns;
        ASSERT_LT(at.column, columns) << index << " of " << rows << " x " << columns;
        ++visits[at.row * columns + at.column];
      }
      ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }))
          << rows << " x " << columns;
    }
}

/// 64 tiles in flight of a large expert read at most 8 row units and 9 column tiles.
TEST(TileOrder, TilesInFlightFormAPatch) {
  for (u32 first = 0; first + 64 <= 8 * 75; ++first) {
    std::set<u32> rows, columns;
    for (u32 index = first; index < first + 64; ++index) {
      const TilePosition at = tile_position(index, 16, 75);
      rows.insert(at.row);
      columns.insert(at.column);
    }
    ASSERT_LE(rows.size(), rows_per_group);
    ASSERT_LE(columns.size(), 9u);
  }
}

}  // namespace
}  // namespace gemmule::kernels
