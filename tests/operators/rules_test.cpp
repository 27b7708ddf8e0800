// One fault at a time in an otherwise legal call: every argument, at construction, in execute() and in the one-call form.
// The message must begin with the argument's documented name, and nothing may have been written.
#include <gtest/gtest.h>

#include <random>

#include "operators/descriptors.hpp"

namespace gemmule::operators_test {
namespace {

SreluCase quantized_srelu() {
  SreluCase c;
  c.k = 256;
  c.d = e4m3;
  c.scales = true;
  c.bias = bf16;
  return c;
}

DgluCase quantized_dglu() {
  DgluCase c;
  c.k = 256;
  c.d = e4m3;
  c.scales = true;
  c.dbias = true;
  return c;
}

struct Fault {
  const char* what;
  /// False if it does not apply to the tensor.
  std::function<bool(Tensor&)> apply;
};

const std::vector<Fault> layout_faults = {
    {"another rank", [](Tensor& t) { return --t.rank, true; }},
    {"one more extent",
     [](Tensor& t) {
       return t.rank < Tensor::max_rank && (t.shape[static_cast<std::size_t>(t.rank++)] = 2);
     }},
    {"a hostile rank", [](Tensor& t) { return t.rank = 1 << 30, true; }},
    {"a negative rank", [](Tensor& t) { return t.rank = -7, true; }},
    {"a longer last extent", [](Tensor& t) { return ++t.shape[static_cast<std::size_t>(t.rank - 1)], true; }},
    {"a negative extent", [](Tensor& t) { return t.shape[static_cast<std::size_t>(t.rank - 1)] = -1, true; }},
    {"a huge extent", [](Tensor& t) { return t.shape[0] = std::int64_t{1} << 62, true; }},
};

/// Strides are compared where the extent is above 1; norm_const has none.
std::vector<std::size_t> stride_positions(const Tensor& t) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i)
    if (t.shape[i] > 1) out.push_back(i);
  return out;
}

template <class Case>
void expect_support_failure(const Case& c, const std::string& name, const char* what,
                            const std::function<bool(Tensor&)>& apply) {
  auto t = samples_of(c.tensors());
  for (const Named& x : named(t)) {
    if (x.name != name || !*x.tensor || !apply(*x.tensor)) continue;
    const std::string got = support_failure(t, c.opts());
    EXPECT_EQ(got.rfind("InvalidArgument: ", 0), 0u) << name << " with " << what << ": " << got;
    EXPECT_NE(got.find(sample_name(name)), std::string::npos) << what << ": " << got;
  }
}

template <class Case>
void expect_every_sample_fault_is_named(const Case& c) {
  auto legal = samples_of(c.tensors());
  ASSERT_EQ(support_failure(legal, c.opts()), "");
  for (const Named& x : named(legal)) {
    if (!*x.tensor) continue;
    for (const Fault& fault : layout_faults) {
      // M, N, K and L come from these: the tensor that disagrees is named instead.
      const bool defines = x.name == "a" || x.name == "b" || x.name == "padded_offsets";
      if (defines && std::string(fault.what).find("extent") != std::string::npos) continue;
      expect_support_failure(c, x.name, fault.what, fault.apply);
    }
    for (const std::size_t i : stride_positions(*x.tensor))
      for (const std::int64_t step : {1, -1, 64}) {
        if (x.name == "prob" && legal.padded_offsets.shape[0] > 0 && step > 0 && i == 0 &&
            std::is_same_v<Case, SreluCase>)
          continue;  // its stride is honoured
        if (x.name == "prob" && step == -1 && std::is_same_v<Case, SreluCase>)
          continue;  // 0: one value for all rows
        expect_support_failure(c, x.name, "another stride",
                               [&](Tensor& t) { return t.strides[i] += step, true; });
      }
    expect_support_failure(c, x.name, "another dtype",
                           [](Tensor& t) { return t.dtype = DType::int64, true; });
    expect_support_failure(c, x.name, "another device", [](Tensor& t) {
      return t.device = {DeviceType::cuda, 0}, true;
    });
    expect_support_failure(c, x.name, "a misaligned address", [](Tensor& t) {
      return t.data = reinterpret_cast<void*>(std::uintptr_t{0x1008}), true;
    });
  }
}

