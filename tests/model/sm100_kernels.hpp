// The sm_100 kernels of each tile shape, compiled for the host in files of their own.
#pragma once

#include <span>

#include "sm100/params.hpp"

namespace gemmule::test {

struct Sm100Instance {
  kernels::u32 tile_n, stages, ctas;
  void (*dglu)(const kernels::ScaledDgluOptions& options, const kernels::Sm100DgluParams& params);
  void (*srelu)(const kernels::ScaledSreluOptions& options, const kernels::Sm100SreluParams& params);
};

std::span<const Sm100Instance> sm100_instances();

}  // namespace gemmule::test
