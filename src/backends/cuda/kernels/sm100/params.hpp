// What the host tells the sm_100 kernels beyond the parameters they share with those of sm_90a. Plain C++, shared by host
// and device. Boxes differ from those of sm_90a: see OperandMaps, and panels of 128 rows x 32 columns for C, D and D_col.
#pragma once

#include "sm100/operands.hpp"

namespace gemmule::kernels {

/// Tensor maps of the scale factors (block-scaled operands).
struct ScaleMaps {
  ptx::TensorMap sfa, sfb;
  const ptx::TensorMap* sfb_maps = nullptr;  ///< discrete: [L], each like sfb with L = 1
};

/// common.sfa, sfb and sfb_ptrs are not used. With deterministic sums, dprob is [2 column tiles][M].
struct Sm100DgluParams {
  ScaledDgluParams op;
  ScaleMaps scales;
};
struct Sm100SreluParams {
  ScaledSreluParams op;
  ScaleMaps scales;
};

GEMMULE_HD constexpr OperandOptions operand_options(const ScaledOptions& o) {
  return {o.ab, o.scale, o.ab == Format::bf16 ? 0 : o.vec, o.discrete, o.b_n_major};
}

GEMMULE_HD OperandMaps operand_maps(const ScaledParams& common, const ScaleMaps& scales,
                                    const OperandOptions& options) {
  OperandMaps maps;
  maps.a = &common.a;
  maps.b = options.discrete ? common.b_maps : &common.b;
  maps.sfa = &scales.sfa;
  maps.sfb = options.discrete ? scales.sfb_maps : &scales.sfb;
  return maps;
}

}  // namespace gemmule::kernels
