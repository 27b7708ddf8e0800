// The worked examples of the specification through the one-call form, on every host backend.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "operators/descriptors.hpp"

namespace gemmule::operators_test {
namespace {

class HostAllocator : public Allocator {
 public:
  void* allocate(std::size_t bytes, Device, Stream) override { return memory_.allocate(bytes, 0x5A); }
  void deallocate(void*, std::size_t, Device, Stream) noexcept override {}

 private:
  HostMemory memory_;
};

void set(Tensor& t, std::int64_t index, double value) {
  const auto x = static_cast<float>(value);
  if (t.dtype == fp4) {  // two values make a byte
    const std::array<float, 2> two = {x, 0};
    std::uint8_t code = 0;
    convert(two, t.dtype, &code);
    auto& byte = static_cast<std::uint8_t*>(t.data)[index / 2];
    const int shift = static_cast<int>(index % 2) * 4;
    byte = static_cast<std::uint8_t>((byte & ~(15 << shift)) | ((code & 15) << shift));
  } else {
    convert(std::span(&x, 1), t.dtype,
            static_cast<std::byte*>(t.data) + static_cast<std::size_t>(index) * size_of(t.dtype));
  }
}

void fill(Tensor& t, double value) {
  for (std::int64_t i = 0; i < t.numel(); ++i) set(t, i, value);
}

double get(const Tensor& t, std::int64_t index) {
  float out = 0;
  convert(static_cast<const std::byte*>(t.data) + static_cast<std::size_t>(index) * size_of(t.dtype), t.dtype,
          std::span(&out, 1));
  return out;
}

std::uint8_t byte(const Tensor& t, std::int64_t index) {
  return static_cast<const std::uint8_t*>(t.data)[index];
}

/// One expert of 256 rows, N = K = 32, e4m3 with scales 2 and 0.5, alpha 0.5.
struct SreluExample {
  SreluCase c;
  HostMemory memory;
  SreluTensors t;

