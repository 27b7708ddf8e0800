// Random problems through the public API: the same bytes as the backend gives when it is called directly, whichever form,
// weight mode or storage of the operands is used.
#include <gtest/gtest.h>

#include "backends/cpu/cpu.hpp"
#include "operators/descriptors.hpp"
#include "support/arguments.hpp"
#include "verify/verify.hpp"

namespace gemmule::operators_test {
using namespace test;

namespace {

constexpr std::uint64_t seeds = 40;

/// Outputs of one call through the class API.
Outputs execute(const TestProblem& t, const SreluTensors& tensors, Outputs&& out, Backend backend,
                SreluOptions options) {
  options.backend = backend;
  GroupedGemmSrelu op(samples_of(tensors), options);
  op.compile();
  const std::size_t bytes = op.workspace_size(t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes));
  op.execute(tensors, workspace.data(), bytes);
  return std::move(out);
}
Outputs execute(const TestProblem& t, const DgluTensors& tensors, Outputs&& out, Backend backend,
                DgluOptions options) {
  options.backend = backend;
  GroupedGemmDglu op(samples_of(tensors), options);
  op.compile();
  const std::size_t bytes = op.workspace_size(t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes));
  op.execute(tensors, workspace.data(), bytes);
  return std::move(out);
}

Outputs execute(const TestProblem& t, Backend backend = Backend::automatic) {
  Outputs out = t.outputs();
  if (t.problem.op == Op::srelu) {
    const SreluTensors tensors = srelu_tensors(t, out);
    return execute(t, tensors, std::move(out), backend, srelu_options(t));
  }
  const DgluTensors tensors = dglu_tensors(t, out);
  return execute(t, tensors, std::move(out), backend, dglu_options(t));
}

Outputs run_directly(const TestProblem& t) {
  Outputs out = t.outputs();
  const std::size_t bytes = cpu::workspace_size(t.problem, t.m);
  const Buffer workspace(static_cast<std::int64_t>(bytes));
  cpu::run(t.problem, t.operands(out), workspace.data(), bytes);
  return out;
}

TEST(RandomCalls, TheClassHandsEverythingToTheBackend) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const TestProblem t = random_problem(seed);
    ASSERT_EQ(first_difference(t, execute(t), run_directly(t)), "") << describe(t);
  }
}

TEST(RandomCalls, ExactProblemsGiveTheBytesOfTheReference) {
  for (std::uint64_t seed = 0; seed < seeds / 2; ++seed) {
    const TestProblem t =
        random_problem(seed, {.data = Data::exact, .max_n = 96, .max_k = 128, .max_tiles = 2});
    ASSERT_EQ(first_difference(t, execute(t), execute(t, Backend::reference)), "") << describe(t);
  }
}

/// Outputs of the one-call form lie in the allocator's memory; copied into Outputs, with poison where there are none.
class PoolAllocator : public Allocator {
 public:
  void* allocate(std::size_t bytes, Device, Stream) override { return memory_.allocate(bytes, poison_byte); }
  void deallocate(void*, std::size_t, Device, Stream) noexcept override {}

 private:
  HostMemory memory_;
};

void copy(const Tensor& from, Buffer& to) {
  if (!from || to.size() == 0) return;
  ASSERT_EQ(static_cast<std::int64_t>(from.bytes()), to.size());
  std::memcpy(to.data(), from.data, from.bytes());
}

TEST(RandomCalls, OneCallGivesTheBytesOfTheClass) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    TestProblem t = random_problem(seed);
    // The one-call form starts its accumulators itself.
    for (float* x = t.initial.amax.as<float>(); x < t.initial.amax.as<float>() + t.initial.amax.size() / 4;
         ++x)
      *x = -std::numeric_limits<float>::infinity();
    if (t.initial.dbias.size() > 0)
      std::memset(t.initial.dbias.data(), 0, static_cast<std::size_t>(t.initial.dbias.size()));
    const Outputs want = execute(t);
    Outputs got = t.outputs();
    PoolAllocator allocator;
    if (t.problem.op == Op::srelu) {
      const SreluResult r =
          grouped_gemm_srelu(inputs_of(srelu_tensors(t, got)), srelu_options(t), srelu_call(t), allocator);
      copy(r.c, got.c), copy(r.d, got.d), copy(r.amax, got.amax);
      if (r.d_col) copy(r.d_col, got.d_col);
      copy(r.sfd_row, got.sfd_row), copy(r.sfd_col, got.sfd_col);
      if (!r.amax && got.amax.size() > 0)
        continue;  // only the class gives amax beside a quantized or float32 D
      if (!r.d_col && got.d_col.size() > 0) continue;
    } else {
      const DgluResult r =
          grouped_gemm_dglu(inputs_of(dglu_tensors(t, got)), dglu_options(t), dglu_call(t), allocator);
      copy(r.d_row, got.d), copy(r.amax, got.amax), copy(r.dbias, got.dbias);
      copy(r.d_col, got.d_col);
      copy(r.sfd_row, got.sfd_row), copy(r.sfd_col, got.sfd_col);
      if (!r.amax && got.amax.size() > 0) continue;
      if (r.d_col && !r.sfd_col) {
        EXPECT_EQ(r.d_col.data, r.d_row.data);
      }
    }
    ++compared;
    ASSERT_EQ(first_difference(t, got, want), "") << describe(t);
  }
  EXPECT_GT(compared, static_cast<int>(seeds) / 3);
}

