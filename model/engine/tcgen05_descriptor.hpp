// The descriptors of tcgen05, decoded from their bits as the instruction set's description tabulates them (PTX ISA,
// "Shared memory descriptor", "Instruction descriptor", "Matrix Shape"). Shares nothing with the code that builds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gemmule::model {

/// Shared-memory descriptor of tcgen05.mma and cp.
struct OperandView {
  std::uint32_t start = 0, leading = 0, stride = 0;  ///< bytes
  std::uint32_t span = 0;                            ///< bytes of a swizzle row: 16 (none), 32, 64, 128
  std::string error;                                 ///< the rule its bits break; empty: none
};
OperandView decode_operand(std::uint64_t bits);

enum class TensorKind : std::uint8_t { f16, mxf8f6f4, mxf4, mxf4nvf4 };
enum class TensorFormat : std::uint8_t { f16, bf16, e4m3, e5m2, e2m1 };

/// What one tcgen05.mma does, by its kind, its block size and its instruction descriptor.
struct InstructionView {
  TensorKind kind = TensorKind::f16;
  int ctas = 1;
  int m = 0, n = 0, k = 0;
  int block = 0;  ///< k per scale factor; 0: none
  TensorFormat a = TensorFormat::f16, b = TensorFormat::f16;
  bool negate_a = false, negate_b = false, a_mn_major = false, b_mn_major = false;
  bool e8m0_scales = false;
  int a_scale_id = 0, b_scale_id = 0;  ///< first byte of the word
  std::string error;

  int element_bits() const { return kind == TensorKind::f16 ? 16 : kind == TensorKind::mxf8f6f4 ? 8 : 4; }
  int scales() const { return block ? k / block : 0; }  ///< per row
};
/// `block`: 16 or 32 as the mnemonic says, 0 for f16.
InstructionView decode_instruction(TensorKind kind, int block, int ctas, std::uint32_t bits);

/// Where D lies in the tensor memory of each CTA (data path layouts A, B, D, F), from its first column on.
struct AccumulatorPlacement {
  int rows = 128;        ///< of one CTA
  int columns = 0;       ///< of tensor memory
  int halves = 1;        ///< 2: layout B, lanes 64..127 hold the second half of the columns of rows 0..63
  bool quarter = false;  ///< layout F: sixteen rows in each 32 lanes
  int first_lane = 0;    ///< 16: the upper sixteen of layout F
  int lane(int row, int half) const {
    return quarter ? row / 16 * 32 + row % 16 + first_lane : 64 * half + row;
  }
  std::uint32_t mask() const { return quarter ? 0xffffu << first_lane : 0xffffffffu; }
};
AccumulatorPlacement placement_of(const InstructionView& view, int first_lane);

/// The rule an operand of `rows` rows breaks; empty: none.
std::string operand_error(const OperandView& view, int rows, bool mn_major, int element_bits);
/// Addresses of the 16-byte chunks of an operand of `rows` rows and 32 bytes of k, swizzled. K-major: [rows][2]. MN-major:
/// [k][rows / values per chunk].
std::vector<std::uint32_t> tensor_operand_chunks(const OperandView& view, int rows, bool mn_major,
                                                 int element_bits);
/// tcgen05.cp.32x128b: the chunk of each of the 32 rows.
std::vector<std::uint32_t> copy_chunks(const OperandView& view);

}  // namespace gemmule::model
