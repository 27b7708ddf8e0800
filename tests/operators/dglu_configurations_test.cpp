// Walks the configuration space of grouped GEMM + dGLU. What is legal, and which rule speaks first, is decided here from
// the requirement document, not by asking the library.
#include <gtest/gtest.h>

#include <array>

#include "operators/descriptors.hpp"

namespace gemmule::operators_test {
namespace {

struct Formats {
  DType a, b, scale, c, d;
  int vec;
  int outputs;  // 0: no scale outputs, 1: all of them, 2: all but norm_const
  bool discrete;
  Major b_major;
  ActFunc act;
};

bool is_block_scaled_pair(DType a, DType b) {
  return a == b && is_one_of(a, {fp4, u8, e4m3, e5m2});
}

/// The first rule that a construction breaks, as a part of its message; empty if it is legal.
std::string broken_rule(const Formats& f) {
  if ((f.a == bf16) != (f.b == bf16)) return "mixed dtype families";
  if (f.a != bf16 && !is_block_scaled_pair(f.a, f.b)) return "unsupported dtype pair";
  if (f.a == bf16) {
    if (f.outputs == 2) return "BF16 forbids scale control sample_d_col";
    if (f.outputs == 1) return "BF16 forbids scale control sample_d_col";
    if (f.act == ActFunc::dsituglu) return "act_func: dsituglu";
    if (!is_one_of(f.c, {f32, f16, bf16})) return "sample_c: dtype";
    if (!is_one_of(f.d, {f32, f16, bf16})) return "sample_d_row: dtype";
    return {};
  }
  if (f.outputs == 2) return "all of them or none";
  if (f.vec != 16 && f.vec != 32) return "sf_vec_size: 8, expected 16 or 32";
  if (!is_one_of(f.scale, {e8m0, e4m3})) return "sample_sfa: dtype";
  if (f.vec == 32 && f.scale == e4m3) return "sf_vec_size: 32, expected 16 with e4m3 scale factors";
  const bool fp8 = is_one_of(f.a, {e4m3, e5m2});
  if (f.vec == 16 && fp8) return "sf_vec_size: 16, expected 32 with FP8 input";
  if (!is_one_of(f.c, {f32, f16, bf16, e4m3, e5m2})) return "sample_c: dtype";
  if (fp8 ? !is_one_of(f.d, {e4m3, e5m2}) : !is_one_of(f.d, {f16, bf16, f32})) return "sample_d_row: dtype";
  if (fp8 && f.outputs == 0) return "required for FP8 input/FP8 output";
  if (!fp8 && f.outputs == 1) return "sample_sfd_row: given";
  if (f.discrete && !fp8 && f.b_major == Major::n) return "b_major: n, expected k with FP4 input";
  return {};
}

DgluCase case_of(const Formats& f) {
  DgluCase c;
  c.k = 512;  // so that the scale factors tell K of a uint8 A
  c.a = f.a;
  c.scale = f.scale;
  c.c = f.c;
  c.d = f.d;
  c.vec = f.vec;
  c.discrete = f.discrete;
  c.scales = f.outputs != 0;
  c.options.b_major = f.b_major;
  c.options.act_func = f.act;
  return c;
}

std::string outcome(const Formats& f) {
  const DgluCase c = case_of(f);
  DgluTensors t = samples_of(c.tensors());
  DgluOptions o = c.opts();
  if (f.discrete)
    o.b_dtype = f.b;
  else
    t.b.dtype = f.b;
  if (f.outputs == 2) t.norm_const = Tensor{};
  return support_failure(t, o);
}

std::string text(const Formats& f) {
  std::string out;
  for (const DType t : {f.a, f.b, f.scale, f.c, f.d}) out += std::string(name(t)) + " ";
  return out + std::to_string(f.vec) + " outputs " + std::to_string(f.outputs) +
         (f.discrete ? " discrete" : " dense") + (f.b_major == Major::n ? " n " : " k ") + name(f.act);
}

template <class Visit>
void for_each_format(Visit visit) {
  constexpr std::array others = {f32, f16, bf16, e4m3, e5m2, fp4, u8};
  for (const DType a : {fp4, u8, e4m3, e5m2, bf16, f16, f32})
    for (const DType b : {fp4, u8, e4m3, e5m2, bf16, f16})
      for (const DType scale : {e8m0, e4m3, u8})
        for (const int vec : {16, 32, 8})
          for (const DType c : others)
            for (const DType d : others)
              for (const int outputs : {0, 1, 2})
                for (const bool discrete : {false, true})
                  for (const Major major : {Major::k, Major::n})
                    for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu}) {
                      if (!discrete && major == Major::n) continue;  // not an option of dense mode
                      if (a != b && (c != bf16 || act != ActFunc::dswiglu)) continue;  // refused at once
                      if (a == bf16 && b == bf16 && (scale != e8m0 || vec != 32)) continue;  // has no scales
                      visit(Formats{a, b, scale, c, d, vec, outputs, discrete, major, act});
                    }
}

