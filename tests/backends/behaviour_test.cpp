// What people have seen break in grouped and block-scaled kernels, checked on both host backends.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "backends/cpu_support.hpp"
#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "gemmule/options.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

using Run = Outputs (*)(const TestProblem&);

struct HostBackend {
  const char* name;
  Run run;
};

class Behaviour : public testing::TestWithParam<HostBackend> {
 protected:
  Outputs run(const TestProblem& t) const { return GetParam().run(t); }

  static void expect_right(const TestProblem& t, const Outputs& out) {
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
    EXPECT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
};

std::string backend_name(const testing::TestParamInfo<HostBackend>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Backends, Behaviour,
                         testing::Values(HostBackend{"cpu", run_cpu},
                                         HostBackend{"reference", run_reference}),
                         backend_name);

/// A problem with every optional output.
Problem full_problem(Op op, Format format) {
  Problem p = basic_problem(op, format, 64, 64);
  p.has_amax = p.block_scaled();
  p.has_dbias = op == Op::dglu;
  return p;
}

const std::pair<Op, Format> samples[] = {{Op::srelu, Format::mxfp8},
                                         {Op::srelu, Format::nvfp4},
                                         {Op::dglu, Format::bf16},
                                         {Op::dglu, Format::mxfp8},
                                         {Op::dglu, Format::mxfp4}};

float value_at(const Buffer& buffer, DType type, std::int64_t index) {
  return static_cast<float>(reference::load(buffer.data(), type, index));
}

// ---- empty experts ----

TEST_P(Behaviour, EmptyExpertsAnywhere) {
  const std::vector<std::int64_t> layouts[] = {{0, 256, 128},
                                               {256, 0, 128},
                                               {256, 128, 0},
                                               {0, 0, 128, 0, 0},
                                               {256, 0, 2560 / 4, 512, 0, 128},
                                               {0, 0, 0},
                                               {0}};
  for (const auto& [op, format] : samples)
    for (const auto& rows : layouts)
      for (const std::int64_t tail : {0, 128}) {
        const TestProblem t = make_problem(full_problem(op, format), rows, tail, 3);
        expect_right(t, run(t));
      }
}

TEST_P(Behaviour, ReductionsOfAnEmptyExpertKeepTheirInitialValues) {
  for (const auto& [op, format] : samples) {
    const TestProblem t = make_problem(full_problem(op, format), {256, 0, 128, 0}, 0, 3);
    const Outputs out = run(t);
    for (const int expert : {1, 3}) {
      const auto same = [&](const Buffer& after, const Buffer& before) {
        const std::int64_t bytes = before.size() / 4;  // of one of four experts
        if (bytes == 0) return true;
        return std::memcmp(after.data() + expert * bytes, before.data() + expert * bytes, bytes) == 0;
      };
      EXPECT_TRUE(same(out.amax, t.initial.amax));
      EXPECT_TRUE(same(out.dbias, t.initial.dbias));
    }
  }
}

TEST_P(Behaviour, NoRowsAtAll) {
  for (const auto& [op, format] : samples) {
    const TestProblem t = make_problem(full_problem(op, format), {0, 0}, 0, 3);
    ASSERT_EQ(t.m, 0);
    expect_right(t, run(t));
  }
}

TEST_P(Behaviour, AThousandExpertsWithOneBusy) {
  std::vector<std::int64_t> rows(1024, 0);
  rows[777] = 128;
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 32);
  const TestProblem t = make_problem(p, rows, 0, 3);
  expect_right(t, run(t));
}

TEST(CpuBackend, ReusedBuffersKeepNothingOfTheCallBefore) {
  for (const auto& [op, format] : samples) {
    const TestProblem full = make_problem(full_problem(op, format), {128, 128, 128, 128}, 0, 3);
    TestProblem sparse = make_problem(full_problem(op, format), {0, 256, 256, 0}, 0, 4);
    const Outputs first = run_cpu(full), fresh = run_cpu(sparse);
    const Outputs accumulators = sparse.initial;
    sparse.initial = first;  // the buffers of the first call
    sparse.initial.amax = accumulators.amax;
    sparse.initial.dprob = accumulators.dprob;
    sparse.initial.dbias = accumulators.dbias;
    EXPECT_EQ(first_difference(sparse, run_cpu(sparse), fresh), "");
  }
}

