// Shared memory of the sm_100 kernels, computed alike by host and device.
#pragma once

#include "sm100/operands.hpp"

namespace gemmule::kernels {

namespace panel {

inline constexpr u32 rows = 128;
inline constexpr u32 columns = 32;

GEMMULE_HD constexpr u32 row_bytes(Format format) {
  return columns * bits_of(format) / 8;
}
GEMMULE_HD constexpr u32 bytes(Format format) {
  return rows * row_bytes(format);
}

}  // namespace panel

namespace sm100 {

inline constexpr u32 threads = 384;
inline constexpr u32 tile_rows = 128;  ///< of a CTA
inline constexpr u32 epilogue_groups = 2;
inline constexpr u32 epilogue_warps = 4 * epilogue_groups;
inline constexpr u32 tile_ring = 4;
inline constexpr u32 max_shared_bytes = 232448;

/// 64-bit words of barriers that the main loop needs, and one for the address of tensor memory.
GEMMULE_HD constexpr u32 mainloop_words(u32 stages) {
  return 2 * stages + 4 + 2 * tile_ring + 3 + 1;
}

}  // namespace sm100

/// What the epilogue of a kernel stages: the bytes of one group's input and output.
struct EpilogueBytes {
  u32 input = 0, output = 0;
};

GEMMULE_HD constexpr EpilogueBytes dglu_epilogue_bytes(const ScaledOptions& o) {
  return {2 * panel::bytes(o.c), (o.quantize ? 4 : 2) * panel::bytes(o.d)};
}
GEMMULE_HD constexpr EpilogueBytes srelu_epilogue_bytes(const ScaledOptions& o) {
  return {0, panel::bytes(o.c) + (o.quantize ? 2 : 1) * panel::bytes(o.d)};
}

struct Sm100Layout {
  OperandLayout operands;
  EpilogueBytes epilogue;
  u32 input = 0, output = 0;  ///< byte offsets: panels of C and outputs of the two groups
  u32 sums = 0;               ///< [8 warps][64] floats: column sums of a chunk
  u32 multipliers = 0;        ///< [8 warps][32] floats
  u32 codes = 0;              ///< [2 groups][4 warps][64] words: column scales of a chunk
  u32 records = 0, words = 0, input_words = 0;
  u32 bytes = 0;
};

/// Operands and panels first: their boxes need 1024-byte alignment for the swizzle.
GEMMULE_HD constexpr Sm100Layout sm100_layout(const OperandOptions& options, const EpilogueBytes& epilogue,
                                              u32 tile_n, u32 stages, u32 ctas) {
  Sm100Layout l;
  l.operands = operand_layout(options, tile_n, stages, ctas);
  l.epilogue = epilogue;
  l.input = (l.operands.end + 1023) / 1024 * 1024;
  l.output = l.input + sm100::epilogue_groups * epilogue.input;
  l.sums = l.output + sm100::epilogue_groups * epilogue.output;
  l.multipliers = l.sums + sm100::epilogue_warps * 64 * 4;
  l.codes = l.multipliers + sm100::epilogue_warps * 32 * 4;
  l.records = l.codes + sm100::epilogue_warps * 64 * 4;
  l.words = l.records + sm100::tile_ring * 16;
  l.input_words = l.words + sm100::mainloop_words(stages) * 8;
  l.bytes = l.input_words + 2 * sm100::epilogue_groups * 8;
  return l;
}

/// Stages of the main loop's ring that fit, at most `most`.
GEMMULE_HD constexpr u32 sm100_stages(const OperandOptions& options, const EpilogueBytes& epilogue,
                                      u32 tile_n, u32 ctas, u32 most) {
  u32 stages = most;
  while (stages > 1 && sm100_layout(options, epilogue, tile_n, stages, ctas).bytes > sm100::max_shared_bytes)
    --stages;
  return stages;
}

}  // namespace gemmule::kernels
