// Specializations of the sm_100 kernels compile without local memory or an ignored setmaxnreg, and contain the tcgen05
// instructions of their operands. A set in which every pair of option values occurs compiles for sm_100a and sm_103a in
// turn, a seeded sample for both and for sm_100f, whose instructions must be the same; with GEMMULE_ALL_SPECIALIZATIONS=1 every
// choice for all three, with GEMMULE_ALL_SPECIALIZATIONS=product all legal choices (days).
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sm100_host.hpp"
#include "backends/machine_code.hpp"
#include "backends/scaled_choices.hpp"

namespace gemmule::cuda {
namespace {

using enum DType;

/// The instruction of scaled_operands[i].
constexpr const char* kinds[] = {"kind::f16 ",
                                 "kind::mxf8f6f4.block_scale.block32 ",
                                 "kind::mxf8f6f4.block_scale.block32 ",
                                 "kind::mxf4.block_scale.block32 ",
                                 "kind::mxf4nvf4.block_scale.block16 ",
                                 "kind::mxf4nvf4.block_scale.block16 "};

/// What is wrong with the code for one target; empty if nothing is.
std::string fault(const Compiled& compiled, unsigned ctas, const std::string& kind) {
  if (std::string why = resource_fault(compiled); !why.empty()) return why;
  if (std::string why = overtaking_arrival(compiled.cubin); !why.empty()) return why;
  const std::string wanted = "tcgen05.mma.cta_group::" + std::to_string(ctas) + "." + kind;
  const char* other = ctas == 1 ? "cta_group::2" : "cta_group::1.";
  if (compiled.ptx.find(wanted) == std::string::npos) return "no " + wanted;
  if (compiled.ptx.find(other) != std::string::npos) return std::string("an instruction of ") + other;
  return {};
}

/// Names and instructions of all functions, without what schedules the instructions: bits 105 and up of the 128, stall
/// counts and scoreboards (see overtaking_arrival), which follow from the latencies of a chip.
std::string machine_code(const Compiled& compiled) {
  std::string code;
  for_each_function(compiled.cubin, [&](std::string_view function, std::string_view text) {
    code.append(function).append("\n");
    for (std::size_t at = 0; at + 16 <= text.size(); at += 16)
      code.append(text.substr(at, 13)).push_back(static_cast<char>(text[at + 13] & 1));
  });
  return code;
}

/// What is wrong with a choice on any of the targets, or differs between them.
std::string fault(Op op, const ScaledChoice& x, std::span<const Arch> targets) {
  Problem p;
  make_scaled_problem(op, x, p);
  const sm100::TileConfig tile = sm100::tile_config(p);
  if (tile.stages < 2) return "a ring of one stage";
  if (sm100::shared_bytes(p, tile) > kernels::sm100::max_shared_bytes) return "too much shared memory";
  std::string first_code;
  for (const Arch arch : targets) {
    std::string reason;
    const Kernel* kernel = find_kernel(p, arch, &reason);
    if (!kernel) return reason;
    const Compiled compiled = compile_source(kernel->specialize(p, arch).source, arch);
    const std::string why = fault(compiled, tile.ctas, kinds[x[0]]);
    if (!why.empty()) return std::string(name(arch)) + ": " + why;
    const std::string code = machine_code(compiled);
    if (first_code.empty()) first_code = code;
    if (code != first_code)
      return std::string("the code for ") + name(arch) + " is not that for " + name(targets[0]);
  }
  return {};
}

constexpr Arch all_targets[] = {Arch::sm_100a, Arch::sm_103a, Arch::sm_100f};
constexpr std::size_t shares = 2;

/// Operator and share.
class Sm100Specializations : public testing::TestWithParam<std::tuple<Op, std::size_t>> {};

TEST_P(Sm100Specializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const auto [op, index] = GetParam();
  const bool product = product_wanted(), every_target = std::getenv("GEMMULE_ALL_SPECIALIZATIONS") != nullptr;
  const std::vector<ScaledChoice> legal = legal_scaled_choices(op, false);
  const std::vector<ScaledChoice> cover = product ? legal : pairwise_cover(legal, legal.size());
  if (!product) {
    ASSERT_LE(cover.size(), most_in_cover);
  }
  for (std::size_t i = index; i < cover.size(); i += shares) {
    const std::span<const Arch> targets = every_target
                                              ? std::span<const Arch>(all_targets)
                                              : std::span<const Arch>(all_targets).subspan(i / shares % 2, 1);
    EXPECT_EQ(fault(op, cover[i], targets), "") << "choice " << to_string(cover[i]);
  }
  for (const ScaledChoice& x : share_of(seeded_sample(legal, 3), index, shares))
    EXPECT_EQ(fault(op, x, all_targets), "") << "choice " << to_string(x);
}

INSTANTIATE_TEST_SUITE_P(Operators, Sm100Specializations,
                         testing::Combine(testing::Values(Op::srelu, Op::dglu),
                                          testing::Range(std::size_t{0}, shares)),
                         share_name);

TEST(Sm100Tiles, RowsAndTilerChooseOneCtaOrAPair) {
  Problem p;
  p.op = Op::dglu;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = float8_e4m3fn;
  p.scale = float8_e8m0fnu;
  p.vec = 32;
  p.c = p.d = bfloat16;
  EXPECT_EQ(sm100::tile_config(p).ctas, 2u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 192u);
  p.m_aligned = 128;
  EXPECT_EQ(sm100::tile_config(p).ctas, 1u);
  p.m_aligned = 256;
  p.tile.m = 128;
  EXPECT_EQ(sm100::tile_config(p).ctas, 1u);
  p.tile.m = 256;
  p.b_n_major = true;  // spans of 128 columns, which a pair cannot halve
  EXPECT_EQ(sm100::tile_config(p).ctas, 1u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 128u);
  p.ab = bfloat16;
  p.scale = none;
  p.vec = 0;
  EXPECT_EQ(sm100::tile_config(p).ctas, 2u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 256u);
}

/// Two accumulators and two sets of scales fit tensor memory, whatever the operands.
TEST(Sm100Tiles, TensorMemoryHoldsAccumulatorsAndScales) {
  for (const ScaledOperand& operand : scaled_operands) {
    for (const bool n_major : {false, true}) {
      for (const int m_aligned : {128, 256}) {
        if (n_major && operand.ab == float4_e2m1fn_x2) continue;
        Problem p;
        p.op = Op::dglu;
        p.n = p.k = 256;
        p.experts = 4;
        p.ab = operand.ab;
        p.scale = operand.scale;
        p.vec = operand.vec;
        p.c = p.d = bfloat16;
        p.b_n_major = n_major;
        p.m_aligned = m_aligned;
        const sm100::TileConfig tile = sm100::tile_config(p);
        const kernels::OperandOptions options = sm100::operand_options(p);
        const unsigned scales = (1 + kernels::b_scale_rows(tile.tile_n)) * options.stage_atoms() * 4;
        EXPECT_LE(2 * tile.tile_n + 2 * scales, 512u) << name(operand.ab);
      }
    }
  }
}

}  // namespace
}  // namespace gemmule::cuda
