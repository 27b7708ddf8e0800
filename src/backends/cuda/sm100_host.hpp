// What the host files of the sm_100 kernels have in common: tile shapes, tensor maps, scratch memory and parameters of one
// call. The tests of the host model fill their parameters with the same functions.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/kernel.hpp"
#include "backends/cuda/scaled_host.hpp"
#include "sm100/layout.hpp"
#include "sm100/params.hpp"

namespace gemmule::cuda::sm100 {

/// Template parameters of a kernel, and how many tiles side by side its clusters take.
struct TileConfig {
  std::uint32_t tile_n = 128, stages = 0, ctas = 1, width = 1;
  friend bool operator==(const TileConfig&, const TileConfig&) = default;
};
TileConfig tile_config(const Problem& p);

/// BF16 operands too.
kernels::OperandOptions operand_options(const Problem& p);
/// Dynamic shared memory of the main kernel.
std::uint32_t shared_bytes(const Problem& p, const TileConfig& tile);

std::int64_t column_tiles(const Problem& p, const TileConfig& tile);
/// CTAs of a grid that takes every tile of m rows at once.
std::int64_t work_ctas(const Problem& p, std::int64_t m, const TileConfig& tile);

host::Scratch scratch(const Problem& p, std::int64_t m, const TileConfig& tile);

/// Tensor maps of one call, not yet encoded. With discrete weights b and sfb are patterns whose addresses are replaced on
/// the device. Maps of tensors that the problem does not have are those of others.
struct Maps {
  TensorMap a, b, c, d, d_col, sfa, sfb;
};
Maps maps(const Problem& p, const Operands& o, const TileConfig& tile);

/// Everything but the tensor maps.
kernels::Sm100DgluParams dglu_params(const Problem& p, const Operands& o, std::byte* workspace,
                                     const TileConfig& tile);
kernels::Sm100SreluParams srelu_params(const Problem& p, const Operands& o, std::byte* workspace,
                                       const TileConfig& tile);

/// Runs of the small kernel before the main one: none, one, or a second for the scales of discrete weights, whose pattern
/// is Maps::sfb.
std::vector<kernels::DgluPrepareParams> prepare_params(const Problem& p, const Operands& o,
                                                       std::byte* workspace, const TileConfig& tile);

kernels::DgluFinishParams finish_params(const Problem& p, const Operands& o, std::byte* workspace,
                                        const TileConfig& tile);

/// The specialization of `entry`, whose kernel is struct Sm100Dglu or Sm100Srelu.
Specialization specialize(const Problem& p, const std::string& entry);

std::size_t workspace_size(const Problem& p, const DeviceLimits& device, std::int64_t m);

/// Enqueues prepare, main and finish.
void launch(const Launch& launch);

}  // namespace gemmule::cuda::sm100