/// The dense twin of a discrete problem: the experts' weights one after the other.
TestProblem dense_twin(const TestProblem& t) {
  TestProblem twin = t;
  const auto join = [&](const std::vector<Buffer>& parts) {
    std::int64_t bytes = 0;
    for (const Buffer& b : parts) bytes += b.size();
    Buffer all(bytes);
    bytes = 0;
    for (const Buffer& b : parts)
      std::memcpy(all.data() + bytes, b.data(), static_cast<std::size_t>(b.size())), bytes += b.size();
    return std::vector<Buffer>{all};
  };
  twin.problem.discrete = false;
  twin.b = join(t.b);
  if (!t.sfb.empty()) twin.sfb = join(t.sfb);
  twin.b_ptrs.clear();
  twin.sfb_ptrs.clear();
  return twin;
}

TEST(RandomCalls, DiscreteWeightsGiveTheBytesOfDenseOnes) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 3 * seeds && compared < 30; ++seed) {
    const TestProblem t = random_problem(seed, {.max_n = 96, .max_k = 128, .max_tiles = 2});
    if (!t.problem.discrete || (t.problem.b_n_major && !t.problem.block_scaled()))
      continue;  // dense BF16 is K-major
    ++compared;
    ASSERT_EQ(first_difference(t, execute(t), execute(dense_twin(t))), "") << describe(t);
  }
  EXPECT_GT(compared, 10);
}

TEST(RandomCalls, NMajorWeightsGiveTheBytesOfKMajorOnes) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 3 * seeds && compared < 30; ++seed) {
    const TestProblem t = random_problem(seed, {.max_n = 96, .max_k = 128, .max_tiles = 2});
    const Problem& p = t.problem;
    if (!p.b_n_major) continue;
    ++compared;
    TestProblem twin = t;
    twin.problem.b_n_major = false;
    const std::int64_t size = static_cast<std::int64_t>(size_of(p.ab)), slab = p.n * p.k * size;
    for (std::size_t i = 0; i < t.b.size(); ++i)
      for (std::int64_t at = 0; at < t.b[i].size(); at += slab)
        for (std::int64_t n = 0; n < p.n; ++n)
          for (std::int64_t k = 0; k < p.k; ++k)
            std::memcpy(twin.b[i].data() + at + (n * p.k + k) * size,
                        t.b[i].data() + at + (k * p.n + n) * size, static_cast<std::size_t>(size));
    if (p.discrete)
      for (std::size_t g = 0; g < twin.b.size(); ++g)
        twin.b_ptrs[g] = reinterpret_cast<std::int64_t>(twin.b[g].data());
    ASSERT_EQ(first_difference(t, execute(t), execute(twin)), "") << describe(t);
  }
  EXPECT_GT(compared, 10);
}

/// Packed FP4 as uint8, in both of its readings.
template <class Tensors>
void as_uint8(Tensors& x, const TestProblem& t, bool counts_values, Buffer& b) {
  const Problem& p = t.problem;
  const std::int64_t cols = counts_values ? p.k : p.k / 2;
  x.a = Tensor(x.a.data, u8, {t.m, cols, 1}, {cols, 1, t.m * cols});
  if (!p.discrete) x.b = Tensor(b.data(), u8, {p.n, cols, p.experts}, {cols, 1, p.n * cols});
}