TEST(DgluConfigurations, EveryFormat) {
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

TEST(DgluConfigurations, EveryFormatOfTheOneCallForm) {
  for_each_format([&](const Formats& f) {
    if (HasFatalFailure() || f.a != f.b || f.outputs == 2) return;
    const bool generates = is_one_of(f.a, {e4m3, e5m2}) && is_one_of(f.d, {e4m3, e5m2, fp4});
    DgluCase c = case_of(f);
    Formats as_class = f;
    as_class.outputs = generates ? 1 : 0;  // norm_const is ignored where no scales are generated
    std::string rule = generates && f.outputs == 0 ? "norm_const_tensor: None" : broken_rule(as_class);
    if (f.a == bf16 && f.outputs == 1) rule = "BF16 forbids scale control norm_const_tensor";
    const std::string got = call_failure(c);
    ASSERT_EQ(got.empty(), rule.empty()) << text(f) << ": expected " << rule << ", got " << got;
    if (rule.rfind("BF16", 0) == 0) {
      ASSERT_NE(got.find(rule), std::string::npos) << got;
    }
    if (rule.rfind("sample_d_row: dtype", 0) == 0) {
      ASSERT_NE(got.find("d_dtype: "), std::string::npos) << got;
    }
    if (rule.rfind("sample_c: dtype", 0) == 0) {
      ASSERT_NE(got.find("c_tensor: dtype"), std::string::npos) << got;
    }
  });
}

bool legal_tile(TileShape t, bool block_scaled) {
  return (t.m == 128 || t.m == 256) && (block_scaled ? t.n == 256 : t.n >= 32 && t.n <= 256 && t.n % 32 == 0);
}

/// Powers of two, at most 16 blocks, first extent even for TILE_M 256, one or two row tiles of 128; block-scaled: second
/// extent at most 4.
bool legal_cluster(TileShape t, ClusterShape c, bool block_scaled) {
  const auto power_of_two = [](int x) { return x == 1 || x == 2 || x == 4 || x == 8 || x == 16; };
  if (!power_of_two(c.m) || !power_of_two(c.n) || c.m * c.n > 16) return false;
  const int pair = t.m == 256 ? 2 : 1;
  if (c.m % pair != 0) return false;
  const int rows = c.m / pair * t.m;
  return (rows == 128 || rows == 256) && (!block_scaled || c.n <= 4);
}

TEST(DgluConfigurations, EveryTileAndCluster) {
  int legal = 0;
  for (const DType a : {bf16, fp4, e4m3})
    for (const int tile_m : {0, 64, 128, 256, 512})
      for (const int tile_n : {-32, 0, 32, 48, 64, 96, 128, 160, 192, 224, 256, 288})
        for (const int cm : {-1, 0, 1, 2, 3, 4, 8, 16})
          for (const int cn : {-1, 0, 1, 2, 3, 4, 5, 8, 12, 16, 32})
            for (const int aligned : {128, 256, 64}) {
              DgluCase c;
              c.a = a;
              c.d = a == e4m3 ? e4m3 : bf16;
              c.scales = a == e4m3;
              c.options.mma_tiler_mn = {tile_m, tile_n};
              if (cm >= 0) c.options.cluster_shape_mn = ClusterShape{cm, cn};  // -1: the default
              c.options.m_aligned = aligned;
              const TileShape tile{tile_m, tile_n};
              std::string rule;
              if (!legal_tile(tile, c.block_scaled()))
                rule = "mma_tiler_mn: ";
              else if (cm >= 0 && !legal_cluster(tile, {cm, cn}, c.block_scaled()))
                rule = "cluster_shape_mn: ";
              else if (aligned == 64)
                rule = "m_aligned: ";
              const std::string got = support_failure(c);
              legal += rule.empty();
              ASSERT_EQ(got.empty(), rule.empty())
                  << tile_m << "," << tile_n << " " << cm << "," << cn << " " << got;
              ASSERT_NE(got.find(rule), std::string::npos) << got;
            }
  EXPECT_GT(legal, 100);
}

TEST(DgluConfigurations, FlagsDoNotMakeALegalCallIllegal) {
  for (const DType a : {bf16, fp4, u8, e4m3, e5m2})
    for (const DType c_dtype : {bf16, e4m3})
      for (const bool vector : {false, true})
        for (const bool dynamic : {false, true})
          for (const bool dbias : {false, true})
            for (const bool amax : {false, true})
              for (const bool discrete : {false, true})
                for (const bool optional : {false, true})
                  for (const EpilogueOp op : {EpilogueOp::none, EpilogueOp::relu, EpilogueOp::srelu}) {
                    DgluCase c;
                    c.a = a;
                    c.c = a == bf16 ? bf16 : c_dtype;
                    c.d = is_one_of(a, {e4m3, e5m2}) ? e5m2 : bf16;
                    c.scales = c.d == e5m2;
                    c.dbias = dbias;
                    c.amax = amax;
                    c.discrete = discrete;
                    c.prob = c.dprob = optional || a == bf16;
                    c.options.vector_f32 = vector;
                    c.options.use_dynamic_sched = dynamic;
                    c.options.epilogue_op = a == bf16 ? EpilogueOp::none : op;
                    ASSERT_EQ(support_failure(c), "");
                  }
}

TEST(DgluConfigurations, Bf16NamesTheFirstScaleControl) {
  DgluCase c;
  c.a = bf16;
  const DgluCase scaled = [] {
    DgluCase s;
    s.scales = true;
    s.d = e4m3;
    return s;
  }();
  const DgluTensors other = scaled.tensors();
  struct Control {
    const char* name;
    std::function<void(DgluTensors&, DgluOptions&)> set;
  };
  const Control class_order[] = {
      {"sample_sfa", [&](auto& t, auto&) { t.sfa = other.sfa; }},
      {"sample_sfb", [&](auto& t, auto&) { t.sfb = other.sfb; }},
      {"sample_d_col", [&](auto& t, auto&) { t.d_col = t.d_row; }},
      {"sample_sfd_row", [&](auto& t, auto&) { t.sfd_row = other.sfd_row; }},
      {"sample_sfd_col", [&](auto& t, auto&) { t.sfd_col = other.sfd_col; }},
      {"sample_amax", [&](auto& t, auto&) { t.amax = other.amax; }},
      {"sample_norm_const", [&](auto& t, auto&) { t.norm_const = other.norm_const; }},
      {"sf_vec_size", [](auto&, auto& o) { o.sf_vec_size = 32; }},
      {"discrete_col_sfd", [](auto&, auto& o) { o.discrete_col_sfd = true; }},
      {"geglu_alpha", [](auto&, auto& o) { o.geglu_alpha = 1.0f; }},
      {"glu_clamp_max", [](auto&, auto& o) { o.glu_clamp_max = 8.0f; }},
      {"glu_clamp_min", [](auto&, auto& o) { o.glu_clamp_min = -8.0f; }},
      {"epilogue_op", [](auto&, auto& o) { o.epilogue_op = EpilogueOp::relu; }},
  };
  // With the controls from i on set, i is the one that is named.
  const std::size_t count = std::size(class_order);
  for (std::size_t i = 0; i < count; ++i) {
    DgluTensors t = c.tensors();
    DgluOptions o = c.opts();
    for (std::size_t j = i; j < count; ++j) class_order[j].set(t, o);
    const std::string got = support_failure(t, o);
    EXPECT_NE(got.find(std::string("BF16 forbids scale control ") + class_order[i].name), std::string::npos)
        << got;
  }
  const Control call_order[] = {
      {"sfa_tensor", class_order[0].set},
      {"sfb_tensor", class_order[1].set},
      {"sfb_ptrs", [](auto& t, auto&) { t.sfb_ptrs = Tensor(nullptr, DType::int64, {3}); }},
      {"norm_const_tensor", class_order[6].set},
  };
  for (std::size_t i = 0; i < std::size(call_order); ++i) {
    DgluTensors t = inputs_of(c.tensors());
    DgluOptions o = c.opts();
    for (std::size_t j = i; j < std::size(call_order); ++j) call_order[j].set(t, o);
    for (std::size_t j = 7; j < count; ++j) class_order[j].set(t, o);
    const std::string got = failure([&] { describe_outputs(t, o, c.call()); });
    EXPECT_NE(got.find(std::string("BF16 forbids scale control ") + call_order[i].name), std::string::npos)
        << got;
  }
  DgluOptions neutral = c.opts();  // not scale controls
  neutral.situ_beta1 = 1.0f;
  neutral.linear_offset = 0.5f;
  neutral.geglu_filter = GegluFilter::mask;
  EXPECT_EQ(support_failure(c.tensors(), neutral), "");
}

TEST(DgluConfigurations, SingleGroupRuntimeOffsets) {
  DgluCase c;
  c.a = fp4;
  c.groups = {512};
  c.options.use_single_group_runtime_offsets = true;
  EXPECT_EQ(support_failure(c), "");
  c.discrete = true;
  EXPECT_EQ(support_failure(c), "");
  c.groups = {256, 256};
  EXPECT_NE(support_failure(c).find("exactly one expert"), std::string::npos);
  c.groups = {512};
  c.tail = 32;  // the expert's end is A's row count
  EXPECT_NE(support_failure(c).find("sample_a: M = 544, expected a multiple of m_aligned = 256"),
            std::string::npos);
  DgluCase b;
  b.a = bf16;
  b.groups = {256};
  b.options.use_single_group_runtime_offsets = true;
  EXPECT_EQ(failure([&] { GroupedGemmDglu(b.tensors(), b.opts()); }), "");  // the constructor only records
  EXPECT_NE(support_failure(b).find("supported only by the block-scaled kernel"), std::string::npos);
  EXPECT_NE(call_failure(b).find("supported only by the block-scaled kernel"), std::string::npos);
}

TEST(DgluConfigurations, WeightLayouts) {
  for (const DType a : {bf16, fp4, u8, e4m3, e5m2}) {
    DgluCase c;
    c.a = a;
    c.d = is_one_of(a, {e4m3, e5m2}) ? e4m3 : bf16;
    c.scales = c.d == e4m3;
    DgluTensors t = c.tensors();
    t.b.strides = {1, c.n, c.n * t.b.shape[1]};
    EXPECT_EQ(support_failure(t, c.opts()).empty(), is_one_of(a, {e4m3, e5m2})) << name(a);  // dense
    c.discrete = true;
    c.options.b_major = Major::n;
    EXPECT_EQ(support_failure(c).empty(), is_one_of(a, {bf16, e4m3, e5m2})) << name(a);
  }
}

TEST(DgluConfigurations, RowsOfA) {
  for (const int aligned : {128, 256})
    for (const std::int64_t tail : {0, 32, 128, 256}) {
      DgluCase c;
      c.a = bf16;
      c.options.m_aligned = aligned;
      c.tail = tail;
      EXPECT_EQ(support_failure(c).empty(), tail % aligned == 0) << aligned << " " << tail;
      c.a = fp4;  // block-scaled: the tail is never touched
      EXPECT_EQ(support_failure(c), "");
    }
}

TEST(DgluConfigurations, ActivationConstants) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  DgluCase c;
  c.a = fp4;
  const auto refused = [&](const std::function<void(DgluOptions&)>& set) {
    DgluOptions o = c.opts();
    set(o);
    return support_failure(c.tensors(), o);
  };
  for (const float beta : {0.0f, -4.0f, nan, inf}) {
    EXPECT_NE(
        refused([&](auto& o) { o.act_func = ActFunc::dsituglu, o.situ_beta1 = beta; }).find("situ_beta1: "),
        std::string::npos);
    EXPECT_NE(
        refused([&](auto& o) { o.act_func = ActFunc::dsituglu, o.situ_beta2 = beta; }).find("situ_beta2: "),
        std::string::npos);
    EXPECT_EQ(refused([&](auto& o) { o.situ_beta1 = beta; }), "");  // dswiglu does not use it
  }
  EXPECT_NE(
      refused([&](auto& o) { o.act_func = ActFunc::dgeglu, o.geglu_alpha = nan; }).find("geglu_alpha: "),
      std::string::npos);
  EXPECT_NE(
      refused([&](auto& o) { o.act_func = ActFunc::dgeglu, o.linear_offset = inf; }).find("linear_offset: "),
      std::string::npos);
  EXPECT_NE(
      refused([&](auto& o) { o.act_func = ActFunc::dgeglu, o.glu_clamp_max = nan; }).find("glu_clamp_max"),
      std::string::npos);
  EXPECT_NE(refused([&](auto& o) { o.act_func = ActFunc::dgeglu, o.glu_clamp_max = -8; }).find("min <= max"),
            std::string::npos);
  EXPECT_EQ(
      refused([&](auto& o) { o.act_func = ActFunc::dgeglu, o.glu_clamp_max = 1e6f, o.geglu_alpha = 2; }), "");
  EXPECT_NE(refused([&](auto& o) { o.act_func = static_cast<ActFunc>(9); }).find("act_func: 9"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& o) { o.epilogue_op = static_cast<EpilogueOp>(9); }).find("epilogue_op: 9"),
            std::string::npos);
  EXPECT_NE(refused([&](auto& o) { o.geglu_filter = static_cast<GegluFilter>(9); }).find("geglu_filter: 9"),
            std::string::npos);
}

