// Specializations of the sm_100 kernels compile for sm_100a and sm_103a without local memory or an ignored setmaxnreg, and
// contain the tcgen05 instructions of their operands: a set in which every pair of option values occurs, and a seeded sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sm100_host.hpp"
#include "backends/machine_code.hpp"
#include "backends/scaled_choices.hpp"
#include "scheduler/cluster.hpp"

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
std::string fault(const Compiled& compiled, const sm100::TileConfig& tile, const std::string& kind) {
  if (std::string why = resource_fault(compiled); !why.empty()) return why;
  if (std::string why = overtaking_arrival(compiled.cubin); !why.empty()) return why;
  const std::string wanted = "tcgen05.mma.cta_group::" + std::to_string(tile.ctas) + "." + kind;
  const char* other = tile.ctas == 1 ? "cta_group::2" : "cta_group::1.";
  const auto has = [&](std::string_view text) { return compiled.ptx.find(text) != std::string::npos; };
  if (!has(wanted)) return "no " + wanted;
  if (has(other)) return std::string("an instruction of ") + other;
  if (has("complete_tx::bytes.multicast::cluster") != (tile.width > 1)) return "multicast, or none";
  if (has("barrier.cluster") != (tile.ctas * tile.width > 1)) return "cluster barriers, or none";
  return {};
}

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
  return fault(compile_source(kernel->specialize(p, arch).source, arch), tile, kinds[x[0]]);
}

constexpr std::size_t shares = 2;

/// Target, operator and share.
class Sm100Specializations : public testing::TestWithParam<std::tuple<Arch, Op, std::size_t>> {};

TEST_P(Sm100Specializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const auto [arch, op, index] = GetParam();
  // Of the family's own target a sample: devices that exist have targets of their own.
  const std::vector<ScaledChoice> legal = legal_scaled_choices(op, false);
  const std::vector<ScaledChoice> choices =
      arch == Arch::sm_100f ? seeded_sample(legal, 2) : chosen_for_test(legal, 2);
  for (const ScaledChoice& x : share_of(choices, index, shares))
    EXPECT_EQ(fault(op, x, arch), "") << "choice " << to_string(x);
}

std::string share_name(const testing::TestParamInfo<std::tuple<Arch, Op, std::size_t>>& info) {
  const auto [arch, op, share] = info.param;
  return std::string(name(arch)) + (op == Op::srelu ? "_srelu" : "_dglu") + std::to_string(share);
}

