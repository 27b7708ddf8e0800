// The public layout helpers.
#include "gemmule/layout.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "layout/interleave.hpp"
#include "layout/scale_factors.hpp"

namespace gemmule {
namespace {

void check_extent(const char* what, std::int64_t value) {
  if (value < 0)
    throw InvalidArgument(std::string(what) + " is " + std::to_string(value) + ", expected at least 0");
}

void check_scale_extents(std::int64_t rows, std::int64_t length, int vec) {
  check_extent("rows", rows);
  check_extent("length", length);
  if (vec != 16 && vec != 32)
    throw InvalidArgument("vec is " + std::to_string(vec) + ", expected 16 or 32 values per scale factor");
  constexpr std::int64_t limit = std::int64_t{1} << 62;
  std::int64_t atoms = 0, bytes = 0;
  if (rows > limit || length > limit ||
      __builtin_mul_overflow(layout::ceil_div(rows, layout::atom_rows), layout::block_atoms(length, vec),
                             &atoms) ||
      __builtin_mul_overflow(atoms, layout::atom_bytes, &bytes))
    throw InvalidArgument("scale factors of " + std::to_string(rows) + " x " + std::to_string(length) +
                          " values: expected at most 2^63 bytes");
}

/// Calls visit(index in the linear scales, offset in the swizzled scales) for every scale that is not padding.
template <class Visit>
void for_each_scale(std::int64_t rows, std::int64_t length, int vec, Visit visit) {
  const std::int64_t blocks = layout::ceil_div(length, vec);
  const std::int64_t atoms = layout::block_atoms(length, vec);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block)
      visit(row * blocks + block, layout::scale_offset(row, block, atoms));
}

/// Calls copy(offset in the halves, offset in the blocks, bytes) for every run of columns that stays together.
template <class Copy>
void for_each_run(std::int64_t rows, std::int64_t n, std::size_t element_size, Copy copy) {
  check_extent("rows", rows);
  if (n < 0 || n % layout::interleave_block != 0)
    throw InvalidArgument("n is " + std::to_string(n) + ", expected a multiple of 32");
  if (element_size != 1 && element_size != 2 && element_size != 4)
    throw InvalidArgument("element_size is " + std::to_string(element_size) + ", expected 1, 2 or 4 bytes");
  const std::int64_t size = static_cast<std::int64_t>(element_size);
  const std::size_t run = layout::interleave_block * element_size;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t base = layout::row_offset(row, 2 * n);
    for (std::int64_t column = 0; column < n; column += layout::interleave_block) {
      copy((base + column) * size, (base + layout::gate_column(column)) * size, run);
      copy((base + n + column) * size, (base + layout::input_column(column)) * size, run);
    }
  }
}

}  // namespace

std::vector<std::int32_t> pad_offsets(std::span<const std::int64_t> counts, std::int32_t alignment) {
  if (alignment < 1)
    throw InvalidArgument("alignment is " + std::to_string(alignment) + ", expected at least 1");
  constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> offsets;
  offsets.reserve(counts.size());
  std::int64_t end = 0;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    const std::string what = "counts[" + std::to_string(g) + "]";
    check_extent(what.c_str(), counts[g]);
    if (counts[g] > limit || (end += layout::round_up(counts[g], alignment)) > limit)
      throw InvalidArgument(what + " is " + std::to_string(counts[g]) +
                            ": the padded offsets pass the largest int32, 2147483647");
    offsets.push_back(static_cast<std::int32_t>(end));
  }
  return offsets;
}

std::array<std::int64_t, 6> scale_shape(std::int64_t rows, std::int64_t length, int vec,
                                        std::int64_t experts) {
  check_scale_extents(rows, length, vec);
  check_extent("experts", experts);
  return {32, 4, layout::ceil_div(rows, layout::atom_rows), 4, layout::block_atoms(length, vec), experts};
}

std::array<std::int64_t, 6> scale_strides(std::int64_t rows, std::int64_t length, int vec) {
  const std::int64_t bytes = scale_bytes(rows, length, vec);
  return {16, 4, layout::atom_bytes * layout::block_atoms(length, vec), 1, layout::atom_bytes, bytes};
}

std::int64_t scale_bytes(std::int64_t rows, std::int64_t length, int vec) {
  check_scale_extents(rows, length, vec);
  return layout::scale_buffer_bytes(rows, length, vec);
}

void swizzle_scales(const std::uint8_t* linear, std::uint8_t* swizzled, std::int64_t rows,
                    std::int64_t length, int vec) {
  const std::int64_t bytes = scale_bytes(rows, length, vec);
  if (bytes == 0) return;
  std::memset(swizzled, 0, static_cast<std::size_t>(bytes));
  for_each_scale(rows, length, vec, [&](std::int64_t from, std::int64_t to) { swizzled[to] = linear[from]; });
}

void unswizzle_scales(const std::uint8_t* swizzled, std::uint8_t* linear, std::int64_t rows,
                      std::int64_t length, int vec) {
  check_scale_extents(rows, length, vec);
  for_each_scale(rows, length, vec, [&](std::int64_t to, std::int64_t from) { linear[to] = swizzled[from]; });
}

void interleave_gate_input(const void* halves, void* blocks, std::int64_t rows, std::int64_t n,
                           std::size_t element_size) {
  const auto* from = static_cast<const char*>(halves);
  auto* to = static_cast<char*>(blocks);
  for_each_run(rows, n, element_size, [&](std::int64_t half, std::int64_t block, std::size_t bytes) {
    std::memcpy(to + block, from + half, bytes);
  });
}

void deinterleave_gate_input(const void* blocks, void* halves, std::int64_t rows, std::int64_t n,
                             std::size_t element_size) {
  const auto* from = static_cast<const char*>(blocks);
  auto* to = static_cast<char*>(halves);
  for_each_run(rows, n, element_size, [&](std::int64_t half, std::int64_t block, std::size_t bytes) {
    std::memcpy(to + half, from + block, bytes);
  });
}

}  // namespace gemmule
