// wgmma: shared-memory matrix descriptors decoded from their bits, and asynchronous m64nNk16 products of BF16.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/machine.hpp"

namespace gemmule::model {

/// The 64-bit matrix descriptor, decoded (PTX ISA "Matrix Descriptor Format"). This is written from the description and
/// shares nothing with the code that builds descriptors.
struct MatrixView {
  std::uint32_t start = 0, leading = 0, stride = 0;  ///< bytes
  std::uint32_t base_offset = 0;
  std::uint32_t span = 0;  ///< bytes of a swizzle row: 16 (none), 32, 64, 128
};
MatrixView decode_descriptor(std::uint64_t bits);

/// Addresses of the 16-byte chunks of an operand, swizzled. K-major: [rows][2], chunk c holds k = 8c..8c+7 of a row.
/// MN-major: [16][rows / 8], chunk j holds rows 8j..8j+7 of one k.
std::vector<std::uint32_t> operand_chunks(const MatrixView& view, int rows, bool mn_major);

/// Moves bits 4.. of an address by exclusive or with bits 7.., as the swizzle of `span` bytes does.
std::uint32_t swizzle_address(std::uint32_t address, std::uint32_t span);

struct WgmmaOp {
  int n = 0;
  bool accumulate = false, b_mn_major = false;
  bool fp16 = false;  ///< operands, instead of BF16
  std::array<float*, 128> accumulators{};
  std::vector<std::uint32_t> a, b;  ///< chunk addresses
  /// A in registers instead of `a`: four pairs of each thread.
  bool a_in_registers = false;
  std::array<std::array<std::uint32_t, 4>, 128> a_registers{};
  int group = 0;
};

/// What the model knows about one accumulator handle of one thread.
struct AccumulatorState {
  Thread* owner = nullptr;
  std::int64_t touched = 0;  ///< Thread::register_sequence of the last access by the thread
  int group = -1;            ///< wgmma group that last wrote it; -1: none
  int width = 0;
  int brought_from = 0,
      brought = 0;  ///< the last bring_down since the last multiplication: first element taken, number
  bool initialised = false;
};
void accumulator_created(AccumulatorState& state);
/// Element `index` is read.
void accumulator_touched(AccumulatorState& state, int index, Site site);
/// The first `number` elements are replaced by those from `first` on.
void accumulator_brought_down(AccumulatorState& state, int first, int number, Site site);
/// All elements, of `width` columns, are set to zero.
void accumulator_cleared(AccumulatorState& state, int width, Site site);
void accumulator_destroyed(AccumulatorState& state);

/// The same of a handle to operand registers.
struct OperandState {
  Thread* owner = nullptr;
  std::int64_t touched = 0;
  int group = -1;  ///< wgmma group that last reads it
};
void operand_created(OperandState& state);
void operand_written(OperandState& state, Site site);
void operand_used(Thread& t, OperandState& state, Site site);
void operand_destroyed(OperandState& state);

/// Registers of one thread that a multiplication uses; a is null if A is in shared memory.
struct WgmmaRegisters {
  float* accumulators;
  const std::uint32_t* a;
  bool fp16;  ///< operands are FP16 instead of BF16
};
void wgmma_issue(Thread& t, const WgmmaRegisters& registers, AccumulatorState& state, int n, std::uint64_t a,
                 std::uint64_t b, bool accumulate, bool b_mn_major, Site site);
void wgmma_commit(Thread& t);
void wgmma_wait(Thread& t, int pending);

}  // namespace gemmule::model
