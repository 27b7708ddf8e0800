#include "engine/tcgen05_descriptor.hpp"

#include "engine/wgmma.hpp"

namespace gemmule::model {

namespace {

/// Bits [first, first + count).
std::uint64_t field(std::uint64_t bits, int first, int count) {
  return bits >> first & ((std::uint64_t{1} << count) - 1);
}

std::uint32_t bytes_field(std::uint64_t bits, int first) {
  return static_cast<std::uint32_t>(field(bits, first, 14)) << 4;
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

}  // namespace

OperandView decode_operand(std::uint64_t bits) {
  OperandView view;
  view.start = bytes_field(bits, 0);
  view.leading = bytes_field(bits, 16);
  view.stride = bytes_field(bits, 32);
  switch (field(bits, 61, 3)) {
    case 0:
      view.span = 16;
      break;
    case 2:
      view.span = 128;
      break;
    case 4:
      view.span = 64;
      break;
    case 6:
      view.span = 32;
      break;
    case 1:
      view.error = "128-byte swizzle of 32-byte atoms serves transposed 32-bit types only";
      break;
    default:
      view.error = "swizzle " + number(static_cast<std::int64_t>(field(bits, 61, 3))) + " does not exist";
  }
  if (field(bits, 14, 2) != 0 || field(bits, 30, 2) != 0)
    view.error = "reserved bits 14..15 or 30..31 are not 0";
  if (field(bits, 46, 3) != 1) view.error = "bits 46..48 are not 0b001";
  if (field(bits, 53, 8) != 0) view.error = "bits 53..60 are not 0";
  if (field(bits, 52, 1) != 0) view.error = "an absolute leading address (K = 96 of sm_103) is not modelled";
  if (field(bits, 49, 3) != 0) {
    view.error =
        "a base offset other than 0 is not modelled (tiles start at a multiple of eight swizzle rows here)";
  }
  return view;
}

namespace {

/// Fields that f16 and the scaled kinds have in common.
void decode_common(InstructionView& v, std::uint32_t bits) {
  v.negate_a = field(bits, 13, 1);
  v.negate_b = field(bits, 14, 1);
  v.a_mn_major = field(bits, 15, 1);
  v.b_mn_major = field(bits, 16, 1);
  v.n = static_cast<int>(field(bits, 17, 6)) * 8;
  if (field(bits, 2, 1) != 0) v.error = "sparse A is not modelled";
  if (field(bits, 3, 1) != 0) v.error = "saturation belongs to kind::i8";
  if (field(bits, 6, 1) != 0) v.error = "reserved bit 6 is not 0";
  if (field(bits, 0, 2) != 0) v.error = "bits 0..1 are not 0";
}

void decode_f16(InstructionView& v, std::uint32_t bits) {
  const auto a = field(bits, 7, 3), b = field(bits, 10, 3);
  v.k = 16;
  v.m = static_cast<int>(field(bits, 24, 5)) * 16;
  v.a = a == 1 ? TensorFormat::bf16 : TensorFormat::f16;
  v.b = b == 1 ? TensorFormat::bf16 : TensorFormat::f16;
  if (a > 1 || b > 1) v.error = "kind::f16 takes A and B of type 0 (F16) or 1 (BF16)";
  if (a != b) v.error = "F16 with BF16 is not modelled";
  if (field(bits, 4, 2) != 1) v.error = "D of another type than F32 is not modelled";
  if (field(bits, 23, 1) != 0 || field(bits, 29, 1) != 0) v.error = "reserved bits 23 or 29 are not 0";
  if (field(bits, 30, 2) != 0) v.error = "a shift (bits 30..31) belongs to .ws";
}

bool eight_bit_format(std::uint64_t code, TensorFormat& format) {
  format = code == 1 ? TensorFormat::e5m2 : TensorFormat::e4m3;
  return code <= 1;
}

void decode_scale_ids(InstructionView& v, std::uint32_t bits) {
  v.b_scale_id = static_cast<int>(field(bits, 4, 2));
  v.a_scale_id = static_cast<int>(field(bits, 29, 2));
  const int per_row = v.scales();  // bytes of the word that one instruction reads
  if (per_row > 0 && (v.a_scale_id % per_row != 0 || v.b_scale_id % per_row != 0)) {
    v.error = "scale ids " + number(v.a_scale_id) + " (A) and " + number(v.b_scale_id) + " (B): with " +
              number(per_row) + " scales per row they are multiples of it below 4";
  }
}

void decode_scaled(InstructionView& v, std::uint32_t bits) {
  v.e8m0_scales = field(bits, 23, 1);
  v.m = static_cast<int>(field(bits, 27, 2)) * 128;
  if (field(bits, 24, 3) != 0) v.error = "M is not a multiple of 128 (bits 24..26)";
  if (v.kind == TensorKind::mxf8f6f4) {
    v.k = 32;
    if (!eight_bit_format(field(bits, 7, 3), v.a) || !eight_bit_format(field(bits, 10, 3), v.b)) {
      v.error = "A and B of type 0 (E4M3) or 1 (E5M2); padded 6- and 4-bit types are not modelled";
    }
    if (field(bits, 31, 1) != 0) v.error = "reserved bit 31 is not 0";
  } else {
    v.k = 64;
    v.a = v.b = TensorFormat::e2m1;
    if (field(bits, 7, 3) != 1 || field(bits, 10, 2) != 1)
      v.error = "A and B of mxf4 and mxf4nvf4 have type 1 (E2M1)";
    if (field(bits, 12, 1) != 0) v.error = "reserved bit 12 is not 0";
    if (v.a_mn_major || v.b_mn_major) v.error = "4-bit operands are K-major";
    if (field(bits, 31, 1) != 0) v.error = "K = 96 is not modelled";
  }
  if (!v.e8m0_scales && v.kind != TensorKind::mxf4nvf4) v.error = "scales are UE8M0 (bit 23)";
  if (v.block == 32 && v.kind == TensorKind::mxf4nvf4 && !v.e8m0_scales)
    v.error = "block32 has UE8M0 scales (bit 23)";
  if (v.block != 32 && (v.kind != TensorKind::mxf4nvf4 || v.block != 16))
    v.error = "block16 belongs to mxf4nvf4";
  decode_scale_ids(v, bits);
}

void check_shape(InstructionView& v) {
  const int step = (v.ctas == 1 ? 8 : 16) * (v.element_bits() == 8 && v.b_mn_major ? 2 : 1);
  if (v.n < step || v.n > 256 || v.n % step != 0) {
    v.error = "N = " + number(v.n) + ": multiples of " + number(step) + " up to 256";
  }
  const int largest = 128 * v.ctas;
  const bool half = v.kind == TensorKind::f16 && v.m == largest / 2;
  if (v.m != largest && !half) {
    v.error = "M = " + number(v.m) + " with " + number(v.ctas) + " CTAs" +
              (v.kind != TensorKind::f16 && v.ctas == 2 ? " (256; 128 is not modelled with scales)" : "");
  }
}

}  // namespace

InstructionView decode_instruction(TensorKind kind, int block, int ctas, std::uint32_t bits) {
  InstructionView v;
  v.kind = kind;
  v.block = block;
  v.ctas = ctas;
  decode_common(v, bits);
  if (kind == TensorKind::f16) {
    decode_f16(v, bits);
  } else {
    decode_scaled(v, bits);
  }
  check_shape(v);
  return v;
}

AccumulatorPlacement placement_of(const InstructionView& view, int first_lane) {
  AccumulatorPlacement p;
  p.rows = view.m / view.ctas;
  p.columns = view.n;
  if (view.ctas == 1 && view.m == 64) {
    p.quarter = true;
    p.first_lane = first_lane;
  } else if (view.ctas == 2 && view.m == 128) {
    p.halves = 2;
    p.columns = view.n / 2;
  }
  return p;
}

std::string operand_error(const OperandView& view, int rows, bool mn_major, int element_bits) {
  if (!view.error.empty()) return view.error;
  if (view.span == 16) return {};
  const std::uint32_t atom = 8 * view.span;  // bytes of eight swizzle rows
  if ((view.start >> 7) % 8 % (view.span / 16) != 0) return "starts inside the swizzle pattern";
  if (!mn_major && view.start % view.span + 32 > view.span)
    return "32 bytes of K cross the end of a swizzle row";
  if (mn_major && view.start % view.span != 0) return "starts inside a swizzle row";
  if (view.stride % atom != 0) return "stride is not a multiple of eight swizzle rows";
  if (mn_major && static_cast<std::uint32_t>(rows * element_bits / 8) > view.span &&
      view.leading % atom != 0) {
    return "leading offset is not a multiple of eight swizzle rows";
  }
  return {};
}

std::vector<std::uint32_t> tensor_operand_chunks(const OperandView& view, int rows, bool mn_major,
                                                 int element_bits) {
  std::vector<std::uint32_t> chunks;
  const std::uint32_t span = view.span;
  if (!mn_major) {
    chunks.reserve(static_cast<std::size_t>(rows) * 2);
    for (std::uint32_t row = 0; row < static_cast<std::uint32_t>(rows); ++row) {
      const std::uint32_t first = view.start + row / 8 * view.stride + row % 8 * span;
      chunks.push_back(swizzle_address(first, span));
      chunks.push_back(swizzle_address(first + (span == 16 ? view.leading : 16), span));
    }
    return chunks;
  }
  const std::uint32_t depth = 256 / static_cast<std::uint32_t>(element_bits);      // k
  const std::uint32_t per_chunk = 128 / static_cast<std::uint32_t>(element_bits);  // values along M or N
  const std::uint32_t per_span = span / 16;
  for (std::uint32_t k = 0; k < depth; ++k) {
    for (std::uint32_t j = 0; j < static_cast<std::uint32_t>(rows) / per_chunk; ++j) {
      const std::uint32_t along =
          span == 16 ? j * view.stride : j / per_span * view.leading + j % per_span * 16;
      const std::uint32_t deep = k / 8 * (span == 16 ? view.leading : view.stride);
      chunks.push_back(swizzle_address(view.start + along + deep + k % 8 * span, span));
    }
  }
  return chunks;
}

std::vector<std::uint32_t> copy_chunks(const OperandView& view) {
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t row = 0; row < 32; ++row)
    chunks.push_back(view.start + row / 8 * view.stride + row % 8 * 16);
  return chunks;
}

}  // namespace gemmule::model