TEST(Rules, EveryFaultOfASampleIsNamed) {
  for (const bool discrete : {false, true}) {
    SreluCase s = quantized_srelu();
    s.discrete = discrete;
    expect_every_sample_fault_is_named(s);
    DgluCase d = quantized_dglu();
    d.discrete = discrete;
    expect_every_sample_fault_is_named(d);
    DgluCase b;
    b.a = bf16;
    b.dbias = true;
    b.discrete = discrete;
    expect_every_sample_fault_is_named(b);
  }
}

/// Executes with one fault; the outputs must keep their bytes.
template <class Op, class Case>
void expect_every_live_fault_is_named(const Case& c) {
  HostMemory memory;
  auto legal = c.tensors();
  place(legal, c, memory);
  Op op(samples_of(legal), c.opts());
  op.compile();
  const std::size_t bytes = op.workspace_size(c.rows());
  void* workspace = memory.allocate(bytes);
  const auto run = [&](const auto& t) { return failure([&] { op.execute(t, workspace, bytes); }); };

  const auto expect = [&](const std::string& name, const char* what,
                          const std::function<bool(Tensor&)>& apply) {
    auto t = legal;
    for (const Named& x : named(t)) {
      if (x.name != name || !apply(*x.tensor)) continue;
      const std::string got = run(t);
      EXPECT_EQ(got.rfind("InvalidArgument: ", 0), 0u) << name << " with " << what << ": " << got;
      EXPECT_NE(got.find(call_name(name)), std::string::npos) << what << ": " << got;
    }
  };
  for (const Named& x : named(legal)) {
    if (!*x.tensor) continue;
    for (const Fault& fault : layout_faults)
      if (x.name != "a" || std::string(fault.what).find("extent") == std::string::npos)
        expect(x.name, fault.what, fault.apply);
    for (const std::size_t i : stride_positions(*x.tensor))
      if (x.name != "prob" || std::is_same_v<Case, DgluCase>)
        expect(x.name, "another stride", [&](Tensor& t) { return t.strides[i] += 1, true; });
    expect(x.name, "another dtype", [](Tensor& t) { return t.dtype = t.dtype == bf16 ? f16 : bf16, true; });
    expect(x.name, "another device", [](Tensor& t) { return t.device = {DeviceType::cuda, 0}, true; });
    expect(x.name, "null data", [](Tensor& t) { return t.data = nullptr, true; });
    expect(x.name, "a misaligned address",
           [](Tensor& t) { return t.data = static_cast<char*>(t.data) + 4, true; });
    expect(x.name, "no tensor", [](Tensor& t) { return t = Tensor{}, true; });
  }
  auto everything = legal;
  for (const Named& x : named(everything)) {
    if (*x.tensor) continue;
    auto t = legal;
    for (const Named& y : named(t))
      if (y.name == x.name) *y.tensor = Tensor(memory.allocate(256), f32, {1});
    const std::string got = run(t);
    EXPECT_NE(got.find(call_name(x.name) + ": given"), std::string::npos) << x.name << ": " << got;
  }
  for (const Named& x : named(legal)) {
    const bool output =
        x.name == "d" || x.name == "d_row" || x.name == "d_col" || x.name == "sfd_row" || x.name == "sfd_col";
    if (!output || !*x.tensor) continue;
    const auto* p = static_cast<const unsigned char*>(x.tensor->data);
    for (std::size_t i = 0; i < x.tensor->bytes(); ++i) ASSERT_EQ(p[i], 0x5A) << x.name << " was written";
  }
  EXPECT_EQ(run(legal), "");  // the object still works
}

