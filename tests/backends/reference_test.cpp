// The float64 reference against worked examples, a second evaluation by other means, and itself as a backend.
#include "backends/reference/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/reference/formats.hpp"
#include "backends/reference/layout.hpp"
#include "gemmule/layout.hpp"
#include "gemmule/quantize.hpp"
#include "support/problems.hpp"
#include "verify/verify.hpp"

namespace gemmule::test {
namespace {

TEST(Reference, PassesItsOwnComparison) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Data data = seed % 4 == 3 ? Data::exact : Data::random;
    const TestProblem t = random_problem(seed, {.data = data, .max_n = 96, .max_k = 96, .max_tiles = 3});
    Outputs out = t.outputs();
    reference::run(t.problem, t.operands(out));
    const verify::Report report =
        verify::compare(t.problem, t.inputs(), t.operands(out), {.poison = poison_byte});
    ASSERT_TRUE(report.passed()) << describe(t) << '\n' << verify::to_string(report);
  }
}

// ---- formats ----

TEST(ReferenceFormats, RoundingExamples) {
  const struct {
    DType type;
    float value;
    std::uint32_t code;
  } examples[] = {
      {DType::float4_e2m1fn_x2, 0.25f, 0},     {DType::float4_e2m1fn_x2, 0.2500001f, 1},
      {DType::float4_e2m1fn_x2, 0.75f, 2},     {DType::float4_e2m1fn_x2, 1.25f, 2},
      {DType::float4_e2m1fn_x2, 1.75f, 4},     {DType::float4_e2m1fn_x2, 2.5f, 4},
      {DType::float4_e2m1fn_x2, 3.5f, 6},      {DType::float4_e2m1fn_x2, 5.0f, 6},
      {DType::float4_e2m1fn_x2, 5.1f, 7},      {DType::float4_e2m1fn_x2, 7.0f, 7},
      {DType::float4_e2m1fn_x2, -0.2f, 8},     {DType::float4_e2m1fn_x2, NAN, 7},
      {DType::float8_e4m3fn, 1.0625f, 0x38},   {DType::float8_e4m3fn, 1.1875f, 0x3A},
      {DType::float8_e4m3fn, 464.0f, 0x7E},    {DType::float8_e4m3fn, 1e9f, 0x7E},
      {DType::float8_e4m3fn, -INFINITY, 0xFE}, {DType::float8_e4m3fn, NAN, 0x7F},
      {DType::float8_e4m3fn, 0x1p-10f, 0x00},  {DType::float8_e4m3fn, 0x1.00001p-10f, 0x01},
      {DType::float8_e5m2, 61440.0f, 0x7B},    {DType::float8_e5m2, 65536.0f, 0x7B},
      {DType::float8_e5m2, -1e9f, 0xFB},       {DType::float8_e5m2, NAN, 0x7F},
      {DType::float8_e5m2, 0x1p-17f, 0x00},    {DType::float8_e5m2, 0x1.00001p-17f, 0x01},
      {DType::bfloat16, 1.00390625f, 0x3F80},  {DType::bfloat16, 1.01171875f, 0x3F82},
      {DType::bfloat16, 3.4e38f, 0x7F80},      {DType::bfloat16, 0x1p-133f, 0x0001},
      {DType::float16, 65519.0f, 0x7BFF},      {DType::float16, 65520.0f, 0x7C00},
      {DType::float16, 0x1p-25f, 0x0000},      {DType::float16, 0x1.8p-24f, 0x0002},
  };
  for (const auto& e : examples)
    EXPECT_EQ(reference::encode(e.type, e.value), e.code) << gemmule::name(e.type) << ' ' << e.value;
}