  explicit SreluExample(DType d) {
    c.groups = {256};
    c.n = c.k = 32;
    c.c = f32;
    c.d = d;
    c.scales = d == e4m3;
    t = c.tensors();
    place(t, c, memory);
    for (const auto& [m, k, value] :
         std::vector<std::array<double, 3>>{{0, 0, 1.5}, {0, 1, -2}, {1, 0, -1}, {2, 0, 4}, {2, 1, 0.5}})
      set(t.a, static_cast<std::int64_t>(m * 32 + k), value);
    for (int n = 0; n < 32; ++n) set(t.b, n * 32, 0.25 * (n % 8)), set(t.b, n * 32 + 1, n % 2 ? 0.5 : -0.5);
    std::memset(t.sfa.data, 0x80, t.sfa.bytes());
    std::memset(t.sfb.data, 0x7E, t.sfb.bytes());
    fill(t.alpha, 0.5);
    fill(t.prob, 1);
    set(t.prob, 1, 0.75);
    set(t.prob, 2, -1);
  }
};

const std::array<std::array<double, 8>, 3> example_c = {
    {{0.5, -0.3125, 0.875, 0.0625, 1.25, 0.4375, 1.625, 0.8125},
     {0, -0.125, -0.25, -0.375, -0.5, -0.625, -0.75, -0.875},
     {-0.125, 0.625, 0.875, 1.625, 1.875, 2.625, 2.875, 3.625}}};

class WorkedExample : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, WorkedExample, testing::Values(Backend::cpu, Backend::reference),
                         [](const auto& param) { return std::string(name(param.param)); });

TEST_P(WorkedExample, QuantizedSrelu) {
  SreluExample x(e4m3);
  SreluOptions o = x.c.opts();
  o.backend = GetParam();
  HostAllocator allocator;
  const SreluResult r = grouped_gemm_srelu(inputs_of(x.t), o, x.c.call(), allocator);

  const std::array<std::array<int, 8>, 3> d = {{{0x60, 0x00, 0x6C, 0x30, 0x74, 0x5C, 0x7B, 0x6B},
                                                {0, 0, 0, 0, 0, 0, 0, 0},
                                                {0x80, 0xD4, 0xDC, 0xEB, 0xEE, 0xF6, 0xF8, 0xFD}}};
  const std::array<int, 3> sfd_row = {0x78, 0x00, 0x7A};
  for (int m = 0; m < 3; ++m) {
    EXPECT_EQ(byte(r.sfd_row, 16 * m), sfd_row[static_cast<std::size_t>(m)]) << m;
    for (int n = 0; n < 32; ++n) {  // columns repeat with period 8
      EXPECT_EQ(get(r.c, m * 32 + n),
                example_c[static_cast<std::size_t>(m)][static_cast<std::size_t>(n % 8)]);
      EXPECT_EQ(byte(r.d, m * 32 + n), d[static_cast<std::size_t>(m)][static_cast<std::size_t>(n % 8)])
          << m << " " << n;
    }
  }
  struct Column {
    int n, scale;
    std::array<int, 3> codes;
  };
  for (const Column& col : {Column{0, 0x75, {0x78, 0x00, 0x80}}, Column{1, 0x75, {0x00, 0x00, 0xFC}},
                            Column{4, 0x79, {0x6C, 0x00, 0xF6}}, Column{7, 0x7A, {0x5B, 0x00, 0xFD}}}) {
    EXPECT_EQ(byte(r.sfd_col, 16 * col.n), col.scale) << col.n;
    for (int m = 0; m < 3; ++m)
      EXPECT_EQ(byte(r.d_col, m * 32 + col.n), col.codes[static_cast<std::size_t>(m)]) << col.n << " " << m;
  }
  // The other rows are zero: scale 2^-127 and zero codes.
  for (int m = 3; m < 256; ++m) {
    EXPECT_EQ(byte(r.sfd_row, m / 128 * 512 + m % 32 * 16 + m % 128 / 32 * 4), 0x00);
    for (int n = 0; n < 32; ++n) ASSERT_EQ(byte(r.d, m * 32 + n) | byte(r.d_col, m * 32 + n), 0);
  }
}

TEST_P(WorkedExample, PlainSrelu) {
  SreluExample x(f16);
  SreluOptions o = x.c.opts();
  o.backend = GetParam();
  HostAllocator allocator;
  const SreluResult r = grouped_gemm_srelu(inputs_of(x.t), o, x.c.call(), allocator);
  EXPECT_EQ(get(r.amax, 0), 13.140625);
  const std::array<double, 3> prob = {1, 0.75, -1};
  for (int m = 0; m < 3; ++m)
    for (int n = 0; n < 32; ++n) {
      const double relu =
          std::max(0.0, example_c[static_cast<std::size_t>(m)][static_cast<std::size_t>(n % 8)]);
      const double exact = prob[static_cast<std::size_t>(m)] * relu * relu;
      EXPECT_NEAR(get(r.d, m * 32 + n), exact, std::abs(exact) / 2048) << m << " " << n;
    }
}

struct Element {
  int j;
  double r, gate, input, dgate, dinput, dprob;
};

struct DgluExample {
  const char* name;
  ActFunc act;
  GegluFilter filter;
  float beta1, beta2;
  std::vector<Element> elements;
  double dprob;
};

const std::vector<DgluExample> dglu_examples = {
    {"dswiglu",
     ActFunc::dswiglu,
     GegluFilter::automatic,
     4,
     25,
     {{0, 0.5, 1, 2, 0.6957528839036, 0.2741469669863, 0.7310585786300},
      {1, -1.25, -2, 0.75, 0.06383267492688, 0.2235054787915, 0.2235054787915},
      {31, 2, 3, -1.5, -2.448234238534, 4.286583570701, -8.573167141402}},
     -7.618603083980},
    {"dgeglu value",
     ActFunc::dgeglu,
     GegluFilter::value,
     4,
     25,
     {{0, 0.5, 1, 2, 1.201252057376, 0.6343468244496, 1.268693648899},
      {1, -1.25, -2, 0.75, -0.2422066313249, 0.04524003060173, 0.1407467618720},
      {2, 1, 8.5, 0.5, 0, 2.624982423114, 10.49992969245},
      {3, 1, 1.5, 8.25, 9.889632581617, 0, 11.13329758758},
      {4, 1, 1.5, -8.25, -7.417224436213, 0, -8.349973190682},
      {5, 1, 7, -7, -31.50230199281, -36.74975392359, -41.99971876982}},
     -27.30702426970},
    {"dgeglu mask",
     ActFunc::dgeglu,
     GegluFilter::mask,
     4,
     25,
     {{0, 0.5, 1, 2, 1.201252057376, 0.3171734122248, 1.268693648899},
      {1, -1.25, -2, 0.75, 0.1211033156625, 0.06032004080230, 0.1407467618720},
      {2, 1, 8.5, 0.5, 0, 5.249964846227, 10.49992969245},
      {3, 1, 1.5, 8.25, 6.593088387745, 0, 11.13329758758},
      {4, 1, 1.5, -8.25, -4.944816290808, 0, -8.349973190682},
      {5, 1, 7, -7, -4.500328856116, 5.249964846227, -41.99971876982}},
     -27.30702426970},
    {"dsituglu 4 25",
     ActFunc::dsituglu,
     GegluFilter::automatic,
     4,
     25,
     {{0, 0.5, 1, 2, 0.6584621143554, 0.2668632622631, 0.7146755657776},
      {1, -1.25, -2, 0.75, 0.07052371366572, 0.2063856301843, 0.2065094838540},
      {31, 2, 8, -40, -2.485734752416, 0.8703815353448, -177.6431885764}},
     -176.7220035268},
    {"dsituglu 2 10",
     ActFunc::dsituglu,
     GegluFilter::automatic,
     2,
     10,
     {{0, 0.5, 1, 2, 0.5600437302547, 0.2435052596335, 0.6668023449311},
      {1, -1.25, -2, 0.75, 0.07710279119713, 0.1692665555242, 0.1699020195834},
      {31, 2, 8, -40, -0.03013767281727, 0.004018805762017, -39.93296595498}},
     -39.09626159047},
};

/// Row 0 of A times column j of B is R: A = (1, 0.5), B = (b0, b1) with b0 + 0.5 b1 = R, all of them e2m1 values.
void set_up(const DgluExample& e, const DgluCase& c, DgluTensors& t) {
  fill(t.alpha, 1);
  fill(t.beta, 1);
  fill(t.prob, 0.75);
  if (t.sfa) std::memset(t.sfa.data, 0x7F, t.sfa.bytes()), std::memset(t.sfb.data, 0x7F, t.sfb.bytes());
  set(t.a, 0, 1);
  set(t.a, 1, 0.5);
  for (const Element& x : e.elements) {
    set(t.b, x.j * c.k, x.r == -1.25 ? -1 : x.r);
    if (x.r == -1.25) set(t.b, x.j * c.k + 1, -0.5);
    set(t.c, x.j, x.gate);
    set(t.c, 32 + x.j, x.input);
  }
}

TEST_P(WorkedExample, DgluTables) {
  for (const DgluExample& e : dglu_examples)
    for (const DType a : {bf16, fp4}) {
      if (a == bf16 && e.act == ActFunc::dsituglu) continue;  // block-scaled only
      DgluCase c;
      c.groups = {256};
      c.n = c.k = 32;
      c.a = a;
      c.c = c.d = f32;
      c.options.act_func = e.act;
      c.options.geglu_filter = e.filter;
      c.options.situ_beta1 = e.beta1;
      c.options.situ_beta2 = e.beta2;
      c.options.backend = GetParam();
      HostMemory memory;
      DgluTensors t = c.tensors();
      place(t, c, memory);
      set_up(e, c, t);
      HostAllocator allocator;
      const DgluResult r = grouped_gemm_dglu(inputs_of(t), c.opts(), c.call(), allocator);
      const auto near = [&](double got, double exact, const char* what, int j) {
        EXPECT_NEAR(got, exact, 1e-4 * std::abs(exact) + 1e-12)
            << e.name << " " << name(a) << " " << what << " " << j;
      };
      std::array<bool, 32> listed{};
      for (const Element& x : e.elements) {
        listed[static_cast<std::size_t>(x.j)] = true;
        near(get(r.d_row, x.j), x.dgate, "dgate", x.j);
        near(get(r.d_row, 32 + x.j), x.dinput, "dinput", x.j);
      }
      near(get(r.dprob, 0), e.dprob, "dprob", 0);
      EXPECT_EQ(r.dprob.data, t.dprob.data);
      for (int j = 0; j < 32; ++j) {
        const double sum = std::abs(get(r.d_row, j)) + std::abs(get(r.d_row, 32 + j));
        EXPECT_EQ(sum != 0, listed[static_cast<std::size_t>(j)]) << e.name << " " << j;
      }
      for (int m = 1; m < 256; ++m) EXPECT_EQ(get(r.dprob, m), 0);
    }
}

/// The documents' defaults: BF16 dGeGLU has the value-bearing filter, block-scaled the mask, linear_offset is 1.
TEST_P(WorkedExample, GegluDefaults) {
  for (const DType a : {bf16, fp4}) {
    DgluCase c;
    c.groups = {256};
    c.n = c.k = 32;
    c.a = a;
    c.c = c.d = f32;
    c.options.act_func = ActFunc::dgeglu;
    c.options.backend = GetParam();
    HostMemory memory;
    DgluTensors t = c.tensors();
    place(t, c, memory);
    set_up(dglu_examples[1], c, t);
    HostAllocator allocator;
    const DgluResult r = grouped_gemm_dglu(inputs_of(t), c.opts(), c.call(), allocator);
    EXPECT_NEAR(get(r.d_row, 33), a == bf16 ? 0.04524003060173 : 0.06032004080230, 1e-6);
    DgluOptions o = c.opts();
    o.linear_offset = 0.0f;
    fill(t.dprob, 0);
    const DgluResult q = grouped_gemm_dglu(inputs_of(t), o, c.call(), allocator);
    for (int j = 0; j < 32; ++j)
      EXPECT_EQ(get(q.d_row, 32 + j), get(r.d_row, 32 + j));  // dinput does not depend on it
    EXPECT_NE(get(q.d_row, 0), get(r.d_row, 0));
  }
}

/// Accumulators are added to, never reset.
TEST_P(WorkedExample, AccumulatorsAreAddedTo) {
  const DgluExample& e = dglu_examples[0];
  DgluCase c;
  c.groups = {256};
  c.n = c.k = 32;
  c.a = fp4;
  c.c = f32;
  c.dbias = true;
  c.options.backend = GetParam();
  HostMemory memory;
  DgluTensors t = c.tensors();
  place(t, c, memory);
  set_up(e, c, t);
  fill(t.dprob, 100);
  fill(t.dbias, 4);
  fill(t.amax, 3);
  GroupedGemmDglu op(t, c.opts());
  op.compile();
  const std::size_t bytes = op.workspace_size(256);
  op.execute(t, memory.allocate(bytes), bytes);
  EXPECT_NEAR(get(t.dprob, 0), 100 + e.dprob, 1e-4);
  EXPECT_EQ(get(t.dprob, 1), 100);
  EXPECT_NEAR(get(t.dbias, 31), 4 - 2.448234238534, 0.01);
  EXPECT_EQ(get(t.dbias, 5), 4);
  EXPECT_EQ(get(t.amax, 0), 3);  // the largest gate gradient is 2.45
  EXPECT_NEAR(get(t.amax, 1), 4.286583570701, 1e-5);
}

}  // namespace
}  // namespace gemmule::operators_test