// ---- padding ----

TEST_P(Behaviour, ZeroPaddingRowsGiveZeroBlocks) {
  for (const Op op : {Op::srelu, Op::dglu}) {
    TestProblem t = make_problem(basic_problem(op, Format::mxfp8, 64, 64), {256, 256}, 0, 3);
    const std::int64_t width = t.problem.width(), used = 44;
    std::memset(t.a.data() + used * t.problem.k, 0, (256 - used) * t.problem.k);
    const Outputs out = run(t);
    expect_right(t, out);
    for (std::int64_t m = used; m < 256; ++m) {
      for (std::int64_t block = 0; block < width / 32; ++block)
        EXPECT_EQ(out.sfd_row.data()[reference::scale_index(m, block, width / 32)], 0);
      for (std::int64_t n = 0; n < width; ++n) {
        EXPECT_EQ(out.d.data()[m * width + n] & 0x7F, 0);
        EXPECT_EQ(out.d_col.data()[m * width + n] & 0x7F, 0);
        if (m < 64) continue;
        EXPECT_EQ(out.sfd_col.data()[reference::scale_index(n, m / 32, 16)], 0);
      }
    }
  }
}

TEST_P(Behaviour, PaddingScaleBytesNeverMatter) {
  for (const Format format : {Format::mxfp8, Format::mxfp4_16, Format::nvfp4}) {
    const Problem p = basic_problem(Op::srelu, format, 48, format == Format::mxfp8 ? 48 : 96);
    TestProblem t = make_problem(p, {128, 0, 256}, 128, 3);
    const Outputs noisy = run(t);
    expect_right(t, noisy);
    // Every byte that is not the scale of a value becomes 0.
    const std::int64_t blocks = reference::ceil_div(p.k, p.vec);
    const auto clear_padding = [&](Buffer& scales, std::int64_t slabs, std::int64_t rows) {
      const std::int64_t slab = reference::scale_bytes_of(rows, blocks);
      Buffer clean(scales.size(), 0);
      for (std::int64_t l = 0; l < slabs; ++l)
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t b = 0; b < blocks; ++b) {
            const std::int64_t at = l * slab + reference::scale_index(r, b, blocks);
            clean.data()[at] = scales.data()[at];
          }
      scales = clean;
    };
    clear_padding(t.sfa, 1, t.m);
    clear_padding(t.sfb[0], t.problem.experts, p.n);
    EXPECT_EQ(first_difference(t, run(t), noisy), "");
  }
}

// ---- wide indices ----

