// The kernel of each tile shape, compiled for the host in a file of its own.
#pragma once

#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::test {

using DgluKernel = void (*)(const kernels::DgluOptions& options, const kernels::DgluParams& params);

struct DgluInstance {
  int tile_n, stages, cluster;
  DgluKernel run;
};
extern const DgluInstance dglu_n128_cluster1;
extern const DgluInstance dglu_n128_cluster2;
extern const DgluInstance dglu_n192_cluster2;
extern const DgluInstance dglu_n64_cluster1;

}  // namespace gemmule::test
