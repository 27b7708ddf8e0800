// Specializations of the block-scaled Hopper kernels compile without serialized wgmma, an ignored setmaxnreg or more than
// the few spills they may have, and no arrival overtakes a load: a few by default, with GEMMULE_ALL_SPECIALIZATIONS=1 a set in which every pair of option values occurs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/kernel.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sm90_scaled.hpp"
#include "backends/machine_code.hpp"
#include "backends/specialization_cover.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::cuda {
namespace {

using enum DType;

/// Values of: operands, C, D, weights, dynamic, m_aligned, amax, column scales or D_col copy, and two of the operator:
/// srelu: bias, clamp; dglu: activation, sums and epilogue_op.
constexpr std::array<int, 10> extents = {6, 6, 6, 3, 2, 2, 2, 2, 6, 6};
using Options = Choice<extents.size()>;

struct Operand {
  DType ab, scale;
  int vec;
};
constexpr Operand operands[] = {
    {float8_e4m3fn, float8_e8m0fnu, 32},    {float8_e5m2, float8_e8m0fnu, 32},
    {float4_e2m1fn_x2, float8_e8m0fnu, 32}, {float4_e2m1fn_x2, float8_e8m0fnu, 16},
    {float4_e2m1fn_x2, float8_e4m3fn, 16},
};
constexpr DType outputs[] = {bfloat16, float16, float32, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2};
constexpr DType bias_types[] = {none, bfloat16, float16, float32};

bool is_wide(DType type) {
  return type == bfloat16 || type == float16 || type == float32;
}

/// False where the operators would refuse the choice, or where it repeats another.
bool make_problem(Op op, const Options& x, Problem& p) {
  if (x[0] >= 5) return false;
  const Operand& operand = operands[x[0]];
  const bool fp4 = operand.ab == float4_e2m1fn_x2;
  p.op = op;
  p.n = p.k = 256;
  p.experts = 4;
  p.ab = operand.ab;
  p.scale = operand.scale;
  p.vec = operand.vec;
  p.c = outputs[x[1]];
  p.d = outputs[x[2]];
  const bool wide = is_wide(p.d);
  if (fp4 ? !wide : op == Op::srelu ? p.d == float32 : p.d != float8_e4m3fn && p.d != float8_e5m2)
    return false;
  if (op == Op::dglu && p.c == float4_e2m1fn_x2) return false;
  p.quantize = !fp4 && !wide;
  p.discrete = x[3] != 0;
  p.b_n_major = x[3] == 2;
  if (p.b_n_major && fp4) return false;
  p.use_dynamic_sched = x[4] != 0;
  p.m_aligned = x[5] != 0 ? 128 : 256;
  p.has_amax = x[6] != 0;
  p.discrete_col_sfd = p.quantize && x[7] != 0;
  p.has_d_col = p.quantize || x[7] != 0;
  p.has_prob = true;
  if (op == Op::srelu) {
    if (x[8] >= 4 || x[9] >= 2) return false;
    p.bias = bias_types[x[8]];
    p.tanh_clamp_scale = x[9] != 0 ? 8.0f : 0.0f;
    return true;
  }
  if (x[8] >= 4) return false;
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
  return true;
}

/// Arrivals that need not wait for loads: on expanded B, which only wgmma reads; on C, of which every warp has used what it
/// loaded before the barrier of the warpgroup that precedes the arrival.
bool need_not_wait(const Problem& p, std::uint64_t offset) {
  const kernels::ScaledLayout layout = p.op == Op::srelu
                                           ? kernels::scaled_layout(sm90::scaled_options(p))
                                           : kernels::scaled_dglu_layout(sm90::scaled_dglu_options(p));
  const std::uint32_t expanded_b = layout.barriers + 8 * (2 * layout.stages + layout.b_buffers);
  const std::uint32_t tiles = expanded_b + 8 * layout.b_buffers, c = tiles + 8 * 2 * 4;
  return offset == expanded_b || offset >= c;
}

class Sm90ScaledSpecializations : public testing::TestWithParam<Op> {};

TEST_P(Sm90ScaledSpecializations, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  const bool everything = std::getenv("GEMMULE_ALL_SPECIALIZATIONS") != nullptr;
  const std::vector<Options> legal = legal_choices<extents.size()>(extents, [](const Options& x) {
    Problem p;
    return make_problem(GetParam(), x, p);
  });
  const std::vector<Options> choices = pairwise_cover(legal, everything ? legal.size() : 3);
  std::vector<std::string> faults(choices.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < choices.size(); i = next++) {
      Problem p;
      make_problem(GetParam(), choices[i], p);
      const Kernel* kernel = find_kernel(p, Arch::sm_90a, &faults[i]);
      if (!kernel) continue;
      const Specialization specialization = kernel->specialize(p, Arch::sm_90a);
      const Compiled compiled = compile_source(specialization.source, Arch::sm_90a);
      faults[i] =
          resource_fault(compiled, specialization.tolerated_spill_bytes) +
          overtaking_arrival(compiled.cubin, [&](std::uint64_t offset) { return need_not_wait(p, offset); });
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::string text;
    for (const int value : choices[i]) text += std::to_string(value) + " ";
    EXPECT_EQ(faults[i], "") << "choice " << text;
  }
  if (everything) std::printf("%zu specializations\n", choices.size());
}

std::string operator_name(const testing::TestParamInfo<Op>& info) {
  return info.param == Op::srelu ? "srelu" : "dglu";
}

INSTANTIATE_TEST_SUITE_P(Operators, Sm90ScaledSpecializations, testing::Values(Op::srelu, Op::dglu),
                         operator_name);

}  // namespace
}  // namespace gemmule::cuda