TEST(ReferenceFormats, EveryCodeDecodesToAValueThatEncodesBack) {
  for (const DType type :
       {DType::float4_e2m1fn_x2, DType::float8_e4m3fn, DType::float8_e5m2, DType::bfloat16, DType::float16}) {
    const std::uint32_t codes = 1u << reference::bits_of(type);
    for (std::uint32_t code = 0; code < codes; ++code) {
      const double value = reference::decode(type, code);
      if (std::isnan(value) || (std::isinf(value) && reference::saturates(type))) continue;
      EXPECT_EQ(reference::encode(type, static_cast<float>(value)), code) << gemmule::name(type);
    }
  }
}

TEST(ReferenceFormats, ScalesRoundUp) {
  const std::pair<float, int> examples[] = {{1.0f, 0x7F},      {std::nextafter(1.0f, 2.0f), 0x80},
                                            {0.7f, 0x7F},      {2.0f, 0x80},
                                            {3.0f, 0x81},      {0x1p-126f, 0x01},
                                            {0x1p-127f, 0x00}, {1e-40f, 0x00},
                                            {0.0f, 0x00},      {INFINITY, 0xFE},
                                            {NAN, 0xFF},       {0x1.8p127f, 0xFE},
                                            {0x1p127f, 0xFE},  {0x1.1p-127f, 1}};
  for (const auto& [value, code] : examples) EXPECT_EQ(reference::encode_e8m0_up(value), code) << value;
}

// ---- the forward example, worked by hand: one expert of 256 rows, N = K = 32, e4m3 ----

struct ForwardExample {
  ForwardExample() {
    Problem p = basic_problem(Op::srelu, Format::mxfp8, 32, 32);
    t = make_problem(p, {256}, 0, 1);
    std::memset(t.a.data(), 0, t.a.size());
    std::memset(t.b[0].data(), 0, t.b[0].size());
    std::memset(t.sfa.data(), 0x80, t.sfa.size());        // 2
    std::memset(t.sfb[0].data(), 0x7E, t.sfb[0].size());  // 0.5
    set(t.a, 0, 0, 1.5f), set(t.a, 0, 1, -2), set(t.a, 1, 0, -1), set(t.a, 2, 0, 4), set(t.a, 2, 1, 0.5f);
    for (int n = 0; n < 32; ++n) {
      set(t.b[0], n, 0, 0.25f * static_cast<float>(n % 8));
      set(t.b[0], n, 1, n % 2 ? 0.5f : -0.5f);
    }
    t.alpha.as<float>()[0] = 0.5f;
    *t.norm_const.as<float>() = 1;
    for (int m = 0; m < 256; ++m) t.prob.as<float>()[m] = 1;
    t.prob.as<float>()[1] = 0.75f;
    t.prob.as<float>()[2] = -1;
  }
  static void set(Buffer& matrix, int row, int k, float value) {
    reference::store(matrix.data(), DType::float8_e4m3fn, row * 32 + k, value);
  }
  TestProblem t;
};

TEST(ReferenceForwardExample, Values) {
  const ForwardExample example;
  const reference::Result r = reference::evaluate(example.t.problem, example.t.inputs());
  const double c[3][8] = {{0.5, -0.3125, 0.875, 0.0625, 1.25, 0.4375, 1.625, 0.8125},
                          {0, -0.125, -0.25, -0.375, -0.5, -0.625, -0.75, -0.875},
                          {-0.125, 0.625, 0.875, 1.625, 1.875, 2.625, 2.875, 3.625}};
  const double d[3][8] = {
      {0.25, 0, 0.765625, 0.00390625, 1.5625, 0.19140625, 2.640625, 0.66015625},
      {0, 0, 0, 0, 0, 0, 0, 0},
      {-0.0, -0.390625, -0.765625, -2.640625, -3.515625, -6.890625, -8.265625, -13.140625}};
  for (int m = 0; m < 3; ++m)
    for (int n = 0; n < 8; ++n) {
      EXPECT_EQ(r.c.value[m * 32 + n], c[m][n]);
      EXPECT_EQ(r.d.value[m * 32 + n], d[m][n]);
    }
}