/// Zeroed virtual memory of which only the pages that are touched exist.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMemory() {
    if (valid()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  bool valid() const { return data_ != MAP_FAILED; }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST_P(Behaviour, WeightsBeyondTwoToThe31Values) {
  // 1024 experts of 1024 x 2112: the last one starts at value 2.2e9 of B.
  const Problem p = basic_problem(Op::srelu, Format::mxfp8, 1024, 2112);
  const TestProblem one = make_problem(p, {128}, 0, 3);
  TestProblem many = one;
  many.problem.experts = 1024;
  many.padded_offsets.assign(1024, 0);
  many.padded_offsets.back() = 128;
  many.alpha = Buffer(1024 * 4, 0);
  many.alpha.as<float>()[1023] = *one.alpha.as<float>();
  const std::int64_t b_bytes = one.b[0].size(), sfb_bytes = one.sfb[0].size();
  ASSERT_GT(1023 * b_bytes, std::int64_t{1} << 31);
  const SparseMemory b(1024 * b_bytes), sfb(1024 * sfb_bytes);
  if (!b.valid() || !sfb.valid()) GTEST_SKIP() << "this machine refuses 2 GiB of unused address space";
  std::memcpy(b.data() + 1023 * b_bytes, one.b[0].data(), b_bytes);
  std::memcpy(sfb.data() + 1023 * sfb_bytes, one.sfb[0].data(), sfb_bytes);
  Outputs out = many.outputs();
  Operands operands = many.operands(out);
  operands.b = b.data();
  operands.sfb = sfb.data();
  if (std::string(GetParam().name) == "reference") {
    reference::run(many.problem, operands);
  } else {
    const Buffer workspace(static_cast<std::int64_t>(cpu::workspace_size(many.problem, many.m)));
    cpu::run(many.problem, operands, workspace.data(), workspace.size());
  }
  EXPECT_EQ(first_difference(one, out, run(one)), "");
}

// ---- scales ----

TEST_P(Behaviour, OneNormConstServesEveryGroup) {
  TestProblem t = make_problem(basic_problem(Op::srelu, Format::mxfp8, 64, 64), {256, 128, 128}, 0, 3);
  *t.norm_const.as<float>() = 1;
  const Outputs one = run(t);
  *t.norm_const.as<float>() = 4;
  const Outputs four = run(t);
  EXPECT_EQ(one.d, four.d);
  EXPECT_EQ(one.d_col, four.d_col);
  std::int64_t shifted = 0;
  for (std::int64_t i = 0; i < t.m * 2; ++i) {
    const std::int64_t at = reference::scale_index(i / 2, i % 2, 2);
    if (one.sfd_row.data()[at] == 0) continue;
    EXPECT_EQ(four.sfd_row.data()[at], one.sfd_row.data()[at] + 2);
    ++shifted;
  }
  EXPECT_GT(shifted, t.m);
}

TEST_P(Behaviour, DiscreteColumnScalesAreEveryExpertsOwnBuffer) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 192, 64);
  p.discrete_col_sfd = true;
  const TestProblem t = make_problem(p, {256, 0, 512}, 0, 3);
  const Outputs discrete = run(t);
  TestProblem dense = t;
  dense.problem.discrete_col_sfd = false;
  const Outputs whole = run(dense);
  EXPECT_FALSE(discrete.sfd_col == whole.sfd_col);
  EXPECT_EQ(discrete.d_col, whole.d_col);
  // The scales of expert 2 as if it were alone: 512 rows from row 256 on.
  const std::int64_t before = reference::scale_bytes_of(192, 8);
  for (std::int64_t n = 0; n < 192; ++n)
    for (std::int64_t block = 0; block < 16; ++block)
      EXPECT_EQ(discrete.sfd_col.data()[before + reference::scale_index(n, block, 16)],
                whole.sfd_col.data()[reference::scale_index(n, 8 + block, 24)]);
}

/// One expert whose only non-zero D elements are prob[m] at (m, 0): A and B hold a single one.
TestProblem single_value_problem(DType d) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 32);
  p.d = d;
  TestProblem t = make_problem(p, {128}, 0, 3);
  std::memset(t.a.data(), 0, t.a.size());
  std::memset(t.b[0].data(), 0, t.b[0].size());
  std::memset(t.sfa.data(), 127, t.sfa.size());
  std::memset(t.sfb[0].data(), 127, t.sfb[0].size());
  t.b[0].data()[0] = 0x38;
  t.alpha.as<float>()[0] = 1;
  *t.norm_const.as<float>() = 1;
  for (int m = 0; m < 128; ++m) t.prob.as<float>()[m] = 1;
  return t;
}

TEST_P(Behaviour, OutputsInE5m2AreScaledTo128) {
  TestProblem t = single_value_problem(DType::float8_e5m2);
  t.a.data()[0] = 0x38;  // D[0,0] = 1
  const Outputs out = run(t);
  EXPECT_EQ(out.sfd_row.data()[0], 127 - 7);
  EXPECT_EQ(value_at(out.d, DType::float8_e5m2, 0), 128);
  EXPECT_EQ(out.sfd_col.data()[0], 127 - 7);
  EXPECT_EQ(value_at(out.d_col, DType::float8_e5m2, 0), 128);
}

