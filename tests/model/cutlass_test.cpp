// The model's reading of tcgen05 descriptors and layouts against CUTLASS's builders. Built only where CUTLASS's headers are.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "cute/arch/mma_sm100_desc.hpp"
#include "cute/atom/mma_traits_sm100.hpp"
#include "cute/atom/mma_traits_sm90_gmma.hpp"
#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"
#include "engine/tcgen05_descriptor.hpp"
#include "layout/scale_factors.hpp"
#include "ptx/tcgen05.hpp"

namespace gemmule::test {
namespace {

using cute::UMMA::Major;
using model::InstructionView;
using model::TensorFormat;
using model::TensorKind;

template <typename D>
std::uint32_t bits_of(const D& d) {
  return __builtin_bit_cast(std::uint32_t, d);
}

template <int m, int n, Major b_major>
void expect_f16() {
  const auto cutlass =
      cute::UMMA::make_instr_desc<cute::bfloat16_t, cute::bfloat16_t, float, m, n, Major::K, b_major>();
  const std::uint32_t bits = static_cast<std::uint32_t>(cutlass);
  EXPECT_EQ(bits, bits_of(ptx::InstructionDescriptor::bf16(m, n, b_major == Major::MN)));
  const InstructionView v = model::decode_instruction(TensorKind::f16, 0, m / 128 ? m / 128 : 1, bits);
  EXPECT_EQ(v.error, "");
  EXPECT_EQ(v.m, m);
  EXPECT_EQ(v.n, n);
  EXPECT_EQ(v.b_mn_major, b_major == Major::MN);
  EXPECT_EQ(v.a, TensorFormat::bf16);
}

TEST(ModelTensorCutlass, InstructionsOfF16) {
  expect_f16<64, 32, Major::K>();
  expect_f16<128, 64, Major::MN>();
  expect_f16<128, 256, Major::K>();
  expect_f16<256, 192, Major::MN>();
}

template <typename Type, typename Scale, int m, int n, Major b_major>
void expect_scaled(TensorKind kind, int block, TensorFormat format, std::uint32_t code) {
  auto cutlass =
      cute::UMMA::make_instr_desc_block_scaled<Type, Type, float, Scale, m, n, Major::K, b_major>();
  const bool e8m0 = std::is_same_v<Scale, cute::float_ue8m0_t>;
  for (std::uint32_t id = 0; id < 4; ++id) {
    if (static_cast<int>(id) % (kind == TensorKind::mxf8f6f4 ? 1 : 64 / block) != 0) continue;
    cutlass.a_sf_id_ = static_cast<std::uint16_t>(id & 3);
    cutlass.b_sf_id_ = static_cast<std::uint16_t>(id & 3);
    const std::uint32_t bits = static_cast<std::uint32_t>(cutlass);
    EXPECT_EQ(bits,
              bits_of(ptx::ScaledInstructionDescriptor::of(code, e8m0, m, n, b_major == Major::MN, id)));
    const InstructionView v = model::decode_instruction(kind, block, m / 128, bits);
    EXPECT_EQ(v.error, "");
    EXPECT_EQ(v.m, m);
    EXPECT_EQ(v.n, n);
    EXPECT_EQ(v.a, format);
    EXPECT_EQ(v.b, format);
    EXPECT_EQ(v.e8m0_scales, e8m0);
    EXPECT_EQ(v.a_scale_id, static_cast<int>(id));
    EXPECT_EQ(v.b_scale_id, static_cast<int>(id));
  }
}

TEST(ModelTensorCutlass, ScaledInstructions) {
  using cute::float_e2m1_t, cute::float_e4m3_t, cute::float_e5m2_t, cute::float_ue4m3_t, cute::float_ue8m0_t;
  expect_scaled<float_e4m3_t, float_ue8m0_t, 128, 256, Major::K>(TensorKind::mxf8f6f4, 32, TensorFormat::e4m3,
                                                                 0);
  expect_scaled<float_e5m2_t, float_ue8m0_t, 256, 64, Major::MN>(TensorKind::mxf8f6f4, 32, TensorFormat::e5m2,
                                                                 1);
  // to_UMMAFormat means the padded E2M1 of mxf8f6f4; the packed one has a code of its own.
  auto fp4 = cute::UMMA::InstrDescriptorBlockScaled{};
  fp4.a_format_ = static_cast<std::uint16_t>(cute::UMMA::to_MXF4Format<float_e2m1_t>()) & 7;
  fp4.b_format_ = fp4.a_format_;
  fp4.scale_format_ = static_cast<std::uint16_t>(cute::UMMA::to_ScaleFormat<float_ue4m3_t>()) & 1;
  fp4.m_dim_ = 128 >> 4;
  fp4.n_dim_ = 256 >> 3;
  EXPECT_EQ(static_cast<std::uint32_t>(fp4),
            bits_of(ptx::ScaledInstructionDescriptor::of(1, 0, 128, 256, false, 0)));
}

TEST(ModelTensorCutlass, OperandDescriptors) {
  using cute::UMMA::LayoutType;
  const std::pair<LayoutType, ptx::OperandSwizzle> swizzles[] = {
      {LayoutType::SWIZZLE_NONE, ptx::OperandSwizzle::none},
      {LayoutType::SWIZZLE_128B, ptx::OperandSwizzle::b128},
      {LayoutType::SWIZZLE_64B, ptx::OperandSwizzle::b64},
      {LayoutType::SWIZZLE_32B, ptx::OperandSwizzle::b32},
  };
  for (const auto& [theirs, ours] : swizzles) {
    cute::UMMA::SmemDescriptor d;
    d.desc_ = 0;
    d.start_address_ = 0x12400 >> 4;
    d.leading_byte_offset_ = 4096 >> 4;
    d.stride_byte_offset_ = 1024 >> 4;
    d.version_ = 1;
    d.layout_type_ = static_cast<std::uint8_t>(theirs) & 7;
    EXPECT_EQ(d.desc_,
              __builtin_bit_cast(std::uint64_t, ptx::OperandDescriptor::of({0x12400}, 4096, 1024, ours)));
    const model::OperandView view = model::decode_operand(d.desc_);
    EXPECT_EQ(view.error, "");
    EXPECT_EQ(view.start, 0x12400u);
    EXPECT_EQ(view.leading, 4096u);
    EXPECT_EQ(view.stride, 1024u);
  }
}

/// Every element of an operand of 128 rows and 32 bytes of k: where CuTe's canonical layout puts it, and the model.
template <typename Atom, typename Type, bool mn_major>
void expect_layout(ptx::OperandSwizzle swizzle) {
  constexpr int bits = cute::sizeof_bits_v<Type>, per_chunk = 128 / bits, depth = 256 / bits, rows = 128;
  constexpr int k_extent = mn_major ? depth : cute::size<1>(Atom{}) > depth ? cute::size<1>(Atom{}) : depth;
  const auto layout = cute::as_position_independent_swizzle_layout(
      cute::tile_to_shape(Atom{}, cute::Shape<cute::Int<rows>, cute::Int<k_extent>>{}));
  const auto byte = [&](int row, int k) { return static_cast<std::uint32_t>(layout(row, k) * bits / 8); };
  constexpr int span = mn_major ? cute::size<0>(Atom{}) : 8;
  const std::uint32_t leading = mn_major && span < rows ? byte(span, 0) : 16;
  const std::uint32_t stride = mn_major ? byte(0, 8) & ~127u : byte(8, 0);
  const auto view = model::decode_operand(
      __builtin_bit_cast(std::uint64_t, ptx::OperandDescriptor::of({0x8000}, leading, stride, swizzle)));
  EXPECT_EQ(model::operand_error(view, rows, mn_major, bits), "");
  const auto chunks = model::tensor_operand_chunks(view, rows, mn_major, bits);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < depth; ++k) {
      const std::size_t chunk = mn_major ? static_cast<std::size_t>(k * (rows / per_chunk) + row / per_chunk)
                                         : static_cast<std::size_t>(row * 2 + k / per_chunk);
      const int inside = (mn_major ? row : k) % per_chunk * bits / 8;
      EXPECT_EQ(chunks[chunk] + static_cast<std::uint32_t>(inside), 0x8000 + byte(row, k))
          << row << ", " << k;
    }
  }
}