TEST(ReferenceForwardExample, Bytes) {
  const ForwardExample example;
  Outputs out = example.t.outputs();
  reference::run(example.t.problem, example.t.operands(out));
  const std::uint8_t scales[3] = {0x78, 0x00, 0x7A};
  const std::uint8_t codes[3][8] = {{0x60, 0x00, 0x6C, 0x30, 0x74, 0x5C, 0x7B, 0x6B},
                                    {0, 0, 0, 0, 0, 0, 0, 0},
                                    {0x80, 0xD4, 0xDC, 0xEB, 0xEE, 0xF6, 0xF8, 0xFD}};
  for (int m = 0; m < 3; ++m) {
    EXPECT_EQ(out.sfd_row.data()[16 * m], scales[m]);
    for (int n = 0; n < 8; ++n) EXPECT_EQ(out.d.data()[m * 32 + n], codes[m][n]);
  }
  const struct {
    int n;
    std::uint8_t scale, code[3];
  } columns[] = {{0, 0x75, {0x78, 0x00, 0x80}},
                 {1, 0x75, {0x00, 0x00, 0xFC}},
                 {4, 0x79, {0x6C, 0x00, 0xF6}},
                 {7, 0x7A, {0x5B, 0x00, 0xFD}}};
  for (const auto& column : columns) {
    EXPECT_EQ(out.sfd_col.data()[16 * column.n], column.scale);
    for (int m = 0; m < 3; ++m) EXPECT_EQ(out.d_col.data()[m * 32 + column.n], column.code[m]);
  }
}

TEST(ReferenceForwardExample, Amax) {
  ForwardExample example;
  TestProblem& t = example.t;
  t.problem.has_amax = true;
  t.initial.amax = Buffer(4);
  *t.initial.amax.as<float>() = -INFINITY;
  EXPECT_EQ(reference::evaluate(t.problem, t.inputs()).amax.value[0], 13.140625);
  *t.initial.amax.as<float>() = 20;  // accumulated into
  EXPECT_EQ(reference::evaluate(t.problem, t.inputs()).amax.value[0], 20);
}

// ---- the backward examples: R, gate and input of single elements of one row ----

struct Element {
  int j;
  double r, gate, input;
  double d_gate, d_input, dprob;
};

/// One BF16 expert whose row 0 has the given elements; prob 0.75, alpha = beta = 1.
TestProblem backward_example(Problem p, const std::vector<Element>& elements) {
  p.n = 32;
  p.k = 8;
  p.c = DType::float32;
  p.d = DType::float32;
  TestProblem t = make_problem(p, {256}, 0, 1);
  const bool scaled = p.block_scaled();
  const auto set = [&](const Buffer& b, std::int64_t i, double v) {
    reference::store(b.data(), p.ab, i, static_cast<float>(v));
  };
  std::memset(t.a.data(), 0, t.a.size());
  std::memset(t.b[0].data(), 0, t.b[0].size());
  if (scaled) {
    std::memset(t.sfa.data(), 127, t.sfa.size());
    std::memset(t.sfb[0].data(), 127, t.sfb[0].size());
  }
  set(t.a, 0, 1);
  std::memset(t.c_in.data(), 0, t.c_in.size());
  for (const Element& e : elements) {
    set(t.b[0], e.j * p.k, e.r);
    t.c_in.as<float>()[e.j] = static_cast<float>(e.gate);
    t.c_in.as<float>()[32 + e.j] = static_cast<float>(e.input);
  }
  *t.alpha.as<float>() = *t.beta.as<float>() = 1;
  t.prob.as<float>()[0] = 0.75f;
  t.initial.dprob.as<float>()[0] = 0;
  return t;
}