TEST(Rules, EveryFaultOfALiveTensorIsNamedAndNothingIsWritten) {
  for (const bool discrete : {false, true}) {
    SreluCase s = quantized_srelu();
    s.groups = {128, 0};
    s.options.m_aligned = 128;
    s.discrete = discrete;
    expect_every_live_fault_is_named<GroupedGemmSrelu>(s);
    DgluCase d = quantized_dglu();
    d.groups = {128, 0};
    d.options.m_aligned = 128;
    d.discrete = discrete;
    expect_every_live_fault_is_named<GroupedGemmDglu>(d);
    DgluCase b;
    b.a = bf16;
    b.groups = {256, 0};
    b.discrete = discrete;
    expect_every_live_fault_is_named<GroupedGemmDglu>(b);
  }
}

TEST(Rules, Bf16ExecuteForbidsScaleControls) {
  DgluCase c;
  c.a = bf16;
  c.groups = {256};
  HostMemory memory;
  DgluTensors t = c.tensors();
  place(t, c, memory);
  GroupedGemmDglu op(t, c.opts());
  op.compile();
  const Tensor extra(memory.allocate(256), f32, {1});
  for (const auto& [name, member] : std::vector<std::pair<std::string, Tensor DgluTensors::*>>{
           {"sfa_tensor", &DgluTensors::sfa},
           {"sfb_tensor", &DgluTensors::sfb},
           {"sfb_ptrs", &DgluTensors::sfb_ptrs},
           {"d_col_tensor", &DgluTensors::d_col},
           {"sfd_row_tensor", &DgluTensors::sfd_row},
           {"sfd_col_tensor", &DgluTensors::sfd_col},
           {"amax_tensor", &DgluTensors::amax},
           {"norm_const_tensor", &DgluTensors::norm_const}}) {
    DgluTensors live = t;
    live.*member = extra;
    const std::string got = failure([&] { op.execute(live, nullptr, 0); });
    EXPECT_NE(got.find("BF16 forbids scale control " + name), std::string::npos) << got;
  }
}

TEST(Rules, PointerArrays) {
  SreluCase c;
  c.discrete = true;
  const auto describe = [&](const std::function<void(SreluTensors&)>& change) {
    SreluTensors t = inputs_of(c.tensors());
    change(t);
    return failure([&] { describe_outputs(t, c.opts(), c.call()); });
  };
  EXPECT_EQ(describe([](auto&) {}), "");
  EXPECT_NE(describe([](auto& t) { t.b_ptrs.dtype = DType::int32; }).find("b_ptrs must be int64"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) { t.sfb_ptrs.shape[0] = 2; }).find("sfb_ptrs length mismatch"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) { t.b_ptrs.shape[0] = 4; }).find("b_ptrs length mismatch"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) { t.b_ptrs.rank = 2, t.b_ptrs.shape[1] = 1; }).find("b_ptrs: shape (3, 1)"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) { t.b_ptrs.strides[0] = 2; }).find("b_ptrs: stride 2, expected 1"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) {
              t.b_ptrs.device = {DeviceType::cuda, 1};
            }).find("b_ptrs: device cuda:1, expected cpu"),
            std::string::npos);
  EXPECT_NE(describe([](auto& t) { t.sfb_ptrs = Tensor{}; }).find("sfb_ptrs: None"), std::string::npos);
  SreluOptions o = c.opts();
  o.b_shape = {c.n, 0};  // K as in A
  EXPECT_EQ(failure([&] { describe_outputs(inputs_of(c.tensors()), o, c.call()); }), "");
  o = c.opts();
  o.b_dtype = none;
  EXPECT_NE(failure([&] { describe_outputs(inputs_of(c.tensors()), o, c.call()); }).find("b_dtype: None"),
            std::string::npos);
}