TEST(ModelTensorCutlass, Layouts) {
  using namespace cute::GMMA;
  expect_layout<Layout_K_SW128_Atom<cute::bfloat16_t>, cute::bfloat16_t, false>(ptx::OperandSwizzle::b128);
  expect_layout<Layout_K_SW64_Atom<cute::bfloat16_t>, cute::bfloat16_t, false>(ptx::OperandSwizzle::b64);
  expect_layout<Layout_K_SW32_Atom<cute::bfloat16_t>, cute::bfloat16_t, false>(ptx::OperandSwizzle::b32);
  expect_layout<Layout_K_SW128_Atom<cute::float_e4m3_t>, cute::float_e4m3_t, false>(
      ptx::OperandSwizzle::b128);
  expect_layout<Layout_MN_SW128_Atom<cute::bfloat16_t>, cute::bfloat16_t, true>(ptx::OperandSwizzle::b128);
  expect_layout<Layout_MN_SW64_Atom<cute::bfloat16_t>, cute::bfloat16_t, true>(ptx::OperandSwizzle::b64);
  expect_layout<Layout_MN_SW128_Atom<cute::float_e4m3_t>, cute::float_e4m3_t, true>(
      ptx::OperandSwizzle::b128);
}

/// Lane and column of every element of D, with one CTA or in one CTA of a pair.
template <int m, int n, int ctas>
void expect_accumulator() {
  constexpr auto mode =
      ctas == 1 ? cute::UMMA::TmemAllocMode::NonInterleaved : cute::UMMA::TmemAllocMode::Interleaved;
  using Shape = cute::Shape<cute::Shape<cute::Int<m / ctas>, cute::Int<n>>, cute::Int<1>, cute::Int<1>>;
  const auto layout = cute::UMMA::tmem_frg<float, float, ctas, mode>::make(Shape{}).layout();
  const std::uint32_t bits = bits_of(ptx::InstructionDescriptor::bf16(m, n, false));
  const model::AccumulatorPlacement p =
      model::placement_of(model::decode_instruction(TensorKind::f16, 0, ctas, bits), 0);
  for (int row = 0; row < p.rows; ++row) {
    for (int column = 0; column < n; ++column) {
      const int address = layout(cute::make_coord(cute::make_coord(row, column), 0, 0));
      EXPECT_EQ(address >> 16, p.lane(row, column / p.columns)) << row << ", " << column;
      EXPECT_EQ(address & 0xffff, column % p.columns) << row << ", " << column;
    }
  }
}