void expect_backward(Problem p, const std::vector<Element>& elements, double dprob, double tolerance) {
  const TestProblem t = backward_example(p, elements);
  const reference::Result r = reference::evaluate(t.problem, t.inputs());
  const auto near = [&](double got, double expected) {
    EXPECT_NEAR(got, expected, tolerance * std::max(1e-3, std::fabs(expected)));
  };
  for (const Element& e : elements) {
    near(r.d.value[e.j], e.d_gate);
    near(r.d.value[32 + e.j], e.d_input);
  }
  near(r.dprob.value[0], dprob);
}

TEST(ReferenceBackwardExample, Dswiglu) {
  expect_backward(basic_problem(Op::dglu, Format::bf16, 32, 8, ActFunc::dswiglu),
                  {{0, 0.5, 1, 2, 0.6957528839036, 0.2741469669863, 0},
                   {1, -1.25, -2, 0.75, 0.06383267492688, 0.2235054787915, 0},
                   {31, 2, 3, -1.5, -2.448234238534, 4.286583570701, 0}},
                  -7.618603083980, 1e-12);
}

TEST(ReferenceBackwardExample, Dgeglu) {
  // The constant 1.702 is a float32 here and a double in the example.
  Problem p = basic_problem(Op::dglu, Format::bf16, 32, 8, ActFunc::dgeglu);
  std::vector<Element> elements = {{0, 0.5, 1, 2, 1.201252057376, 0.3171734122248, 0},
                                   {1, -1.25, -2, 0.75, 0.1211033156625, 0.06032004080230, 0},
                                   {2, 1, 8.5, 0.5, 0, 5.249964846227, 0},
                                   {3, 1, 1.5, 8.25, 6.593088387745, 0, 0},
                                   {4, 1, 1.5, -8.25, -4.944816290808, 0, 0},
                                   {5, 1, 7, -7, -4.500328856116, 5.249964846227, 0}};
  p.geglu_value_filter = false;
  expect_backward(p, elements, -27.30702426970, 2e-7);
  const double value[6][2] = {{1.201252057376, 0.6343468244496},
                              {-0.2422066313249, 0.04524003060173},
                              {0, 2.624982423114},
                              {9.889632581617, 0},
                              {-7.417224436213, 0},
                              {-31.50230199281, -36.74975392359}};
  for (int i = 0; i < 6; ++i) {
    elements[i].d_gate = value[i][0];
    elements[i].d_input = value[i][1];
  }
  p.geglu_value_filter = true;
  expect_backward(p, elements, -27.30702426970, 2e-7);
}

TEST(ReferenceBackwardExample, Dsituglu) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 32, 8, ActFunc::dsituglu);
  expect_backward(p,
                  {{0, 0.5, 1, 2, 0.6584621143554, 0.2668632622631, 0},
                   {1, -1.25, -2, 0.75, 0.07052371366572, 0.2063856301843, 0},
                   {31, 2, 8, -40, -2.485734752416, 0.8703815353448, 0}},
                  -176.7220035268, 1e-12);
  p.situ_beta1 = 2;
  p.situ_beta2 = 10;
  expect_backward(p,
                  {{0, 0.5, 1, 2, 0.5600437302547, 0.2435052596335, 0},
                   {1, -1.25, -2, 0.75, 0.07710279119713, 0.1692665555242, 0},
                   {31, 2, 8, -40, -0.03013767281727, 0.004018805762017, 0}},
                  -39.09626159047, 1e-12);
}

/// act(gate, input), written as the forward pass has it.
double forward(const Problem& p, double gate, double input) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  switch (p.act) {
    case ActFunc::dswiglu:
      return gate * sigmoid(gate) * input;
    case ActFunc::dgeglu: {
      const double g = std::min<double>(gate, p.glu_clamp_max);
      const double u = std::max<double>(std::min<double>(input, p.glu_clamp_max), p.glu_clamp_min);
      return g * sigmoid(double(p.geglu_alpha) * g) * (u + p.linear_offset);
    }
    default:
      return p.situ_beta1 * std::tanh(gate / p.situ_beta1) * sigmoid(gate) * p.situ_beta2 *
             std::tanh(input / p.situ_beta2);
  }
}

