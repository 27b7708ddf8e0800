// The frame of the sm_100 kernels: who does what in a CTA.
#pragma once

#include "ptx/grid.hpp"
#include "sm100/mainloop.hpp"
#include "sm100/params.hpp"

namespace gemmule::kernels {

/// `width`: of the clusters, in tiles, a constant of the specialization.
/// `Kernel` is built from {options, params.op, loop, base of shared memory, layout} and has
///   static constexpr bool feeds_c;                     warp 3 reads the tiles and runs feed_c()
///   void init_input_barriers() const;
///   void feed_c() const;
///   void compute(u32 group, TensorAddress) const;      by one epilogue group, all tiles
template <template <u32, u32, u32> class Kernel, u32 tile_n, u32 stages, u32 ctas, class Options,
          class Params>
GEMMULE_DEVICE void run_sm100(const Options& options, u32 width, const Params& params,
                              const EpilogueBytes& epilogue) {
  using Loop = Mainloop<tile_n, stages, ctas>;
  constexpr bool feeds_c = Kernel<tile_n, stages, ctas>::feeds_c;
  const OperandOptions operands = operand_options(options.common);
  const Sm100Layout layout = sm100_layout(operands, epilogue, tile_n, stages, ctas);
  const Shared<u8> base = ptx::dynamic_shared();
  const ScaledParams& common = params.op.common;
  const Loop loop{operands,
                  operand_maps(common, params.scales, operands),
                  common.n,
                  common.k,
                  MainloopShared::at(base, layout, stages),
                  layout.operands,
                  {ctas, width, ctas * width == 1 ? 0 : ptx::cluster_cta_rank()}};
  const Kernel<tile_n, stages, ctas> kernel{options, params.op, loop, base, layout};
  const u32 warp = ptx::warp_index();
  if (warp == 0 && ptx::elect_one()) {
    if constexpr (feeds_c) kernel.init_input_barriers();
    loop.init_barriers((feeds_c ? 2 : 1) + sm100::epilogue_warps);
  }
  ptx::sync_warp();
  const TensorAddress tensor = loop.set_up(warp);
  ptx::launch_next_grid();
  ptx::wait_for_previous_grid();
  if (warp < 4) {
    ptx::lower_registers<sm100::feed_registers>();
    if (warp == 0) {
      loop.feed();
    } else if (warp == 1) {
      loop.run_multiplier(tensor);
    } else if (warp == 2) {
      if (loop.place.rank == 0)
        schedule_tiles<tile_n, ctas>({common.offsets, common.experts, common.n,
                                      options.common.dynamic ? common.next_tile : nullptr, width},
                                     loop.shared.tiles);
    } else if constexpr (feeds_c) {
      kernel.feed_c();
    }
  } else {
    ptx::raise_registers<sm100::epilogue_registers>();
    kernel.compute(warp / 4 - 1, tensor);
  }
  ptx::sync_warp();
  loop.tear_down(tensor, warp);
}

}  // namespace gemmule::kernels