TEST(Rules, ScaleFactorsComeTheWayTheWeightsDo) {
  SreluCase c;
  SreluTensors dense = c.tensors();
  c.discrete = true;
  SreluTensors discrete = c.tensors();
  // The struct that is executed may also be the sample: its pointer arrays are checked then.
  EXPECT_EQ(support_failure(discrete, c.opts()), "");
  SreluTensors t = discrete;
  t.sfb_ptrs.dtype = DType::int32;
  EXPECT_NE(support_failure(t, c.opts()).find("sfb_ptrs must be int64"), std::string::npos);
  t = discrete;
  t.sfb = dense.sfb;
  EXPECT_NE(support_failure(t, c.opts()).find("sample_sfb: given, expected None with discrete weights"),
            std::string::npos);
  c.discrete = false;
  t = dense;
  t.sfb_ptrs = discrete.sfb_ptrs;
  EXPECT_NE(support_failure(t, c.opts()).find("sfb_ptrs: given, expected None with dense weights"),
            std::string::npos);
  t = dense;
  t.sfb = Tensor{};
  EXPECT_NE(support_failure(t, c.opts()).find("sample_sfb: None"), std::string::npos);
  t = dense;
  t.b_ptrs = discrete.b_ptrs;
  EXPECT_NE(support_failure(t, c.opts()).find("sample_b, num_experts: both given"), std::string::npos);
}

TEST(Rules, PointersAreCheckedByValue) {
  SreluCase c;
  c.discrete = true;
  c.groups = {256, 0};
  HostMemory memory;
  SreluTensors t = c.tensors();
  place(t, c, memory);
  GroupedGemmSrelu op(samples_of(t), c.opts());
  op.compile();
  const std::size_t bytes = op.workspace_size(c.rows());
  void* workspace = memory.allocate(bytes);
  const auto run = [&] { return failure([&] { op.execute(t, workspace, bytes); }); };
  EXPECT_EQ(run(), "");
  auto* pointers = static_cast<std::int64_t*>(t.sfb_ptrs.data);
  const std::int64_t good = pointers[1];
  pointers[1] = 0;
  EXPECT_NE(run().find("sfb_ptrs: 0 for expert 1"), std::string::npos);
  pointers[1] = good + 8;
  EXPECT_NE(run().find("for expert 1, expected an address that is a multiple of 16"), std::string::npos);
}

TEST(Rules, OffsetsAreCheckedByValue) {
  struct Expectation {
    std::vector<std::int32_t> ends;
    std::int64_t rows;
    int aligned;
    const char* rule;  ///< empty: legal
  };
  const Expectation table[] = {
      {{256, 512, 768}, 768, 256, ""},
      {{256, 256, 512}, 768, 256, ""},
      {{0, 0, 0}, 768, 256, ""},
      {{0, 0, 0}, 0, 256, ""},
      {{256, 520, 1032}, 1280, 256, "padded_offsets: 520 for expert 1, expected a multiple of 256"},
      {{64, 320, 576}, 768, 256, "padded_offsets: 64 for expert 0, expected a multiple of 256"},
      {{128, 384, 512}, 512, 256, "padded_offsets: 128 for expert 0, expected a multiple of 256"},
      {{128, 384, 512}, 512, 128, ""},
      {{-1, 256, 512}, 768, 256, "padded_offsets: -1 for expert 0, expected at least 0"},
      {{256, -1, 512},
       768,
       256,
       "padded_offsets: -1 for expert 1, expected at least 256, where its rows begin"},
      {{512, 256, 768}, 768, 256, "padded_offsets: 256 for expert 1, expected at least 512"},
      {{256, 512, 1024}, 768, 256, "padded_offsets: 1024 for expert 2, expected at most 768, the rows of"},
  };
  for (const Expectation& e : table) {
    SreluCase s;
    s.groups = {0, 0, 0};
    s.tail = e.rows;
    s.options.m_aligned = e.aligned;
    DgluCase d;
    d.a = bf16;
    d.groups = s.groups;
    d.tail = e.rows;
    d.options.m_aligned = e.aligned;
    HostMemory memory;
    SreluTensors st = s.tensors();
    DgluTensors dt = d.tensors();
    place(st, s, memory);
    place(dt, d, memory);
    GroupedGemmSrelu sop(st, s.opts());
    GroupedGemmDglu dop(dt, d.opts());
    sop.compile();
    dop.compile();
    const std::size_t bytes = std::max(sop.workspace_size(e.rows), dop.workspace_size(e.rows));
    void* workspace = memory.allocate(bytes);
    std::copy(e.ends.begin(), e.ends.end(), static_cast<std::int32_t*>(st.padded_offsets.data));
    std::copy(e.ends.begin(), e.ends.end(), static_cast<std::int32_t*>(dt.padded_offsets.data));
    for (const std::string& got : {failure([&] { sop.execute(st, workspace, bytes); }),
                                   failure([&] { dop.execute(dt, workspace, bytes); }),
                                   support_failure(st, s.opts()), support_failure(dt, d.opts())}) {
      EXPECT_EQ(got.empty(), *e.rule == 0) << got;
      EXPECT_NE(got.find(e.rule), std::string::npos) << got << " instead of " << e.rule;
    }
  }
}