TEST_P(Behaviour, ZeroBlocksKeepTheSignOfZeroOnBothPaths) {
  TestProblem t = single_value_problem(DType::float8_e4m3fn);
  for (const float norm_const : {1.0f, 0.01f, 100.0f}) {
    *t.norm_const.as<float>() = norm_const;
    t.prob.as<float>()[5] = -1;
    const Outputs out = run(t);
    EXPECT_EQ(out.sfd_row.data()[0], 0);
    EXPECT_EQ(out.sfd_col.data()[0], 0);
    EXPECT_EQ(out.d.data()[0], 0x00);
    EXPECT_EQ(out.d.data()[5 * 32], 0x80);
    EXPECT_EQ(out.d_col.data()[5 * 32], 0x80);
  }
}

TEST_P(Behaviour, ScalesRoundUpJustAboveAPowerOfTwo) {
  TestProblem t = single_value_problem(DType::float8_e4m3fn);
  t.a.data()[0] = t.a.data()[32] = 0x38;
  t.prob.as<float>()[0] = 448;  // amax / 448 is 1
  t.prob.as<float>()[1] = std::nextafter(std::nextafter(448.0f, 1e9f), 1e9f);
  const Outputs out = run(t);
  EXPECT_EQ(out.sfd_row.data()[0], 0x7F);
  EXPECT_EQ(out.d.data()[0], 0x7E);
  EXPECT_EQ(out.sfd_row.data()[16], 0x80);
  EXPECT_EQ(out.d.data()[32], 0x76);  // 224
}

// ---- NaN and infinity ----

TEST_P(Behaviour, NanStaysInItsRowAndItsColumnBlocks) {
  for (const Op op : {Op::srelu, Op::dglu}) {
    Problem p = basic_problem(op, Format::mxfp8, 64, 64);
    p.has_amax = true;
    TestProblem t = make_problem(p, {128, 128}, 0, 3);
    t.a.data()[40 * 64 + 3] = 0x7F;  // NaN in row 40
    t.prob.as<float>()[40] = 0;      // which does not hide it
    const Outputs out = run(t);
    expect_right(t, out);
    const std::int64_t width = p.width();
    EXPECT_EQ(out.sfd_row.data()[reference::scale_index(40, 0, width / 32)], 0xFF);
    EXPECT_EQ(out.sfd_row.data()[reference::scale_index(41, 0, width / 32)] == 0xFF, false);
    for (std::int64_t n = 0; n < width; ++n) {
      EXPECT_EQ(out.d.data()[40 * width + n], 0x7F);
      EXPECT_NE(out.d.data()[41 * width + n], 0x7F);
      for (std::int64_t m = 32; m < 64; ++m) EXPECT_EQ(out.d_col.data()[m * width + n], 0x7F);
      EXPECT_NE(out.d_col.data()[31 * width + n], 0x7F);
      EXPECT_NE(out.d_col.data()[64 * width + n], 0x7F);
      EXPECT_EQ(out.sfd_col.data()[reference::scale_index(n, 1, 8)], 0xFF);
    }
    EXPECT_TRUE(std::isnan(out.amax.as<float>()[0]));
    EXPECT_FALSE(std::isnan(out.amax.as<float>()[op == Op::srelu ? 1 : 2]));
    if (op == Op::srelu) continue;
    EXPECT_TRUE(std::isnan(out.dprob.as<float>()[40]));
    EXPECT_FALSE(std::isnan(out.dprob.as<float>()[41]));
  }
}

TEST_P(Behaviour, NanScalesPropagate) {
  for (const Format format : {Format::mxfp8_e5m2, Format::mxfp4, Format::nvfp4}) {
    TestProblem t = make_problem(basic_problem(Op::srelu, format, 64, 64), {128, 128}, 0, 3);
    const std::int64_t blocks = 64 / t.problem.vec;
    const std::uint8_t nan = format == Format::nvfp4 ? 0x7F : 0xFF;
    t.sfa.data()[reference::scale_index(7, 1, blocks)] = nan;
    t.sfb[0].data()[reference::scale_bytes_of(64, blocks) + reference::scale_index(9, 0, blocks)] = nan;
    const Outputs out = run(t);
    expect_right(t, out);
    EXPECT_TRUE(std::isnan(value_at(out.c, t.problem.c, 7 * 64)));
    EXPECT_TRUE(std::isnan(value_at(out.c, t.problem.c, 200 * 64 + 9)));
    EXPECT_FALSE(std::isnan(value_at(out.c, t.problem.c, 100 * 64 + 9)));
  }
}

