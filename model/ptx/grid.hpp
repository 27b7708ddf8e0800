// Programmatic dependent launch.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

inline void wait_for_previous_grid(Site site = Site::here()) {
  if (Entry e = enter(model::Op::grid_wait, site)) e.t.clock.set(e.t.machine->grid_agent(), 1);
}
inline void launch_next_grid(Site site = Site::here()) {
  enter(model::Op::grid_launch, site);
}

}  // namespace gemmule::ptx
