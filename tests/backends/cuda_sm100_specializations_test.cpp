// Specializations of the sm_100 kernels compile for sm_100a and sm_103a without local memory or an ignored setmaxnreg, and
// contain the tcgen05 instructions of their operands. A few by default; with GEMMULE_ALL_SPECIALIZATIONS=1 sets in which
// every pair of option values occurs, for both targets; with GEMMULE_ALL_SPECIALIZATIONS=product all of them (days).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

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

/// What is wrong with a choice on a target; empty if nothing is.
std::string fault(Op op, const ScaledChoice& x, Arch arch) {
  Problem p;
  make_scaled_problem(op, x, p);
  std::string reason;
  const Kernel* kernel = find_kernel(p, arch, &reason);
  if (!kernel) return reason;
  const sm100::TileConfig tile = sm100::tile_config(p);
  if (tile.stages < 2) return "a ring of one stage";
  if (sm100::shared_bytes(p, tile) > kernels::sm100::max_shared_bytes) return "too much shared memory";
  const Compiled compiled = compile_source(kernel->specialize(p, arch).source, arch);
  if (std::string why = resource_fault(compiled); !why.empty()) return why;
  if (std::string why = overtaking_arrival(compiled.cubin); !why.empty()) return why;
  const std::string group = "tcgen05.mma.cta_group::" + std::to_string(tile.ctas) + ".";
  const char* other = tile.ctas == 1 ? "cta_group::2" : "cta_group::1.";
  if (compiled.ptx.find(group + kinds[x[0]]) == std::string::npos) return "no " + group + kinds[x[0]];
  if (compiled.ptx.find(other) != std::string::npos) return std::string("an instruction of ") + other;
  return {};
}

struct Job {
  Op op;
  ScaledChoice choice;
  Arch arch;
};

/// Choices of each operator; every second one for the other target, or all for both.
std::vector<Job> jobs(std::size_t at_most, bool both, bool product) {
  std::vector<Job> all;
  for (const Op op : {Op::srelu, Op::dglu}) {
    std::vector<ScaledChoice> choices = legal_scaled_choices(op, false);
    if (!product) choices = pairwise_cover(choices, at_most);
    for (const ScaledChoice& x : choices) {
      const Arch first = all.size() % 2 == 0 ? Arch::sm_100a : Arch::sm_103a;
      all.push_back({op, x, first});
      if (both) all.push_back({op, x, first == Arch::sm_100a ? Arch::sm_103a : Arch::sm_100a});
    }
  }
  return all;
}

TEST(Sm100Specializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const char* wanted = std::getenv("GEMMULE_ALL_SPECIALIZATIONS");
  const bool product = wanted && std::string(wanted) == "product";
  const std::vector<Job> all = jobs(wanted ? 150 : 10, wanted != nullptr, product);
  const std::vector<std::string> faults =
      faults_of(all.size(), [&](std::size_t i) { return fault(all[i].op, all[i].choice, all[i].arch); });
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(faults[i], "") << "choice " << (all[i].op == Op::srelu ? "srelu " : "dglu ")
                             << to_string(all[i].choice) << "for " << name(all[i].arch);
  std::printf("%zu specializations\n", all.size());
}

TEST(Sm100Specializations, RowsAndTilerChooseOneCtaOrAPair) {
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
TEST(Sm100Specializations, TensorMemoryHoldsAccumulatorsAndScales) {
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