// The gradients are those of the forward activation, away from the corners of the clamps and on both sides of them.
TEST(ReferenceBackward, IsTheDerivativeOfTheForwardActivation) {
  for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu}) {
    Problem p = basic_problem(Op::dglu, Format::bf16, 32, 8, act);
    p.geglu_value_filter = false;
    std::vector<Element> elements;
    for (const double gate : {-8.0, -7.0, -1.0, 0.0, 1.0, 6.9375, 7.0625, 9.0})
      for (const double input : {-8.0, -6.9375, 0.5, 7.0625}) {
        const double h = 1e-5, r = 0.5 * 0.75;
        elements.push_back({static_cast<int>(elements.size()), 0.5, gate, input,
                            r * (forward(p, gate + h, input) - forward(p, gate - h, input)) / (2 * h),
                            r * (forward(p, gate, input + h) - forward(p, gate, input - h)) / (2 * h),
                            0.5 * forward(p, gate, input)});
      }
    double dprob = 0;
    for (const Element& e : elements) dprob += e.dprob;
    expect_backward(p, elements, dprob, 1e-6);
  }
}

TEST(ReferenceBackward, ValueFilterIsNotTheDerivative) {
  Problem p = basic_problem(Op::dglu, Format::bf16, 32, 8, ActFunc::dgeglu);
  const std::vector<Element> elements = {{0, 0.5, -2, 3, 0, 0, 0}};
  p.geglu_value_filter = false;
  const TestProblem mask = backward_example(p, elements);
  p.geglu_value_filter = true;
  const TestProblem value = backward_example(p, elements);
  const auto a = reference::evaluate(mask.problem, mask.inputs()),
             b = reference::evaluate(value.problem, value.inputs());
  EXPECT_DOUBLE_EQ(b.d.value[0], -2 * a.d.value[0]);
  EXPECT_DOUBLE_EQ(b.d.value[32], 3 * a.d.value[32]);
  EXPECT_EQ(a.dprob.value[0], b.dprob.value[0]);
}

// ---- a second evaluation: the public dequantizers, then plain loops ----

TEST(Reference, AgreesWithDequantizedOperands) {
  for (const Format format :
       {Format::mxfp8, Format::mxfp8_e5m2, Format::mxfp4, Format::mxfp4_16, Format::nvfp4}) {
    Problem p = basic_problem(Op::srelu, format, 48, 96);
    p.c = DType::float32;
    const TestProblem t = make_problem(p, {128, 0, 256}, 0, 11);
    const reference::Result r = reference::evaluate(t.problem, t.inputs());
    const QuantFormat f{p.ab, p.scale, p.vec};
    std::vector<float> a(t.m * p.k), b(p.n * p.k);
    dequantize_rows(t.a.data(), t.sfa.data(), t.m, p.k, f, a);
    for (int g = 0; g < t.problem.experts; ++g) {
      dequantize_rows(t.b[0].data() + g * code_bytes(p.n, p.k, p.ab),
                      t.sfb[0].data() + g * scale_bytes(p.n, p.k, p.vec), p.n, p.k, f, b);
      for (std::int64_t m = g ? t.padded_offsets[g - 1] : 0; m < t.padded_offsets[g]; ++m)
        for (std::int64_t n = 0; n < p.n; ++n) {
          double x = 0;
          for (std::int64_t k = 0; k < p.k; ++k) x += double(a[m * p.k + k]) * b[n * p.k + k];
          x *= t.alpha.as<float>()[g];
          const double relu = std::max(x, 0.0), y = t.prob.as<float>()[m] * relu * relu;
          ASSERT_NEAR(r.c.value[m * p.n + n], x, 1e-12 * (1 + std::fabs(x)));
          ASSERT_NEAR(r.d.value[m * p.n + n], y, 1e-12 * (1 + std::fabs(y)));
        }
    }
  }
}

