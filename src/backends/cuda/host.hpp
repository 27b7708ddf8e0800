// What the host files of the kernels of both architectures have in common: tensor maps of matrices, literals of their source text,
// scratch memory, the size of the grid, and the small kernels around the main one.
#pragma once

#include <cstdint>
#include <string>

#include "backends/cuda/kernel.hpp"
#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::cuda::host {

/// Compute capability 9.0.
bool on_hopper(Arch arch);
/// Compute capability 10.x.
bool on_blackwell(Arch arch);

/// Of a type that C, D, A or B may have.
kernels::Format format_of(DType type);

/// What a tensor map of this format counts: 8-bit formats, and packed 4-bit ones, are bytes.
Element element_of(kernels::Format format);

/// The map of `slabs` matrices of rows x columns values, one after the other (0: one matrix, rank 2), with boxes of
/// box_rows x box_columns values.
TensorMap matrix_map(const void* base, kernels::Format format, std::int64_t rows, std::int64_t columns,
                     std::uint32_t box_rows, std::uint32_t box_columns, Swizzle swizzle,
                     std::int64_t slabs = 0);

/// The swizzle that permutes within spans of 32, 64 or 128 bytes.
Swizzle swizzle_of(std::uint32_t span);

ptx::TensorMap encoded(const TensorMap& map);

// Constants in source text, spelled exactly.
std::string literal(float value);
std::string literal(bool value);
std::string literal(kernels::Format format);

/// Byte offsets into the caller's scratch memory.
struct Scratch {
  std::size_t maps = 0, scale_maps = 0, next_tile = 0, offset = 0, dprob_tiles = 0, column_sums = 0,
              bytes = 0;
};
/// `dprob_tiles`: sums per row that deterministic dprob is made of. `scale_maps`: a tensor map per expert for scales too.
Scratch scratch(const Problem& p, std::int64_t m, std::int64_t dprob_tiles, bool scale_maps = false);

/// The block at `offset` of the scratch memory, null unless it exists.
template <class T>
T* block_at(std::byte* workspace, bool exists, std::size_t offset) {
  return exists ? reinterpret_cast<T*>(workspace + offset) : nullptr;
}

/// dprob is summed up after the main kernel.
bool sums_dprob(const Problem& p);

/// Discrete weights, dynamic scheduling and run-time offsets need a small kernel before the main one.
bool needs_prepare(const Problem& p);
/// All but the pattern.
kernels::DgluPrepareParams prepare_params(const Problem& p, const Operands& o, std::byte* workspace,
                                          const Scratch& s);
/// padded_offsets, or those that the prepare kernel writes.
const std::int32_t* offsets_of(const Problem& p, const Operands& o, std::byte* workspace, const Scratch& s);

/// Sums of dGLU need one after it.
bool needs_finish(const Problem& p);
kernels::DgluFinishParams finish_params(const Problem& p, const Operands& o, std::byte* workspace,
                                        const Scratch& s, std::int64_t dprob_tiles);

/// CTAs of the main kernel, entry 0: persistent_ctas() less the clusters that cluster_overlap_margin leaves to others.
unsigned grid_ctas(const Launch& launch, std::int64_t work_ctas);

/// Appends the kernel that writes tensor maps of discrete weights, the tile counter and run-time offsets.
void add_prepare(Specialization& specialization);
unsigned prepare_ctas(std::uint32_t experts);

/// Appends the kernel that adds up the per-tile sums of dGLU.
void add_finish(Specialization& specialization);

}  // namespace gemmule::cuda::host