TEST(RandomCalls, Uint8IsPackedFp4) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 2 * seeds && compared < 40; ++seed) {
    TestProblem t =
        random_problem(seed, {.format = Format::nvfp4, .max_n = 96, .max_k = 512, .max_tiles = 2});
    const Problem& p = t.problem;
    // One atom of scale factors that fits both readings means that the visible extent is K.
    const bool told = p.discrete || (p.k + 63) / 64 != (p.k / 2 + 63) / 64;
    const Outputs want = execute(t);
    for (const bool counts_values : {true, false}) {
      if (!counts_values && !told) continue;
      ++compared;
      Outputs out = t.outputs();
      Outputs got;
      if (p.op == Op::srelu) {
        SreluTensors x = srelu_tensors(t, out);
        as_uint8(x, t, counts_values, t.b[0]);
        SreluOptions o = srelu_options(t);
        if (p.discrete) o.b_dtype = u8;
        got = execute(t, x, std::move(out), Backend::cpu, o);
      } else {
        DgluTensors x = dglu_tensors(t, out);
        as_uint8(x, t, counts_values, t.b[0]);
        DgluOptions o = dglu_options(t);
        if (p.discrete) o.b_dtype = u8;
        got = execute(t, x, std::move(out), Backend::cpu, o);
      }
      ASSERT_EQ(first_difference(t, got, want), "") << describe(t);
    }
  }
  EXPECT_GT(compared, 20);
}

TEST(RandomCalls, SingleGroupRuntimeOffsetsIgnoreTheValue) {
  for (const Format format : {Format::mxfp8, Format::nvfp4}) {
    Problem p = basic_problem(Op::dglu, format, 64, 96);
    TestProblem t = make_problem(p, {512}, 0, 7);
    const Outputs want = execute(t);
    t.problem.single_group_runtime_offsets = true;
    t.padded_offsets = {0};
    EXPECT_EQ(first_difference(t, execute(t), want), "");
    t.padded_offsets = {12345};  // not even a multiple of 256
    EXPECT_EQ(first_difference(t, execute(t), want), "");
  }
}

TEST(RandomCalls, ProbMayHaveAnyStride) {
  const TestProblem t = make_problem(basic_problem(Op::srelu, Format::mxfp8, 64, 96), {256, 0, 512}, 256, 11);
  const Outputs want = execute(t);
  Outputs out = t.outputs();
  SreluTensors x = srelu_tensors(t, out);
  std::vector<float> spread(static_cast<std::size_t>(t.m) * 3, std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t m = 0; m < t.m; ++m) spread[static_cast<std::size_t>(3 * m)] = t.prob.as<float>()[m];
  x.prob = Tensor(spread.data(), f32, {t.m, 1, 1}, {3, 1, 1});
  EXPECT_EQ(first_difference(t, execute(t, x, std::move(out), Backend::cpu, srelu_options(t)), want), "");
}

TEST(RandomCalls, AllEmptyCallsWriteNothing) {
  for (const Op op : {Op::srelu, Op::dglu})
    for (const Format format : all_formats) {
      if (op == Op::srelu && format == Format::bf16) continue;
      const TestProblem t = make_problem(basic_problem(op, format, 64, 96), {0, 0, 0}, 512, 3);
      for (const Backend backend : {Backend::cpu, Backend::reference})
        EXPECT_EQ(first_difference(t, execute(t, backend), t.initial), "") << describe(t);
    }
}

TEST(RandomCalls, TailRowsAreNotWritten) {
  for (const Op op : {Op::srelu, Op::dglu})
    for (const Format format : all_formats) {
      if (op == Op::srelu && format == Format::bf16) continue;
      const TestProblem t = make_problem(basic_problem(op, format, 96, 96), {256, 0, 512}, 512, 4);
      const Outputs out = execute(t);
      const verify::Report report =
          verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
      EXPECT_TRUE(report.passed()) << describe(t) << "\n" << verify::to_string(report);
    }
}

/// The comparison above must notice a difference of one bit.
TEST(RandomCalls, ControlOneBit) {
  const TestProblem t = make_problem(basic_problem(Op::srelu, Format::mxfp8, 64, 96), {256}, 0, 5);
  const Outputs want = execute(t);
  Outputs got = execute(t);
  EXPECT_EQ(first_difference(t, got, want), "");
  got.d.data()[1000] ^= 1;
  EXPECT_NE(first_difference(t, got, want), "");
}

}  // namespace
}  // namespace gemmule::operators_test
