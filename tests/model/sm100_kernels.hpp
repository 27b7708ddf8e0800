// The sm_100 kernels of some tile shapes, compiled for the host in files of their own.
#pragma once

#include <span>

#include "backends/cuda/sm100_host.hpp"
#include "sm100/params.hpp"

namespace gemmule::test {

/// An operator that has no kernel of the shape is null. Every one takes clusters of every width.
struct Sm100Instance {
  cuda::sm100::TileConfig tile;
  void (*dglu)(const kernels::ScaledDgluOptions& options, kernels::u32 width,
               const kernels::Sm100DgluParams& params);
  void (*srelu)(const kernels::ScaledSreluOptions& options, kernels::u32 width,
                const kernels::Sm100SreluParams& params);
};

std::span<const Sm100Instance> sm100_instances();

}  // namespace gemmule::test
