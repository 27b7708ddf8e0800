// Programmatic dependent launch: overlap of a grid with the end of the one before it. No-ops in an ordinary launch.
#pragma once

#include "ptx/types.hpp"

namespace gemmule::ptx {

/// griddepcontrol.wait;  The grids this one depends on are complete and their writes visible.
GEMMULE_DEVICE void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// griddepcontrol.launch_dependents;  The next grid may start once every CTA has said so or exited.
GEMMULE_DEVICE void launch_next_grid() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace gemmule::ptx