TEST(DgluConfigurations, Requirements) {
  DgluCase block;
  block.a = fp4;
  DgluCase c;
  c.a = bf16;
  c.prob = false;
  EXPECT_NE(support_failure(c).find("sample_prob: None"), std::string::npos);
  EXPECT_NE(call_failure(c).find("prob_tensor: None"), std::string::npos);
  c.prob = true;
  c.dprob = false;
  EXPECT_NE(support_failure(c).find("sample_dprob: None"), std::string::npos);
  block.n = 48;
  EXPECT_NE(support_failure(block).find("sample_b: N = 48, expected a multiple of 32"), std::string::npos);
  block.n = 96;
  EXPECT_EQ(support_failure(block), "");
  for (const int experts : {0, 1, 1024, 1025}) {
    block.groups.assign(static_cast<std::size_t>(experts), 0);
    EXPECT_EQ(support_failure(block).empty(), experts == 1 || experts == 1024) << experts;
  }
  DgluCall call = block.call();
  block.groups = {256};
  call.cd_major = 'm';
  EXPECT_NE(failure([&] {
              describe_outputs(inputs_of(block.tensors()), block.opts(), call);
            }).find("cd_major: m, expected n"),
            std::string::npos);
  DgluOptions acc = block.opts();
  acc.acc_dtype = f16;
  EXPECT_NE(support_failure(block.tensors(), acc).find("acc_dtype: float16, expected float32"),
            std::string::npos);
  acc = block.opts();
  acc.sm_limit = -1;
  EXPECT_NE(support_failure(block.tensors(), acc).find("sm_limit: -1"), std::string::npos);
  acc = block.opts();
  acc.b_dtype = fp4;
  EXPECT_NE(support_failure(block.tensors(), acc).find("dense mode forbids"), std::string::npos);
}

}  // namespace
}  // namespace gemmule::operators_test
