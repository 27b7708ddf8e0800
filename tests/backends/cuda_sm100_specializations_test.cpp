// Specializations of the sm_100 kernels compile for sm_100a and sm_103a without local memory or an ignored setmaxnreg, and
// contain the tcgen05 instructions of their operands. A few by default; with GEMMULE_ALL_SPECIALIZATIONS=1 sets in which
// every pair of option values occurs, for both targets; with GEMMULE_ALL_SPECIALIZATIONS=product all of them (days).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sm100_host.hpp"
#include "backends/machine_code.hpp"
#include "backends/specialization_cover.hpp"

namespace gemmule::cuda {
namespace {

using enum DType;

/// Values of: operands, C, D, weights, dynamic, m_aligned, amax, column scales or a copy in D_col, and two of the
/// operator: srelu: bias, clamp; dglu: activation, sums and epilogue_op.
constexpr std::array<int, 10> extents = {6, 6, 6, 3, 2, 2, 2, 2, 4, 6};
using Options = Choice<extents.size()>;

struct Operand {
  DType ab, scale;
  int vec;
  const char* kind;
};
constexpr Operand operands[] = {
    {bfloat16, none, 0, "kind::f16 "},
    {float8_e4m3fn, float8_e8m0fnu, 32, "kind::mxf8f6f4.block_scale.block32 "},
    {float8_e5m2, float8_e8m0fnu, 32, "kind::mxf8f6f4.block_scale.block32 "},
    {float4_e2m1fn_x2, float8_e8m0fnu, 32, "kind::mxf4.block_scale.block32 "},
    {float4_e2m1fn_x2, float8_e8m0fnu, 16, "kind::mxf4nvf4.block_scale.block16 "},
    {float4_e2m1fn_x2, float8_e4m3fn, 16, "kind::mxf4nvf4.block_scale.block16 "},
};
constexpr DType outputs[] = {bfloat16, float16, float32, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2};
constexpr DType bias_types[] = {none, bfloat16, float16, float32};

bool is_wide(DType type) {
  return type == bfloat16 || type == float16 || type == float32;
}

/// The outputs: false where the operators would refuse them.
bool choose_outputs(const Options& x, Problem& p) {
  const bool fp4 = p.ab == float4_e2m1fn_x2;
  p.c = outputs[x[1]];
  p.d = outputs[x[2]];
  p.has_amax = x[6] != 0;
  p.has_d_col = x[7] != 0;
  if (!p.block_scaled()) return is_wide(p.c) && is_wide(p.d) && !p.has_amax && !p.has_d_col;
  if (p.op == Op::dglu && (p.c == float4_e2m1fn_x2 || p.d == float4_e2m1fn_x2)) return false;
  if (fp4 ? !is_wide(p.d) : p.op == Op::srelu ? p.d == float32 : is_wide(p.d)) return false;
  p.quantize = !fp4 && !is_wide(p.d);
  p.discrete_col_sfd = p.quantize && x[7] != 0;
  p.has_d_col = p.quantize || x[7] != 0;
  return true;
}

bool choose_operator(const Options& x, Problem& p) {
  p.has_prob = true;
  if (p.op == Op::srelu) {
    p.bias = bias_types[x[8]];
    p.tanh_clamp_scale = x[9] % 2 != 0 ? 8.0f : 0.0f;
    return x[9] < 2;
  }
  p.has_dprob = x[9] != 0;
  p.has_dbias = x[9] == 2 || x[9] == 4;
  p.deterministic = x[9] == 3 || x[9] == 4;
  if (x[9] == 5) p.epilogue_op = EpilogueOp::srelu;
  if (x[8] == 1) {
    p.act = ActFunc::dgeglu;
    p.linear_offset = 1;
    p.geglu_alpha = 1.702f;
    p.glu_clamp_max = 7;
    p.glu_clamp_min = -7;
  } else if (x[8] >= 2) {
    p.act = ActFunc::dsituglu;
    p.situ_beta1 = x[8] == 2 ? 4.0f : 2.0f;
    p.situ_beta2 = 25;
  }
  return p.block_scaled() || (x[8] < 2 && x[9] != 5);
}

bool make_problem(Op op, const Options& x, Problem& p) {
  p.op = op;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = operands[x[0]].ab;
  p.scale = operands[x[0]].scale;
  p.vec = operands[x[0]].vec;
  if (op == Op::srelu && !p.block_scaled()) return false;
  p.discrete = x[3] != 0;
  p.b_n_major = x[3] == 2;
  if (p.b_n_major && p.ab == float4_e2m1fn_x2) return false;
  p.use_dynamic_sched = x[4] != 0;
  p.m_aligned = x[5] != 0 ? 128 : 256;
  return choose_outputs(x, p) && choose_operator(x, p);
}

/// What is wrong with a choice on a target; empty if nothing is.
std::string fault(Op op, const Options& x, Arch arch) {
  Problem p;
  make_problem(op, x, p);
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
  if (compiled.ptx.find(group + operands[x[0]].kind) == std::string::npos)
    return "no " + group + operands[x[0]].kind;
  if (compiled.ptx.find(other) != std::string::npos) return std::string("an instruction of ") + other;
  return {};
}

struct Job {
  Op op;
  Options choice;
  Arch arch;
};

/// Choices of each operator; every second one for the other target, or all for both.
std::vector<Job> jobs(std::size_t at_most, bool both, bool product) {
  std::vector<Job> all;
  for (const Op op : {Op::srelu, Op::dglu}) {
    const std::vector<Options> legal = legal_choices<extents.size()>(extents, [op](const Options& x) {
      Problem p;
      return make_problem(op, x, p);
    });
    for (const Options& x : product ? legal : pairwise_cover<extents.size()>(legal, at_most)) {
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
  std::vector<std::string> faults(all.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++)
      faults[i] = fault(all[i].op, all[i].choice, all[i].arch);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string text = all[i].op == Op::srelu ? "srelu" : "dglu";
    for (const int value : all[i].choice) text += " " + std::to_string(value);
    EXPECT_EQ(faults[i], "") << "choice " << text << " for " << name(all[i].arch);
  }
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
  for (const Operand& operand : operands) {
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