TEST(Rules, NormConstIsCheckedByValue) {
  SreluCase c = quantized_srelu();
  HostMemory memory;
  SreluTensors t = c.tensors();
  place(t, c, memory);
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    *static_cast<float*>(t.norm_const.data) = bad;
    const std::string got = support_failure(t, c.opts());
    EXPECT_NE(got.find("sample_norm_const: "), std::string::npos) << got;
    EXPECT_NE(got.find("expected a finite value > 0"), std::string::npos) << got;
  }
  *static_cast<float*>(t.norm_const.data) = 0.01f;
  EXPECT_EQ(support_failure(t, c.opts()), "");
  t.norm_const = Tensor(t.norm_const.data, f32, {1, 1, 1}, {5, 7, 9});  // further extents of 1 do not matter
  EXPECT_EQ(support_failure(t, c.opts()), "");
  t.norm_const = Tensor(t.norm_const.data, f32, {2});
  EXPECT_NE(support_failure(t, c.opts()).find("sample_norm_const: shape (2,), expected shape (1,)"),
            std::string::npos);
}

TEST(Rules, OutputsShareNoMemory) {
  SreluCase c;
  c.groups = {256};
  HostMemory memory;
  SreluTensors t = c.tensors();
  t.d_col = t.d;
  place(t, c, memory);
  GroupedGemmSrelu op(t, c.opts());
  op.compile();
  const std::size_t bytes = op.workspace_size(256);
  void* workspace = memory.allocate(bytes);
  const auto run = [&] { return failure([&] { op.execute(t, workspace, bytes); }); };
  EXPECT_EQ(run(), "");
  void* c_data = t.c.data;
  t.c.data = t.d.data;
  EXPECT_NE(run().find("c_tensor: address"), std::string::npos);
  t.c.data = static_cast<char*>(t.d.data) + 16;  // in part
  EXPECT_NE(run().find("expected memory that d_tensor does not use"), std::string::npos) << run();
  t.c.data = c_data;
  t.d_col.data = t.d.data;  // both get the same values
  EXPECT_EQ(run(), "");
}

TEST(Rules, PackedFp4AsUint8) {
  // K is the visible extent or twice that, whichever the scale factors have.
  const auto samples = [](std::int64_t k, std::int64_t visible, int vec) {
    SreluCase c;
    c.a = u8;
    c.k = k;
    c.vec = vec;
    SreluTensors t = c.tensors();
    const std::int64_t m = c.rows();
    t.a = Tensor(nullptr, u8, {m, visible, 1}, {visible, 1, m * visible});
    t.b = Tensor(nullptr, u8, {c.n, visible, 3}, {visible, 1, c.n * visible});
    return std::pair(t, c.opts());
  };
  for (const int vec : {16, 32})
    for (const std::int64_t k : {512, 1024, 576}) {
      for (const std::int64_t visible : {k, k / 2}) {
        const auto [t, o] = samples(k, visible, vec);
        EXPECT_EQ(support_failure(t, o), "") << k << " " << visible;
      }
      const auto [t, o] = samples(k, 2 * k, vec);
      EXPECT_NE(support_failure(t, o).find("sample_sfa: shape"), std::string::npos);
    }
  // Both agree with one atom of scale factors: the visible extent is K.
  const auto [ambiguous, o] = samples(64, 32, 32);
  EXPECT_EQ(support_failure(ambiguous, o), "");
  // b_shape decides in discrete mode.
  for (const std::int64_t visible : {64, 32})
    for (const std::int64_t k : {32, 64, 128}) {
      SreluCase c;
      c.a = u8;
      c.k = k;
      c.discrete = true;
      SreluTensors t = samples_of(c.tensors());
      const std::int64_t m = c.rows();
      t.a = Tensor(nullptr, u8, {m, visible, 1}, {visible, 1, m * visible});
      EXPECT_EQ(support_failure(t, c.opts()).empty(), k == visible || k == 2 * visible)
          << visible << " " << k;
    }
}