// ---- options ----

TEST(Reference, TanhClampBoundsD) {
  Problem p = basic_problem(Op::srelu, Format::mxfp4, 64, 64);
  p.c = p.d = DType::float32;
  for (const float s : {0.5f, 8.0f, 32.0f}) {
    p.tanh_clamp_scale = s;
    const TestProblem t = make_problem(p, {256, 0, 128}, 0, 5);
    const reference::Result r = reference::evaluate(t.problem, t.inputs());
    double largest = 0;
    for (std::int64_t i = 0; i < t.m * p.n; ++i) {
      const double x = r.c.value[i], prob = t.prob.as<float>()[i / p.n];
      const double c = s * std::tanh(std::max(x, 0.0) / s);
      EXPECT_NEAR(r.d.value[i], prob * c * c, 1e-12 * s * s);
      EXPECT_LE(std::fabs(r.d.value[i]), s * s * std::fabs(prob));
      largest = std::max(largest, std::fabs(r.d.value[i]));
    }
    EXPECT_GT(largest, 0);
  }
}

TEST(Reference, EpilogueOpChangesDButNotItsReductions) {
  Problem p = basic_problem(Op::dglu, Format::mxfp4, 32, 64);
  p.has_dbias = true;
  const auto evaluate = [&](EpilogueOp op) {
    Problem q = p;
    q.epilogue_op = op;
    const TestProblem t = make_problem(q, {256, 0, 128}, 0, 5);
    return reference::evaluate(t.problem, t.inputs());
  };
  const auto plain = evaluate(EpilogueOp::none), relu = evaluate(EpilogueOp::relu),
             square = evaluate(EpilogueOp::srelu);
  double largest = 0;
  for (std::size_t i = 0; i < plain.d.value.size(); ++i) {
    const double r = std::max(plain.d.value[i], 0.0);
    EXPECT_EQ(relu.d.value[i], r);
    EXPECT_EQ(square.d.value[i], r * r);
    if (i < 256 * 64 && i / 32 % 2 == 0) largest = std::max(largest, r);
  }
  EXPECT_EQ(plain.dprob.value, relu.dprob.value);
  EXPECT_EQ(plain.dbias.value, square.dbias.value);
  EXPECT_EQ(relu.amax.value[0], largest);
}

TEST(Reference, AlphaEntersSquaredAndBetaScalesC) {
  for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu}) {
    Problem p = basic_problem(Op::dglu, Format::mxfp4, 32, 64, act);
    p.c = DType::float32;
    TestProblem t = make_problem(p, {128}, 0, 5);
    const auto evaluate = [&](float alpha, float beta, float c_factor) {
      TestProblem u = t;
      *u.alpha.as<float>() = alpha;
      *u.beta.as<float>() = beta;
      for (std::int64_t i = 0; i < u.c_in.size() / 4; ++i) u.c_in.as<float>()[i] *= c_factor;
      for (int m = 0; m < 128; ++m) u.initial.dprob.as<float>()[m] = 0;
      return reference::evaluate(u.problem, u.inputs());
    };
    const auto one = evaluate(1, 1, 1);
    for (const float alpha : {2.0f, -0.5f, 0.0f}) {
      const auto scaled = evaluate(alpha, 1, 1);
      for (std::size_t i = 0; i < one.d.value.size(); ++i)
        EXPECT_DOUBLE_EQ(scaled.d.value[i], alpha * alpha * one.d.value[i]);
      for (int m = 0; m < 128; ++m)
        EXPECT_DOUBLE_EQ(scaled.dprob.value[m], alpha * alpha * one.dprob.value[m]);
    }
    EXPECT_EQ(evaluate(1, 0.5f, 2).d.value, one.d.value);
    EXPECT_NE(evaluate(1, 0.5f, 1).d.value, one.d.value);
  }
}

}  // namespace
}  // namespace gemmule::test