INSTANTIATE_TEST_SUITE_P(Targets, Sm100Specializations,
                         testing::Combine(testing::Values(Arch::sm_100a, Arch::sm_103a, Arch::sm_100f),
                                          testing::Values(Op::srelu, Op::dglu),
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
  p.cluster = {2, 1};
  EXPECT_EQ(sm100::tile_config(p).ctas, 2u);
  p.tile.m = 256;
  p.b_n_major = true;  // spans of 128 columns, which a pair cannot halve
  EXPECT_EQ(sm100::tile_config(p).ctas, 1u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 128u);
  p.ab = bfloat16;
  p.scale = none;
  p.vec = 0;
  EXPECT_EQ(sm100::tile_config(p).ctas, 2u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 256u);
  p.c = p.d = float32;  // spans of 64 columns, which half of 192 would cut
  EXPECT_EQ(sm100::tile_config(p).ctas, 2u);
  EXPECT_EQ(sm100::tile_config(p).tile_n, 128u);
  p.b_n_major = false;
  EXPECT_EQ(sm100::tile_config(p).tile_n, 192u);
}

struct ClusterCase {
  int tile_m;
  ClusterShape shape;
  int m_aligned;
  bool n_major;
  unsigned ctas, width;  ///< launched
};

/// The table of docs/blackwell.md.
TEST(Sm100Tiles, LaunchesTheClustersThatTheDocumentationNames) {
  for (const bool block_scaled : {true, false}) {
    Problem p;
    p.op = Op::dglu;
    p.n = 5 * 256 + 32;
    p.k = 256;
    p.experts = 4;
    p.c = p.d = bfloat16;
    p.ab = block_scaled ? float8_e4m3fn : bfloat16;
    p.scale = block_scaled ? float8_e8m0fnu : none;
    p.vec = block_scaled ? 32 : 0;
    std::vector<ClusterCase> cases;
    for (int n = 1; n <= (block_scaled ? 4 : 16); n *= 2) {
      const auto width = static_cast<unsigned>(n);
      for (const int m_aligned : {128, 256}) cases.push_back({128, {1, n}, m_aligned, false, 1, width});
      if (n == 16) continue;
      for (const int tile_m : {128, 256}) {
        cases.push_back({tile_m, {2, n}, 256, false, 2, width});
        cases.push_back({tile_m, {2, n}, 128, false, 1, width});
        cases.push_back({tile_m, {2, n}, 256, true, block_scaled ? 1u : 2u, width});
      }
    }
    for (const ClusterCase& x : cases) {
      p.tile.m = x.tile_m;
      p.cluster = x.shape;
      p.m_aligned = x.m_aligned;
      p.b_n_major = x.n_major;
      const sm100::TileConfig tile = sm100::tile_config(p);
      EXPECT_EQ(tile.ctas, x.ctas);
      EXPECT_EQ(tile.width, x.width);
      const EntryPoint entry = sm100::specialize(p, "entry").entries[0];
      EXPECT_EQ(entry.cluster, x.ctas * x.width);
      // Whole clusters, enough for every tile and none to spare; of 148 multiprocessors what clusters fill.
      const std::int64_t m = 4096, rows = m / (128 * x.ctas);
      const std::int64_t work = sm100::work_ctas(p, m, tile);
      EXPECT_EQ(work % entry.cluster, 0);
      EXPECT_GE(work / (rows * x.ctas), sm100::column_tiles(p, tile));
      EXPECT_LT(work / (rows * x.ctas), sm100::column_tiles(p, tile) + x.width);
      const Function function{nullptr, entry, static_cast<int>(148 / entry.cluster * entry.cluster)};
      const Operands operands;
      const Launch launch{p, operands, {148, 232448}, {&function, 1}};
      const unsigned grid = launch.persistent_ctas(0, work);
      EXPECT_EQ(grid % entry.cluster, 0u);
      EXPECT_EQ(grid, std::min<std::int64_t>(work, function.resident_ctas));
    }
  }
}

/// Every row of A, and every scale of a stage, is loaded by one of the CTAs that need it.
TEST(Sm100Tiles, PlacesInAClusterShareAllOfA) {
  using kernels::ClusterPlace;
  for (const unsigned ctas : {1u, 2u}) {
    for (const unsigned width : {1u, 2u, 4u, 8u, 16u}) {
      if (ctas * width > 16) continue;
      for (unsigned rank = 0; rank < ctas * width; ++rank) {
        const ClusterPlace place{ctas, width, rank};
        EXPECT_EQ(place.tile() * ctas + place.part(), rank);
        EXPECT_EQ(place.leader(), place.tile() * ctas);
        unsigned tile = 0, rows = 0;
        for (unsigned other = 0; other < place.size(); ++other) {
          const ClusterPlace at{ctas, width, other};
          tile |= (at.tile() == place.tile() ? 1u : 0u) << other;
          rows |= (at.part() == place.part() ? 1u : 0u) << other;
        }
        EXPECT_EQ(place.own_tile(), tile);
        EXPECT_EQ(place.own_rows(), rows);
        EXPECT_EQ(place.all(), (1u << ctas * width) - 1);
      }
      EXPECT_EQ(kernels::a_slice_rows(width) * width, 128u);
      EXPECT_EQ(kernels::a_slice_rows(width) % 8, 0u);
    }
  }
  for (const unsigned atoms : {1u, 2u, 4u}) {
    for (const unsigned width : {1u, 2u, 4u}) {
      kernels::OperandLayout layout;
      layout.sfa_bytes = atoms * 512;
      for (unsigned i = 0; i < width; ++i) {
        const kernels::ScaleSlice slice = kernels::sfa_slice(layout, width, i);
        EXPECT_EQ(slice.offset, i * layout.sfa_bytes / width);
        EXPECT_EQ(slice.atom * 512 + slice.pair * 2, slice.offset);
      }
    }
  }
}

/// Two accumulators and two sets of scales fit tensor memory, whatever the operands.
TEST(Sm100Tiles, TensorMemoryAndBuffersHoldEveryTile) {
  for (const ScaledOperand& operand : scaled_operands) {
    for (const bool n_major : {false, true}) {
      if (n_major && operand.ab == float4_e2m1fn_x2) continue;
      for (const int m_aligned : {128, 256}) {
        for (const DType c : {bfloat16, float32}) {
          for (const DType d : {bfloat16, float32}) {
            Problem p;
            p.op = Op::dglu;
            p.n = p.k = 256;
            p.experts = 4;
            p.ab = operand.ab;
            p.scale = operand.scale;
            p.vec = operand.vec;
            p.c = c;
            p.d = d;
            p.b_n_major = n_major;
            p.m_aligned = m_aligned;
            const sm100::TileConfig tile = sm100::tile_config(p);
            const kernels::OperandOptions options = sm100::operand_options(p);
            const unsigned scales = (1 + kernels::b_scale_rows(tile.tile_n)) * options.stage_atoms() * 4;
            EXPECT_LE(2 * tile.tile_n + 2 * scales, 512u) << name(operand.ab);
            // B arrives in whole spans.
            if (n_major) {
              EXPECT_EQ(tile.tile_n / tile.ctas % options.span_columns(), 0u) << name(operand.ab);
            }
            EXPECT_GE(tile.stages, 2u) << name(operand.ab);
            EXPECT_LE(sm100::shared_bytes(p, tile), kernels::sm100::max_shared_bytes) << name(operand.ab);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemmule::cuda
