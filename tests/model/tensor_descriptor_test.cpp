// The bits of tcgen05 descriptors: values worked out by hand from the tables of the instruction set, what the builders in
// ptx/ make, and what the model reads from them.
#include <gtest/gtest.h>

#include "engine/tcgen05_descriptor.hpp"
#include "ptx/tcgen05.hpp"

namespace gemmule::test {
namespace {

using model::InstructionView;
using model::OperandView;
using model::TensorFormat;
using model::TensorKind;
using ptx::OperandDescriptor;
using ptx::OperandSwizzle;
using ptx::u32;
using ptx::u64;

u64 bits_of(const OperandDescriptor& d) {
  return __builtin_bit_cast(u64, d);
}
u32 bits_of(const ptx::InstructionDescriptor& d) {
  return __builtin_bit_cast(u32, d);
}
u32 bits_of(const ptx::ScaledInstructionDescriptor& d) {
  return __builtin_bit_cast(u32, d);
}

TEST(ModelTensorDescriptor, OperandsInSharedMemory) {
  // 0x12400 / 16 | 16 / 16 << 16 | 1024 / 16 << 32 | 1 << 46 | 2 << 61
  constexpr u64 swizzled = 0x4000404000011240;
  EXPECT_EQ(bits_of(OperandDescriptor::of({0x12400}, 16, 1024, OperandSwizzle::b128)), swizzled);
  const OperandView view = model::decode_operand(swizzled);
  EXPECT_EQ(view.error, "");
  EXPECT_EQ(view.start, 0x12400u);
  EXPECT_EQ(view.leading, 16u);
  EXPECT_EQ(view.stride, 1024u);
  EXPECT_EQ(view.span, 128u);
  // Scale factors: 0x8200 / 16 | 128 / 16 << 32 | 1 << 46
  constexpr u64 scales = 0x0000400800000820;
  EXPECT_EQ(bits_of(OperandDescriptor::of({0x8200}, 0, 128, OperandSwizzle::none)), scales);
  EXPECT_EQ(model::decode_operand(scales).span, 16u);
  EXPECT_EQ(model::decode_operand(scales).stride, 128u);
  EXPECT_EQ(model::decode_operand(0x8000404000011240).span, 64u);
  EXPECT_EQ(model::decode_operand(0xC000404000011240).span, 32u);
  // One step of 32 bytes along K.
  EXPECT_EQ(bits_of(OperandDescriptor::of({0x12400}, 16, 1024, OperandSwizzle::b128).advance(32)),
            swizzled + 2);
}

TEST(ModelTensorDescriptor, OperandsThatAreRefused) {
  constexpr u64 good = 0x4000404000011240;
  EXPECT_NE(model::decode_operand(good ^ u64{1} << 46).error, "");          // version
  EXPECT_NE(model::decode_operand(good | u64{1} << 47).error, "");          // version
  EXPECT_NE(model::decode_operand(good | u64{1} << 49).error, "");          // base offset
  EXPECT_NE(model::decode_operand(good | u64{1} << 52).error, "");          // absolute leading address
  EXPECT_NE(model::decode_operand(good | u64{1} << 56).error, "");          // reserved
  EXPECT_NE(model::decode_operand(good | u64{1} << 14).error, "");          // reserved
  EXPECT_NE(model::decode_operand(good | u64{1} << 61).error, "");          // swizzle 3
  EXPECT_NE(model::decode_operand(u64{1} << 61 | u64{1} << 46).error, "");  // 32-byte atoms
  const auto error = [](u32 start, u32 stride, bool mn_major) {
    const OperandDescriptor d = OperandDescriptor::of({start}, 16, stride, OperandSwizzle::b128);
    return model::operand_error(model::decode_operand(bits_of(d)), 128, mn_major, 16);
  };
  EXPECT_EQ(error(0x12400, 1024, false), "");
  EXPECT_EQ(error(0x12460, 1024, false), "");  // the last slice of the row
  EXPECT_NE(error(0x12470, 1024, false), "");  // crosses the row
  EXPECT_NE(error(0x12480, 1024, false), "");  // starts at the pattern's second row
  EXPECT_NE(error(0x12400, 1008, false), "");
  EXPECT_NE(error(0x12400, 1024, true), "");  // leading offset of an MN-major operand wider than a span
}

TEST(ModelTensorDescriptor, Instructions) {
  // F32 = 1 << 4 | BF16 = 1 << 7 | 1 << 10 | 256 / 8 << 17 | 128 / 16 << 24
  constexpr u32 bf16 = 0x08400490;
  EXPECT_EQ(bits_of(ptx::InstructionDescriptor::bf16(128, 256, false)), bf16);
  InstructionView v = model::decode_instruction(TensorKind::f16, 0, 1, bf16);
  EXPECT_EQ(v.error, "");
  EXPECT_EQ(v.m, 128);
  EXPECT_EQ(v.n, 256);
  EXPECT_EQ(v.k, 16);
  EXPECT_EQ(v.a, TensorFormat::bf16);
  EXPECT_FALSE(v.b_mn_major);
  // The same with 256 rows, 64 columns, B transposed: 1 << 16.
  constexpr u32 pair = 0x10110490;
  EXPECT_EQ(bits_of(ptx::InstructionDescriptor::bf16(256, 64, true)), pair);
  v = model::decode_instruction(TensorKind::f16, 0, 2, pair);
  EXPECT_EQ(v.error, "");
  EXPECT_TRUE(v.b_mn_major);
  // E5M2 = 1 << 7 | 1 << 10 | B id 3 << 4 | 128 / 8 << 17 | UE8M0 = 1 << 23 | 256 / 128 << 27 | A id 3 << 29
  constexpr u32 mxfp8 = 0x70A004B0;
  EXPECT_EQ(bits_of(ptx::ScaledInstructionDescriptor::of(1, 1, 256, 128, false, 3)), mxfp8);
  v = model::decode_instruction(TensorKind::mxf8f6f4, 32, 2, mxfp8);
  EXPECT_EQ(v.error, "");
  EXPECT_EQ(v.a, TensorFormat::e5m2);
  EXPECT_EQ(v.a_scale_id, 3);
  EXPECT_EQ(v.b_scale_id, 3);
  EXPECT_EQ(v.k, 32);
  EXPECT_EQ(v.scales(), 1);
  // E2M1 = 1 << 7 | 1 << 10 | 256 / 8 << 17 | UE4M3 = 0 << 23 | 128 / 128 << 27
  constexpr u32 nvfp4 = 0x08400480;
  EXPECT_EQ(bits_of(ptx::ScaledInstructionDescriptor::of(1, 0, 128, 256, false, 0)), nvfp4);
  v = model::decode_instruction(TensorKind::mxf4nvf4, 16, 1, nvfp4);
  EXPECT_EQ(v.error, "");
  EXPECT_EQ(v.a, TensorFormat::e2m1);
  EXPECT_EQ(v.k, 64);
  EXPECT_EQ(v.scales(), 4);
  EXPECT_FALSE(v.e8m0_scales);
}

TEST(ModelTensorDescriptor, InstructionsThatAreRefused) {
  const auto f16 = [](int ctas, u32 bits) {
    return model::decode_instruction(TensorKind::f16, 0, ctas, bits).error;
  };
  const auto bf16 = [&](int ctas, u32 m, u32 n) {
    return f16(ctas, bits_of(ptx::InstructionDescriptor::bf16(m, n, false)));
  };
  EXPECT_EQ(bf16(1, 64, 8), "");
  EXPECT_EQ(bf16(2, 128, 16), "");
  EXPECT_NE(bf16(1, 256, 64), "");  // M
  EXPECT_NE(bf16(1, 96, 64), "");
  EXPECT_NE(bf16(2, 64, 64), "");
  EXPECT_NE(bf16(1, 128, 0), "");  // N
  EXPECT_NE(bf16(1, 128, 264), "");
  EXPECT_NE(bf16(2, 256, 24), "");
  constexpr u32 good = 0x08400490;
  for (const int bit : {0, 1, 2, 3, 5, 6, 8, 11, 23, 29, 30, 31}) {
    EXPECT_NE(f16(1, good | 1u << bit), "") << "bit " << bit;
  }
  EXPECT_NE(f16(1, good ^ 1u << 4), "");   // F16 accumulators
  EXPECT_NE(f16(1, good ^ 1u << 10), "");  // BF16 by F16
  const auto scaled = [](TensorKind kind, int block, u32 bits) {
    return model::decode_instruction(kind, block, 1, bits).error;
  };
  const auto of = [](u32 format, u32 scale, bool n_major, u32 id, u32 n = 64) {
    return bits_of(ptx::ScaledInstructionDescriptor::of(format, scale, 128, n, n_major, id));
  };
  EXPECT_EQ(scaled(TensorKind::mxf8f6f4, 32, of(0, 1, false, 1, 24)), "");
  EXPECT_NE(scaled(TensorKind::mxf8f6f4, 32, of(0, 0, false, 1)), "");     // UE4M3 scales
  EXPECT_NE(scaled(TensorKind::mxf8f6f4, 32, of(5, 1, false, 1)), "");     // padded E2M1
  EXPECT_NE(scaled(TensorKind::mxf8f6f4, 16, of(0, 1, false, 0)), "");     // block16
  EXPECT_NE(scaled(TensorKind::mxf8f6f4, 32, of(0, 1, true, 0, 24)), "");  // N of a transposed 8-bit B
  EXPECT_EQ(scaled(TensorKind::mxf4, 32, of(1, 1, false, 2)), "");
  EXPECT_NE(scaled(TensorKind::mxf4, 32, of(1, 1, false, 1)), "");  // scale id
  EXPECT_NE(scaled(TensorKind::mxf4, 32, of(0, 1, false, 0)), "");  // type
  EXPECT_NE(scaled(TensorKind::mxf4, 32, of(1, 1, true, 0)), "");   // 4-bit N-major
  EXPECT_NE(scaled(TensorKind::mxf4, 16, of(1, 1, false, 0)), "");
  EXPECT_EQ(scaled(TensorKind::mxf4nvf4, 16, of(1, 1, false, 0)), "");
  EXPECT_EQ(scaled(TensorKind::mxf4nvf4, 32, of(1, 1, false, 2)), "");
  EXPECT_NE(scaled(TensorKind::mxf4nvf4, 32, of(1, 0, false, 0)), "");             // block32 with UE4M3
  EXPECT_NE(scaled(TensorKind::mxf4nvf4, 16, of(1, 0, false, 2)), "");             // scale id
  EXPECT_NE(scaled(TensorKind::mxf4nvf4, 16, of(1, 0, false, 0) | 1u << 31), "");  // K = 96
  EXPECT_NE(scaled(TensorKind::mxf8f6f4, 32, of(0, 1, false, 0) | 1u << 26), "");  // M = 192
  EXPECT_NE(model::decode_instruction(TensorKind::mxf4, 32, 2, of(1, 1, false, 0)).error,
            "");  // M = 128 in a pair
}

TEST(ModelTensorDescriptor, AccumulatorsInTensorMemory) {
  const auto placement = [](int ctas, u32 m, int first_lane) {
    const u32 bits = bits_of(ptx::InstructionDescriptor::bf16(m, 64, false));
    return model::placement_of(model::decode_instruction(TensorKind::f16, 0, ctas, bits), first_lane);
  };
  EXPECT_EQ(placement(1, 128, 0).lane(77, 0), 77);
  EXPECT_EQ(placement(1, 128, 0).columns, 64);
  EXPECT_EQ(placement(1, 64, 0).lane(15, 0), 15);
  EXPECT_EQ(placement(1, 64, 0).lane(16, 0), 32);
  EXPECT_EQ(placement(1, 64, 16).lane(63, 0), 96 + 31);
  EXPECT_EQ(placement(2, 256, 0).lane(127, 0), 127);
  EXPECT_EQ(placement(2, 256, 0).rows, 128);
  EXPECT_EQ(placement(2, 128, 0).rows, 64);
  EXPECT_EQ(placement(2, 128, 0).columns, 32);
  EXPECT_EQ(placement(2, 128, 0).lane(5, 1), 64 + 5);
}

/// Chunk addresses of K-major and MN-major operands, worked out by hand for a few rows.
TEST(ModelTensorDescriptor, ChunksOfOperands) {
  const auto view = [](u32 start, u32 leading, u32 stride, OperandSwizzle swizzle) {
    return model::decode_operand(bits_of(OperandDescriptor::of({start}, leading, stride, swizzle)));
  };
  // K-major, 128-byte swizzle: chunk 2 of row 3 is exchanged with 2 ^ 3, row 9 is the second of the next eight.
  auto chunks = model::tensor_operand_chunks(view(0x12420, 16, 1024, OperandSwizzle::b128), 16, false, 8);
  ASSERT_EQ(chunks.size(), 32u);
  EXPECT_EQ(chunks[0], 0x12420u);
  EXPECT_EQ(chunks[2 * 3], 0x12400u + 3 * 128 + 16 * (2 ^ 3));
  EXPECT_EQ(chunks[2 * 9 + 1], 0x12400u + 1024 + 128 + 16 * (3 ^ 1));
  // No swizzle: the second chunk lies `leading` further on, rows are 16 bytes apart.
  chunks = model::tensor_operand_chunks(view(0x4000, 256, 128, OperandSwizzle::none), 16, false, 16);
  EXPECT_EQ(chunks[2 * 10 + 1], 0x4000u + 128 + 2 * 16 + 256);
  // N-major 8-bit, 128 columns per span: k = 9 of columns 144..159 of the second span.
  chunks = model::tensor_operand_chunks(view(0x8000, 16384, 1024, OperandSwizzle::b128), 256, true, 8);
  ASSERT_EQ(chunks.size(), 32u * 16);
  EXPECT_EQ(chunks[9 * 16 + 9], 0x8000u + 16384 + 1024 + 128 + 16 * (1 ^ 1));
  // tcgen05.cp: 32 rows of 16 bytes, eight by eight.
  const auto rows = model::copy_chunks(view(0x8200, 0, 128, OperandSwizzle::none));
  ASSERT_EQ(rows.size(), 32u);
  EXPECT_EQ(rows[13], 0x8200u + 13 * 16);
}

}  // namespace
}  // namespace gemmule::test