TEST(ModelTensorCutlass, Accumulators) {
  expect_accumulator<128, 256, 1>();
  expect_accumulator<64, 64, 1>();
  expect_accumulator<256, 128, 2>();
  expect_accumulator<128, 128, 2>();
}

/// Scale factors in tensor memory, in bytes: row r is lane r % 32 of column r / 32, in each of the four quarters.
TEST(ModelTensorCutlass, ScaleFactorsInTensorMemory) {
  using Frame = cute::UMMA::tmem_sf_frg<cute::float_ue4m3_t, 16, 1, true>;
  using Values = cute::Shape<cute::Int<16>, cute::Int<4>>;  // four blocks of 16 k
  using Shape = cute::Shape<cute::Shape<cute::Int<128>, Values>, cute::Int<1>, cute::Int<1>>;
  const auto layout = Frame::make(Shape{}).layout();
  for (int row = 0; row < 128; ++row) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int block = 0; block < 4; ++block) {
        const int address = layout(row + 128 * quarter + 128 * 4 * 16 * block);
        EXPECT_EQ(address >> 18, 32 * quarter + row % 32) << row;
        EXPECT_EQ(address & 0x3ffff, row / 32 * 4 + block) << row;
      }
    }
  }
}

/// Scale factors of 256 rows and 512 k, as they lie in global memory: tcgen05.cp moves 512 bytes of them as they are.
TEST(ModelTensorCutlass, ScaleFactors) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<32>;
  const auto layout = Config::tile_atom_to_shape_SFA(cute::make_shape(256, 128, 512, 1));
  for (int row = 0; row < 256; ++row) {
    for (int block = 0; block < 512 / 32; ++block) {
      EXPECT_EQ(layout(cute::make_coord(row, block * 32, 0)), layout::scale_offset(row, block, 512 / 32 / 4));
    }
  }
}

}  // namespace
}  // namespace gemmule::test