TEST_P(Behaviour, InfinityInABlockSaturatesThatElement) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8_e5m2, 32, 32);
  TestProblem t = make_problem(p, {128}, 0, 3);
  std::memset(t.b[0].data(), 0x3C, t.b[0].size());  // 1: no zero meets the infinity
  t.a.data()[3 * 32] = 0x7C;                        // infinity in row 3
  t.alpha.as<float>()[0] = 1;
  t.prob.as<float>()[3] = -1;
  const Outputs out = run(t);
  expect_right(t, out);
  EXPECT_EQ(out.sfd_row.data()[3 * 16], 0xFE);
  for (int n = 0; n < 32; ++n) EXPECT_EQ(out.d.data()[3 * 32 + n], 0xFE);  // -448
  EXPECT_TRUE(std::isinf(value_at(out.c, p.c, 3 * 32)));
}

TEST_P(Behaviour, NanAndInfinityInCAndInBf16Operands) {
  for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu}) {
    Problem p = basic_problem(Op::dglu, Format::bf16, 64, 64, act);
    p.has_dbias = true;
    TestProblem t = make_problem(p, {128, 128}, 0, 3);
    auto* c = reinterpret_cast<std::uint16_t*>(t.c_in.data());
    auto* a = reinterpret_cast<std::uint16_t*>(t.a.data());
    c[5 * 128 + 10] = 0x7FC0;       // NaN gate
    c[6 * 128 + 32 + 10] = 0x7FC0;  // NaN input
    c[7 * 128 + 10] = 0x7F80;       // infinite gate
    c[8 * 128 + 10] = 0xFF80;
    c[9 * 128 + 32 + 10] = 0x7F80;  // infinite input
    a[10 * 64 + 1] = 0x7FC0;
    a[11 * 64 + 1] = 0x7F80;
    const Outputs out = run(t);
    expect_right(t, out);
    for (const std::int64_t m : {5, 10}) EXPECT_TRUE(std::isnan(value_at(out.d, p.d, m * 128 + 10)));
    EXPECT_FALSE(std::isnan(value_at(out.d, p.d, 5 * 128 + 11)));
    EXPECT_TRUE(std::isnan(out.dprob.as<float>()[5]));
    EXPECT_TRUE(std::isnan(value_at(out.dbias, DType::bfloat16, 10)));
    EXPECT_FALSE(std::isnan(value_at(out.dbias, DType::bfloat16, 128 + 10)));
  }
}

TEST_P(Behaviour, PlainFp8OutputsSaturate) {
  TestProblem t = single_value_problem(DType::float8_e4m3fn);
  t.a.data()[0] = 0x38;
  t.a.data()[32] = 0x7F;
  for (const DType c : {DType::float8_e4m3fn, DType::float8_e5m2}) {
    const bool e4m3 = c == DType::float8_e4m3fn;
    t.problem.c = c;
    t.initial.c = Buffer(128 * 32);
    t.alpha.as<float>()[0] = 1e9f;
    EXPECT_EQ(run(t).c.data()[0], e4m3 ? 0x7E : 0x7B);
    t.alpha.as<float>()[0] = -1e9f;
    EXPECT_EQ(run(t).c.data()[0], e4m3 ? 0xFE : 0xFB);
    EXPECT_EQ(run(t).c.data()[32] & 0x7F, 0x7F);
  }
}

// ---- epilogue ----

TEST_P(Behaviour, GateIsTheEvenBlockAndInputTheOdd) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 64, 32);
  p.c = p.d = DType::float32;
  TestProblem t = make_problem(p, {128}, 0, 3, Data::exact);
  *t.alpha.as<float>() = *t.beta.as<float>() = 1;
  for (std::int64_t i = 0; i < 128 * 128; ++i) t.c_in.as<float>()[i] = i / 32 % 2 == 0 ? 128.0f : 3.0f;
  for (int m = 0; m < 128; ++m) t.prob.as<float>()[m] = 1;
  const Outputs out = run(t);
  // At gate 128 the sigmoid is 1: dgate = R * input, dinput = R * gate.
  std::int64_t nonzero = 0;
  for (std::int64_t m = 0; m < 128; ++m)
    for (std::int64_t n = 0; n < 64; ++n) {
      const std::int64_t gate = m * 128 + reference::gate_column_of(n);
      const float d_gate = out.d.as<float>()[gate], d_input = out.d.as<float>()[gate + 32];
      EXPECT_EQ(d_gate * 128, d_input * 3);
      nonzero += d_gate != 0;
    }
  EXPECT_GT(nonzero, 1000);
}

