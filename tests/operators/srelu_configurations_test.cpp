// Walks the configuration space of grouped GEMM + sReLU. What is legal, and which rule speaks first, is decided here
// from the requirement document, not by asking the library.
#include <gtest/gtest.h>

#include <array>

#include "operators/descriptors.hpp"

namespace gemmule::operators_test {
namespace {

struct Formats {
  DType a, b, scale, sfb, c, d;
  int vec;
  int outputs;  // 0: no scale outputs, 1: all of them, 2: all but norm_const
  bool discrete;
  Major b_major;
};

/// The first rule that a construction breaks, as a part of its message; empty if it is legal.
std::string broken_rule(const Formats& f) {
  if (f.outputs == 2) return "all of them or none";
  if (f.vec != 16 && f.vec != 32) return "sf_vec_size: 8, expected 16 or 32";
  if (!is_one_of(f.a, {fp4, u8, e4m3, e5m2})) return "sample_a: dtype";
  if (f.a != f.b) return f.discrete ? "b_dtype: " : "sample_b: dtype";
  if (!is_one_of(f.scale, {e8m0, e4m3})) return "sample_sfa: dtype";
  if (!f.discrete && f.sfb != f.scale) return "sample_sfb: dtype";
  if (f.outputs == 1 && f.sfb != f.scale && !f.discrete) return "sample_sfd_row: dtype";
  if (f.vec == 32 && f.scale == e4m3) return "sf_vec_size: 32, expected 16 with e4m3 scale factors";
  const bool fp8 = is_one_of(f.a, {e4m3, e5m2});
  if (f.vec == 16 && fp8) return "sf_vec_size: 16, expected 32 with FP8 input";
  if (!is_one_of(f.c, {f32, f16, bf16, e4m3, e5m2, fp4})) return "sample_c: dtype";
  if (fp8 ? !is_one_of(f.d, {f16, bf16, e4m3, e5m2, fp4}) : !is_one_of(f.d, {f16, bf16, f32}))
    return "sample_d: dtype";
  const bool generates = fp8 && is_one_of(f.d, {e4m3, e5m2, fp4});
  if (generates && f.outputs == 0) return "required for FP8 input/FP8 output";
  if (!generates && f.outputs == 1) return "sample_sfd_row: given";
  if (f.discrete && !fp8 && f.b_major == Major::n) return "b_major: n, expected k with FP4 input";
  return {};
}

SreluCase case_of(const Formats& f) {
  SreluCase c;
  c.k = 512;  // so that the scale factors tell K of a uint8 A
  c.a = f.a;
  c.scale = f.scale;
  c.c = f.c;
  c.d = f.d;
  c.vec = f.vec;
  c.discrete = f.discrete;
  c.scales = f.outputs != 0;
  c.options.b_major = f.b_major;
  return c;
}

std::string outcome(const Formats& f) {
  const SreluCase c = case_of(f);
  SreluTensors t = samples_of(c.tensors());
  SreluOptions o = c.opts();
  if (f.discrete)
    o.b_dtype = f.b;
  else
    t.b.dtype = f.b, t.sfb.dtype = f.sfb;
  if (f.outputs == 2) t.norm_const = Tensor{};
  return support_failure(t, o);
}

std::string text(const Formats& f) {
  std::string out;
  for (const DType t : {f.a, f.b, f.scale, f.sfb, f.c, f.d}) out += std::string(name(t)) + " ";
  return out + std::to_string(f.vec) + " outputs " + std::to_string(f.outputs) +
         (f.discrete ? " discrete" : " dense") + (f.b_major == Major::n ? " n" : " k");
}

template <class Visit>
void for_each_format(Visit visit) {
  constexpr std::array outputs_c = {f32, f16, bf16, e4m3, e5m2, fp4, u8, DType::int32};
  for (const DType a : {fp4, u8, e4m3, e5m2, bf16, f32})
    for (const bool same_b : {true, false})
      for (const DType scale : {e8m0, e4m3, u8})
        for (const bool same_sfb : {true, false})
          for (const int vec : {16, 32, 8})
            for (const DType c : outputs_c)
              for (const DType d : outputs_c)
                for (const int outputs : {0, 1, 2})
                  for (const bool discrete : {false, true})
                    for (const Major major : {Major::k, Major::n}) {
                      if (!discrete && major == Major::n) continue;  // not an option of dense mode
                      const DType b = same_b ? a : a == fp4 ? u8 : a == u8 ? fp4 : a == e4m3 ? e5m2 : e4m3;
                      visit(Formats{a, b, scale,
                                    same_sfb        ? scale
                                    : scale == e8m0 ? e4m3
                                                    : e8m0,
                                    c, d, vec, outputs, discrete, major});
                    }
}

TEST(SreluConfigurations, EveryFormat) {
  int legal = 0, illegal = 0;
  for_each_format([&](const Formats& f) {
    if (HasFatalFailure()) return;
    const std::string rule = broken_rule(f), got = outcome(f);
    if (rule.empty()) {
      ++legal;
      ASSERT_EQ(got, "") << text(f);
    } else {
      ++illegal;
      ASSERT_EQ(got.rfind("InvalidArgument: ", 0), 0u) << text(f) << ": expected " << rule << ", got " << got;
      ASSERT_NE(got.find(rule), std::string::npos) << text(f) << ": expected " << rule << ", got " << got;
    }
  });
  EXPECT_GT(legal, 300);
  EXPECT_GT(illegal, 10000);
}

/// The one-call form has the same legal formats; its own rules and names come first.
TEST(SreluConfigurations, EveryFormatOfTheOneCallForm) {
  for_each_format([&](const Formats& f) {
    if (HasFatalFailure() || f.a != f.b || f.sfb != f.scale || f.outputs == 2) return;
    const bool fp8 = is_one_of(f.a, {e4m3, e5m2});
    const bool generates = fp8 && is_one_of(f.d, {e4m3, e5m2, fp4});
    Formats as_class = f;
    as_class.outputs = generates ? 1 : 0;  // norm_const is ignored where no scales are generated
    const std::string rule = generates && f.outputs == 0 ? "norm_const_tensor: None" : broken_rule(as_class);
    const SreluCase c = case_of(f);
    const std::string got = call_failure(c);
    ASSERT_EQ(got.empty(), rule.empty()) << text(f) << ": expected " << rule << ", got " << got;
    if (rule.rfind("sample_c", 0) == 0) {
      ASSERT_NE(got.find("c_dtype: "), std::string::npos) << got;
    }
    if (rule.rfind("sample_d:", 0) == 0) {
      ASSERT_NE(got.find("d_dtype: "), std::string::npos) << got;
    }
  });
}

bool legal_tile(TileShape t) {
  return (t.m == 128 || t.m == 256) && (t.n == 128 || t.n == 256);
}

/// The table of the document's section on tiles.
bool legal_cluster(TileShape t, ClusterShape c) {
  const bool n = c.n == 1 || c.n == 2 || c.n == 4;
  return n && (c.m == 2 || (c.m == 1 && t.m == 128));
}

TEST(SreluConfigurations, EveryTileAndCluster) {
  int legal = 0;
  for (const int tile_m : {0, 64, 128, 192, 256, 512})
    for (const int tile_n : {-1, 32, 64, 128, 192, 224, 256, 512})
      for (int cm = -1; cm <= 17; ++cm)
        for (int cn = -1; cn <= 17; ++cn)
          for (const int aligned : {128, 256, 64, 512}) {
            SreluCase c;
            c.options.mma_tiler_mn = {tile_m, tile_n};
            if (cm >= 0) c.options.cluster_shape_mn = ClusterShape{cm, cn};  // -1: the default
            c.options.m_aligned = aligned;
            const TileShape tile{tile_m, tile_n};
            const std::string got = support_failure(c);
            std::string rule;
            if (!legal_tile(tile))
              rule = "mma_tiler_mn: ";
            else if (cm >= 0 && !legal_cluster(tile, {cm, cn}))
              rule = "cluster_shape_mn: ";
            else if (aligned != 128 && aligned != 256)
              rule = "m_aligned: ";
            legal += rule.empty();
            ASSERT_EQ(got.empty(), rule.empty())
                << tile_m << "," << tile_n << " " << cm << "," << cn << ": " << got;
            ASSERT_NE(got.find(rule), std::string::npos) << got;
          }
  EXPECT_GT(legal, 50);
}

TEST(SreluConfigurations, FlagsDoNotMakeALegalCallIllegal) {
  for (const DType a : {fp4, u8, e4m3, e5m2})
    for (const bool vector : {false, true})
      for (const bool dynamic : {false, true})
        for (const bool column : {false, true})
          for (const bool deterministic : {false, true})
            for (const bool amax : {false, true})
              for (const bool d_col : {false, true})
                for (const DType bias : {none, bf16, f16, f32})
                  for (const bool discrete : {false, true}) {
                    SreluCase c;
                    c.a = a;
                    c.discrete = discrete;
                    c.options.vector_f32 = vector;
                    c.options.use_dynamic_sched = dynamic;
                    c.options.discrete_col_sfd = column;
                    c.options.deterministic = deterministic;
                    c.amax = amax;
                    c.bias = bias;
                    c.d = is_one_of(a, {e4m3, e5m2}) && d_col ? e5m2 : bf16;
                    c.scales = c.d == e5m2;
                    SreluTensors t = samples_of(c.tensors());
                    if (d_col) t.d_col = t.d;
                    ASSERT_EQ(support_failure(t, c.opts()), "");
                  }
}

TEST(SreluConfigurations, DenseFp8WeightsMayBeNMajor) {
  for (const DType a : {fp4, u8, e4m3, e5m2}) {
    SreluCase c;
    c.a = a;
    SreluTensors t = c.tensors();
    const std::int64_t stored = t.b.shape[1];
    t.b.strides = {1, c.n, c.n * stored};
    const std::string got = support_failure(t, c.opts());
    if (is_one_of(a, {e4m3, e5m2}))
      EXPECT_EQ(got, "");
    else
      EXPECT_NE(got.find("sample_b: strides (1, "), std::string::npos) << got;
  }
}

TEST(SreluConfigurations, RowsMustFillWholeSixteenByteUnits) {
  struct Expectation {
    DType a, c, d;
    std::int64_t n, k;
    const char* rule;
  };
  const Expectation table[] = {
      {e4m3, bf16, bf16, 128, 40, "sample_a: 40 contiguous values (row pitch 40 B is not a multiple of 16)"},
      {e4m3, bf16, bf16, 128, 16, ""},
      {fp4, bf16, bf16, 128, 48, "sample_a: 48 contiguous values (row pitch 24 B"},
      {fp4, bf16, bf16, 128, 96, ""},
      {e4m3, bf16, bf16, 1638, 32,
       "sample_d: 1638 contiguous values (row pitch 3276 B is not a multiple of 16)"},
      {e4m3, bf16, bf16, 1640, 32, ""},
      {e4m3, e4m3, bf16, 24, 32, "sample_c: 24 contiguous values"},
      {e4m3, fp4, bf16, 48, 32, "sample_c: 48 contiguous values"},
      {e4m3, fp4, bf16, 64, 32, ""},
      {fp4, f32, f32, 4, 32, ""},
      {fp4, f32, f32, 6, 32, "sample_d: 6 contiguous values (row pitch 24 B"},
  };
  for (const Expectation& e : table) {
    SreluCase c;
    c.a = e.a;
    c.c = e.c;
    c.d = e.d;
    c.n = e.n;
    c.k = e.k;
    const std::string got = support_failure(c);
    EXPECT_EQ(got.empty(), *e.rule == 0) << got;
    EXPECT_NE(got.find(e.rule), std::string::npos) << "expected " << e.rule << ", got " << got;
  }
  SreluCase n_major;  // the contiguous extent is N then
  n_major.discrete = true;
  n_major.options.b_major = Major::n;
  n_major.n = 24;
  EXPECT_NE(support_failure(n_major).find("b_shape: 24 contiguous values"), std::string::npos);
}

TEST(SreluConfigurations, TanhClampScaleIsRefusedByTheConstructor) {
  const SreluCase c;
  for (const double s : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity(), 1e-300, 1e39}) {
    SreluOptions o = c.opts();
    o.tanh_clamp_scale = s;
    const std::string got = failure([&] { GroupedGemmSrelu(c.tensors(), o); });
    EXPECT_EQ(got.rfind("InvalidArgument: tanh_clamp_scale: ", 0), 0u) << got;
    EXPECT_EQ(failure([&] { describe_outputs(inputs_of(c.tensors()), o, c.call()); }), got);
  }
  for (const double s : {0.5, 16.0, 32.0}) {
    SreluOptions o = c.opts();
    o.tanh_clamp_scale = s;
    EXPECT_EQ(support_failure(c.tensors(), o), "");
  }
}

TEST(SreluConfigurations, ExpertCount) {
  for (const int experts : {1, 2, 1024, 1025, 0}) {
    SreluCase c;
    c.groups.assign(static_cast<std::size_t>(experts), 0);
    c.tail = 256;
    const std::string got = support_failure(c.tensors(), c.opts());
    if (experts >= 1 && experts <= 1024)
      EXPECT_EQ(got, "");
    else
      EXPECT_NE(
          got.find("sample_padded_offsets: " + std::to_string(experts) + " experts, expected 1 to 1024"),
          std::string::npos)
          << got;
  }
}

TEST(SreluConfigurations, WeightMode) {
  SreluCase dense, discrete;
  discrete.discrete = true;
  const auto construct = [](const SreluTensors& t, const SreluOptions& o) {
    return failure([&] { GroupedGemmSrelu(t, o); });
  };
  SreluTensors both = dense.tensors();
  EXPECT_NE(construct(both, discrete.opts()).find("sample_b, num_experts: both given"), std::string::npos);
  EXPECT_NE(
      construct(samples_of(discrete.tensors()), dense.opts()).find("sample_b, num_experts: neither given"),
      std::string::npos);
  for (const int experts : {0, -1}) {
    SreluOptions o = discrete.opts();
    o.num_experts = experts;
    EXPECT_NE(construct(samples_of(discrete.tensors()), o).find("num_experts: "), std::string::npos);
  }
  SreluOptions o = discrete.opts();
  o.num_experts = 2;
  EXPECT_NE(
      support_failure(samples_of(discrete.tensors()), o).find("sample_padded_offsets: length 3, expected 2"),
      std::string::npos);
  o = discrete.opts();
  o.b_shape.reset();
  EXPECT_NE(construct(samples_of(discrete.tensors()), o).find("b_shape: None"), std::string::npos);
  o = discrete.opts();
  o.b_dtype = none;
  EXPECT_NE(construct(samples_of(discrete.tensors()), o).find("b_dtype: None"), std::string::npos);
  o = discrete.opts();
  o.b_shape = {128, 256};
  EXPECT_NE(support_failure(samples_of(discrete.tensors()), o)
                .find("b_shape: K = 256, expected 128 as in sample_a"),
            std::string::npos);

  SreluTensors call = inputs_of(dense.tensors());
  call.b_ptrs = inputs_of(discrete.tensors()).b_ptrs;
  const auto describe = [&](const SreluTensors& t, const SreluOptions& opts) {
    return failure([&] { describe_outputs(t, opts, dense.call()); });
  };
  EXPECT_NE(describe(call, dense.opts()).find("b_tensor, b_ptrs: both given"), std::string::npos);
  call.b = call.b_ptrs = Tensor{};
  EXPECT_NE(describe(call, dense.opts()).find("b_tensor, b_ptrs: neither given"), std::string::npos);
}

}  // namespace
}  // namespace gemmule::operators_test