/// Whatever the arguments are, the answer is a success or one of the library's own exceptions.
template <class Case>
void expect_an_answer_to_garbage(const Case& base, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  const std::array<std::int64_t, 12> extents = {-1,
                                                0,
                                                1,
                                                2,
                                                16,
                                                31,
                                                128,
                                                256,
                                                1025,
                                                (std::int64_t{1} << 31) - 1,
                                                std::int64_t{1} << 40,
                                                std::numeric_limits<std::int64_t>::max()};
  const auto extent = [&] { return extents[static_cast<std::size_t>(below(extents.size()))]; };
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    auto t = base.tensors();
    auto o = base.opts();
    auto all = named(t);
    for (std::int64_t mutations = below(4); mutations >= 0; --mutations) {
      Tensor& x = *all[static_cast<std::size_t>(below(all.size()))].tensor;
      switch (below(9)) {
        case 0:
          x.rank = static_cast<int>(below(10)) - 1;
          break;
        case 1:
          x.shape[static_cast<std::size_t>(below(6))] = extent();
          break;
        case 2:
          x.strides[static_cast<std::size_t>(below(6))] = extent();
          break;
        case 3:
          x.dtype = static_cast<DType>(below(14));
          break;
        case 4:
          x = *all[static_cast<std::size_t>(below(all.size()))].tensor;
          break;
        case 5:
          x = Tensor{};
          break;
        case 6:
          o.sf_vec_size = static_cast<int>(extent());
          break;
        case 7:
          o.b_shape = {extent(), extent()};
          break;
        default:
          o.cluster_shape_mn = ClusterShape{static_cast<int>(extent()), static_cast<int>(extent())};
          break;
      }
    }
    const std::string got = support_failure(t, o);
    (got.empty() ? accepted : refused)++;
    failure([&] { describe_outputs(inputs_of(t), o, base.call()); });
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 5000);
}

TEST(Rules, GarbageIsAnswered) {
  for (const bool discrete : {false, true}) {
    SreluCase s = quantized_srelu();
    s.discrete = discrete;
    expect_an_answer_to_garbage(s, 1);
    s.a = u8;
    s.d = bf16;
    s.scales = false;
    expect_an_answer_to_garbage(s, 2);
    DgluCase d = quantized_dglu();
    d.discrete = discrete;
    expect_an_answer_to_garbage(d, 3);
    DgluCase b;
    b.a = bf16;
    b.discrete = discrete;
    expect_an_answer_to_garbage(b, 4);
  }
}

TEST(Rules, HugeExtentsAreRefusedWithoutOverflow) {
  for (const std::int64_t m :
       {std::int64_t{1} << 31, (std::int64_t{1} << 31) - 256, std::numeric_limits<std::int64_t>::max()})
    for (const std::int64_t n : {std::int64_t{1} << 30, (std::int64_t{1} << 31) - 32}) {
      SreluCase c;
      SreluTensors t = c.tensors();
      t.a.shape[0] = m;
      t.b.shape[0] = n;
      EXPECT_EQ(support_failure(t, c.opts()).rfind("InvalidArgument: ", 0), 0u);
      EXPECT_EQ(
          failure([&] { describe_outputs(inputs_of(t), c.opts(), c.call()); }).rfind("InvalidArgument: ", 0),
          0u);
      DgluCase d;
      d.a = bf16;
      DgluTensors u = d.tensors();
      u.a.shape[0] = m;
      u.b.shape[0] = n;
      EXPECT_EQ(support_failure(u, d.opts()).rfind("InvalidArgument: ", 0), 0u);
    }
}

}  // namespace
}  // namespace gemmule::operators_test