TEST_P(Behaviour, TheTanhClampIsNeverExceeded) {
  Problem p = basic_problem(Op::srelu, Format::mxfp8_e5m2, 64, 64);
  p.c = DType::float32;
  p.d = DType::float16;
  p.quantize = p.has_d_col = false;
  p.has_amax = true;
  for (const float s : {0.5f, 8.0f, 32.0f}) {
    p.tanh_clamp_scale = s;
    TestProblem t = make_problem(p, {128, 256}, 0, 3);
    std::memset(t.b[0].data(), 0x3C, t.b[0].size());
    t.a.data()[0] = 0x7C;  // an infinite pre-activation
    for (int g = 0; g < 2; ++g) t.initial.amax.as<float>()[g] = -INFINITY;
    t.alpha.as<float>()[0] = t.alpha.as<float>()[1] = 1;
    t.prob.as<float>()[0] = 1;
    const Outputs out = run(t);
    expect_right(t, out);
    EXPECT_EQ(value_at(out.d, p.d, 0), s * s);
    for (std::int64_t i = 0; i < t.m * 64; ++i) {
      const double limit = double(s) * s * std::fabs(t.prob.as<float>()[i / 64]);
      EXPECT_LE(std::fabs(value_at(out.d, p.d, i)), limit + reference::half_ulp(p.d, limit));
    }
    for (const float amax : {out.amax.as<float>()[0], out.amax.as<float>()[1]}) EXPECT_LE(amax, s * s);
  }
}

TEST_P(Behaviour, DWithoutScalesIsAlsoGivenAsDCol) {
  for (const auto& [op, format] : {std::pair{Op::srelu, Format::nvfp4}, std::pair{Op::dglu, Format::mxfp4}}) {
    Problem p = basic_problem(op, format, 64, 64);
    p.has_d_col = true;
    const TestProblem t = make_problem(p, {128, 0, 128}, 128, 3);
    const Outputs out = run(t);
    EXPECT_EQ(out.d, out.d_col);
  }
}

TEST(CpuBackend, ProbMayBeStrided) {
  const TestProblem t = make_problem(basic_problem(Op::srelu, Format::nvfp4, 32, 64), {128, 0, 128}, 0, 3);
  Buffer wide(t.m * 12);
  for (std::int64_t m = 0; m < t.m; ++m) wide.as<float>()[3 * m] = t.prob.as<float>()[m];
  Outputs out = t.outputs();
  Operands operands = t.operands(out);
  operands.prob = wide.as<float>();
  operands.prob_stride = 3;
  const Buffer workspace(static_cast<std::int64_t>(cpu::workspace_size(t.problem, t.m)));
  cpu::run(t.problem, operands, workspace.data(), workspace.size());
  EXPECT_EQ(first_difference(t, out, run_cpu(t)), "");
  const verify::Report report = verify::compare(t.problem, operands, operands);
  EXPECT_TRUE(report.passed()) << verify::to_string(report);
}

// ---- determinism ----

TEST(CpuBackend, ResultsDoNotDependOnThreadsOrOnTheRun) {
  const int before = num_threads();
  for (const auto& [op, format] : samples) {
    Problem p = full_problem(op, format);
    p.n = 160;
    p.k = 96;
    const TestProblem t = make_problem(p, {640, 0, 128, 256}, 128, 3);
    set_num_threads(1);
    const Outputs once = run_cpu(t);
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      for (int repeat = 0; repeat < 3; ++repeat)
        EXPECT_EQ(first_difference(t, run_cpu(t), once), "") << threads << " threads";
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace gemmule::test
