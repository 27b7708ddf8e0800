// Objects from construction to execution, the one-call form's memory and cache, options and the environment.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>

#include "operators/checks.hpp"
#include "operators/descriptors.hpp"
#include "operators/plan.hpp"

namespace gemmule::operators_test {
namespace {

/// Counts, and fails at the nth allocation.
class CountingAllocator : public Allocator {
 public:
  explicit CountingAllocator(int fail_at = -1) : fail_at_(fail_at) {}
  void* allocate(std::size_t bytes, Device, Stream) override {
    if (count++ == fail_at_) throw std::bad_alloc();
    void* p = std::aligned_alloc(256, (bytes / 256 + 1) * 256);
    std::memset(p, 0x5A, (bytes / 256 + 1) * 256);
    live.insert(p);
    return p;
  }
  void deallocate(void* data, std::size_t, Device, Stream) noexcept override {
    EXPECT_EQ(live.erase(data), 1u);
    std::free(data);
  }
  ~CountingAllocator() override {
    for (void* p : live) std::free(p);
  }

  int count = 0;
  std::set<void*> live;

 private:
  int fail_at_;
};

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

SreluCase small_srelu() {
  SreluCase c;
  c.groups = {128, 0, 256};
  c.options.m_aligned = 128;
  c.n = c.k = 32;
  return c;
}

DgluCase small_dglu() {
  DgluCase c;
  c.groups = {256, 0};
  c.n = c.k = 32;
  c.d = e4m3;
  c.scales = c.dbias = true;
  return c;
}

template <class Op, class Case>
void expect_life_cycle(const Case& c) {
  HostMemory memory;
  auto t = c.tensors();
  place(t, c, memory);
  Op op(samples_of(t), c.opts());
  EXPECT_FALSE(op.compiled());
  EXPECT_EQ(failure([&] { op.execute(t, nullptr, 0); }).rfind("RuntimeFailure: ", 0), 0u);
  EXPECT_EQ(failure([&] { op.workspace_size(256); }).rfind("RuntimeFailure: ", 0), 0u);
  op.compile();  // checks by itself
  EXPECT_TRUE(op.compiled());
  op.compile();
  op.check_support();
  EXPECT_TRUE(op.compiled());
  EXPECT_EQ(failure([&] { op.workspace_size(-1); }), "InvalidArgument: rows: -1, expected at least 0");

  // M of later calls may differ, and the object may be moved.
  Op moved(std::move(op));
  for (const std::int32_t more : {0, 256, 1024}) {
    Case other = c;
    other.groups[1] += more;
    HostMemory own;
    auto live = other.tensors();
    place(live, other, own);
    const std::size_t bytes = moved.workspace_size(other.rows());
    char* workspace = static_cast<char*>(own.allocate(bytes + 512));
    EXPECT_EQ(failure([&] { moved.execute(live, workspace, bytes); }), "");
    EXPECT_NE(failure([&] { moved.execute(live, workspace + 16, bytes); }).find("workspace: "),
              std::string::npos);
    if (bytes == 0) continue;
    EXPECT_NE(failure([&] { moved.execute(live, workspace, bytes - 1); }).find("workspace_bytes: "),
              std::string::npos);
    EXPECT_NE(failure([&] { moved.execute(live, nullptr, bytes); }).find("workspace: null"),
              std::string::npos);
  }

  Case illegal = c;
  illegal.options.m_aligned = 7;
  Op refused(samples_of(t), illegal.opts());
  EXPECT_NE(failure([&] { refused.compile(); }).find("m_aligned: 7"), std::string::npos);
  EXPECT_FALSE(refused.compiled());
}

TEST(LifeCycle, Srelu) {
  expect_life_cycle<GroupedGemmSrelu>(small_srelu());
}
TEST(LifeCycle, Dglu) {
  expect_life_cycle<GroupedGemmDglu>(small_dglu());
}

TEST(LifeCycle, DbiasIsFixedAtConstruction) {
  for (const bool compiled_with : {false, true}) {
    DgluCase c = small_dglu();
    c.dbias = compiled_with;
    HostMemory memory;
    DgluTensors t = c.tensors();
    GroupedGemmDglu op(t, c.opts());
    op.compile();
    c.dbias = !compiled_with;
    DgluTensors live = c.tensors();
    place(live, c, memory);
    const std::string got = failure([&] { op.execute(live, nullptr, 0); });
    EXPECT_EQ(got.rfind(compiled_with ? "InvalidArgument: dbias_tensor: None"
                                      : "InvalidArgument: dbias_tensor: given",
                        0),
              0u)
        << got;
  }
}

TEST(LifeCycle, OneObjectServesManyThreads) {
  const SreluCase c = small_srelu();
  HostMemory memory;
  SreluTensors samples = c.tensors();
  GroupedGemmSrelu op(samples, c.opts());
  op.compile();
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      HostMemory own;
      SreluTensors t = c.tensors();
      place(t, c, own);
      for (int j = 0; j < 5; ++j) {
        const std::size_t bytes = op.workspace_size(c.rows());
        void* workspace = own.allocate(bytes);
        failures += !failure([&] { op.execute(t, workspace, bytes); }).empty();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, 0);
}

template <class Case, class Call>
void expect_clean_allocations(const Case& c, Call call) {
  HostMemory memory;
  auto t = c.tensors();
  place(t, c, memory);
  int allocations = 0;
  {
    CountingAllocator allocator;
    EXPECT_EQ(call(inputs_of(t), allocator), "");
    allocations = allocator.count;
    EXPECT_GE(allocations, 2);
    const int outputs = static_cast<int>(allocator.live.size());
    EXPECT_LE(allocations - outputs,
              1);  // the workspace has been given back, the outputs belong to the caller
  }
  for (int i = 0; i < allocations; ++i) {
    CountingAllocator allocator(i);
    EXPECT_THROW(call(inputs_of(t), allocator), std::bad_alloc);
    EXPECT_TRUE(allocator.live.empty());
  }
  // A call that is refused has allocated nothing.
  static_cast<std::int32_t*>(t.padded_offsets.data)[0] = 5;
  CountingAllocator allocator;
  EXPECT_NE(call(inputs_of(t), allocator).find("padded_offsets: 5 for expert 0"), std::string::npos);
  t.padded_offsets.data = nullptr;
  EXPECT_NE(call(inputs_of(t), allocator).find("padded_offsets: null data"), std::string::npos);
  EXPECT_EQ(allocator.count, 0);
}

TEST(OneCall, MemoryIsGivenBack) {
  const SreluCase s = small_srelu();
  expect_clean_allocations(s, [&](const SreluTensors& t, Allocator& allocator) {
    return failure([&] { grouped_gemm_srelu(t, s.opts(), s.call(), allocator); });
  });
  const DgluCase d = small_dglu();
  expect_clean_allocations(d, [&](const DgluTensors& t, Allocator& allocator) {
    return failure([&] { grouped_gemm_dglu(t, d.opts(), d.call(), allocator); });
  });
}

/// After a good call, one that differs in a single respect gets the answer that a thread without earlier calls gives.
template <class Case, class Call>
void expect_no_stale_answers(const Case& c, Call call) {
  HostMemory memory;
  auto tensors = c.tensors();
  place(tensors, c, memory);
  const auto good = inputs_of(tensors);
  const auto options = c.opts();
  int refused = 0, accepted = 0;
  const auto compare = [&](const auto& t, const auto& o) {
    ASSERT_EQ(call(good, options), "");
    const std::string here = call(t, o);
    std::string fresh;
    std::thread([&] { fresh = call(t, o); }).join();
    EXPECT_EQ(here, fresh);
    ++(here.empty() ? accepted : refused);
  };
  auto changed = good;
  for (const Named& x : named(changed)) {
    if (!x.tensor->present()) continue;
    const Tensor before = *x.tensor;
    const auto with = [&](auto change) {
      change(*x.tensor);
      compare(changed, options);
      *x.tensor = before;
    };
    with([](Tensor& t) { t = Tensor{}; });
    with([](Tensor& t) { t.dtype = DType::int64; });
    with([](Tensor& t) { t.rank += t.rank < Tensor::max_rank ? 1 : -1; });
    with([](Tensor& t) { t.device = {DeviceType::cuda, 7}; });
    with([](Tensor& t) { t.data = nullptr; });
    with([](Tensor& t) { t.data = static_cast<char*>(t.data) + 2; });
    for (std::size_t i = 0; i < static_cast<std::size_t>(before.rank); ++i) {
      with([&](Tensor& t) { t.shape[i] += 256; });
      // prob may be strided; there is no memory for more than its rows.
      if (std::string(x.name) != "prob" || i > 0) with([&](Tensor& t) { t.strides[i] += 1; });
    }
  }
  const auto option = [&](auto change) {
    auto o = options;
    change(o);
    compare(good, o);
  };
  option([](auto& o) { o.m_aligned = 7; });
  option([](auto& o) { o.acc_dtype = f16; });
  option([](auto& o) { o.sf_vec_size = 16; });
  option([](auto& o) { o.sm_limit = -1; });
  option([](auto& o) { o.num_experts = 77; });
  option([](auto& o) { o.deterministic = !o.deterministic; });
  option([](auto& o) { o.backend = Backend::cuda; });
  {
    const Environment bad("GEMMULE_NUM_THREADS", "many");
    EXPECT_NE(call(good, options).find("GEMMULE_NUM_THREADS"), std::string::npos);
  }
  EXPECT_GT(refused, 40);
  EXPECT_GT(accepted, 1);
}

TEST(OneCall, EarlierCallsDoNotAnswerForOthers) {
  const SreluCase s = small_srelu();
  expect_no_stale_answers(s, [&](const SreluTensors& t, const SreluOptions& o) {
    CountingAllocator allocator;
    return failure([&] { grouped_gemm_srelu(t, o, s.call(), allocator); });
  });
  const DgluCase d = small_dglu();
  expect_no_stale_answers(d, [&](const DgluTensors& t, const DgluOptions& o) {
    CountingAllocator allocator;
    return failure([&] { grouped_gemm_dglu(t, o, d.call(), allocator); });
  });
}

TEST(OneCall, ZeroRows) {
  SreluCase s = small_srelu();
  s.groups = {0, 0, 0};
  HostMemory memory;
  SreluTensors t = s.tensors();
  place(t, s, memory);
  for (const Named& x : named(t))
    if (x.tensor->present() && x.tensor->bytes() == 0) x.tensor->data = nullptr;  // as frameworks have it
  CountingAllocator allocator;
  const SreluResult r = grouped_gemm_srelu(inputs_of(t), s.opts(), s.call(), allocator);
  EXPECT_EQ(r.d.shape[0], 0);
  for (int g = 0; g < 3; ++g)
    EXPECT_EQ(static_cast<float*>(r.amax.data)[g], -std::numeric_limits<float>::infinity());
  DgluCase d;
  d.a = bf16;
  d.groups = {0, 0};
  d.dbias = true;
  DgluTensors u = d.tensors();
  place(u, d, memory);
  const DgluResult q = grouped_gemm_dglu(inputs_of(u), d.opts(), d.call(), allocator);
  const auto* dbias = static_cast<std::uint16_t*>(q.dbias.data);
  for (int i = 0; i < 2 * 2 * 128; ++i) EXPECT_EQ(dbias[i], 0);
}

operators::PlanKey some_key(int margin) {
  operators::PlanKey key;
  key.problem.n = key.problem.k = 32;
  key.problem.experts = 1;
  key.problem.cluster_overlap_margin = margin;
  return key;
}

TEST(PlanKeys, HoldTheClusterThatWasAskedFor) {
  SreluCase s;
  s.options.cluster_shape_mn = ClusterShape{2, 4};
  const SreluTensors t = s.tensors();
  EXPECT_EQ(operators::check_configuration({t, operators::Form::sample}, s.opts(), 0).problem.cluster,
            (ClusterShape{2, 4}));
  DgluCase d;
  d.a = bf16;
  d.options.mma_tiler_mn = {128, 256};
  d.options.cluster_shape_mn = ClusterShape{1, 16};
  const DgluTensors u = d.tensors();
  EXPECT_EQ(operators::check_configuration({u, operators::Form::sample}, d.opts(), 0).problem.cluster,
            (ClusterShape{1, 16}));
}

TEST(PlanCache, IsBoundedAndKeepsWhatIsUsed) {
  const auto first = operators::cached_plan(some_key(0));
  const auto forgotten = operators::cached_plan(some_key(1));
  for (int i = 2; i < 1000; ++i) {
    operators::cached_plan(some_key(i));
    ASSERT_EQ(operators::cached_plan(some_key(0)), first);  // used again and again
  }
  EXPECT_NE(operators::cached_plan(some_key(1)), forgotten);
  EXPECT_EQ(forgotten.use_count(), 1);  // only the caller still holds it
}

TEST(PlanCache, ManyThreadsShareOnePlanPerKey) {
  constexpr int threads = 16, keys = 40;
  std::vector<std::vector<std::shared_ptr<const operators::Plan>>> seen(threads);
  std::vector<std::thread> pool;
  pool.reserve(threads);
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([&seen, i] {
      for (int k = 0; k < keys; ++k)
        seen[static_cast<std::size_t>(i)].push_back(operators::cached_plan(some_key(5000 + (k + i) % keys)));
    });
  for (std::thread& t : pool) t.join();
  std::set<const operators::Plan*> distinct;
  for (const auto& plans : seen)
    for (const auto& plan : plans) distinct.insert(plan.get());
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(keys));
}

TEST(PlanCache, TheOneCallFormRunsFromManyThreads) {
  std::vector<std::thread> pool;
  pool.reserve(12);
  std::atomic<int> failures{0};
  for (int i = 0; i < 12; ++i)
    pool.emplace_back([&failures, i] {
      SreluCase c = small_srelu();
      if (i % 3 != 0) c.options.tanh_clamp_scale = 1.0 + i % 3;
      HostMemory memory;
      SreluTensors t = c.tensors();
      place(t, c, memory);
      for (int j = 0; j < 4; ++j) {
        CountingAllocator allocator;
        failures +=
            !failure([&] { grouped_gemm_srelu(inputs_of(t), c.opts(), c.call(), allocator); }).empty();
      }
    });
  for (std::thread& t : pool) t.join();
  EXPECT_EQ(failures, 0);
}

TEST(Backends, FollowTheTensors) {
  const SreluCase c = small_srelu();
  SreluOptions o = c.opts();
  for (const Backend backend : {Backend::automatic, Backend::cpu, Backend::reference}) {
    o.backend = backend;
    EXPECT_EQ(support_failure(c.tensors(), o), "");
  }
  o.backend = Backend::cuda;
  EXPECT_NE(support_failure(c.tensors(), o).find("backend: cuda, expected cpu for tensors on cpu"),
            std::string::npos);
  o.backend = static_cast<Backend>(9);
  EXPECT_NE(support_failure(c.tensors(), o).find("backend: 9"), std::string::npos);

  SreluTensors on_device = c.tensors();
  for (const Named& x : named(on_device)) x.tensor->device = {DeviceType::cuda, 77};
  o.backend = Backend::cpu;
  EXPECT_NE(support_failure(on_device, o).find("backend: cpu, expected cuda for tensors on cuda:77"),
            std::string::npos);
  o.backend = Backend::automatic;
  const std::string got = support_failure(on_device, o);  // no machine has this device
  EXPECT_EQ(got.rfind("RuntimeFailure: ", 0), 0u) << got;
  EXPECT_NE(got.find("cuda:77"), std::string::npos) << got;

  SreluTensors pinned = c.tensors();
  pinned.a.device = {DeviceType::cuda_host, 0};  // host memory too
  EXPECT_EQ(support_failure(pinned, o), "");
  pinned.a.device = {static_cast<DeviceType>(10), 0};
  EXPECT_NE(support_failure(pinned, o).find("sample_a: device type 10, expected cpu or cuda"),
            std::string::npos);
}

TEST(Names, RoundTrip) {
  for (const Backend b : {Backend::automatic, Backend::reference, Backend::cpu, Backend::cuda})
    EXPECT_EQ(backend_from_name(name(b)), b);
  EXPECT_EQ(backend_from_name("auto"), Backend::automatic);
  for (const ActFunc a : {ActFunc::dswiglu, ActFunc::dgeglu, ActFunc::dsituglu})
    EXPECT_EQ(act_func_from_name(name(a)), a);
  EXPECT_EQ(epilogue_op_from_name("none"), EpilogueOp::none);
  EXPECT_EQ(epilogue_op_from_name("identity"), EpilogueOp::none);
  EXPECT_EQ(epilogue_op_from_name("relu"), EpilogueOp::relu);
  EXPECT_EQ(epilogue_op_from_name("srelu"), EpilogueOp::srelu);
  EXPECT_NE(failure([] {
              backend_from_name("tpu");
            }).find("backend: \"tpu\", expected auto, reference, cpu or cuda"),
            std::string::npos);
  EXPECT_NE(failure([] { act_func_from_name("swiglu"); }).find("act_func: \"swiglu\""), std::string::npos);
  EXPECT_NE(failure([] { epilogue_op_from_name("gelu"); }).find("epilogue_op: \"gelu\""), std::string::npos);
}

TEST(Options, Threads) {
  const int cores = num_threads();
  EXPECT_GE(cores, 1);
  {
    const Environment three("GEMMULE_NUM_THREADS", "3");
    EXPECT_EQ(num_threads(), 3);
  }
  for (const char* bad : {"0", "-1", "1025", "three", "3x"}) {
    const Environment e("GEMMULE_NUM_THREADS", bad);
    EXPECT_EQ(num_threads(), cores);
    const SreluCase c = small_srelu();
    EXPECT_NE(support_failure(c).find("GEMMULE_NUM_THREADS: \"" + std::string(bad)), std::string::npos)
        << bad;
  }
  for (const int bad : {0, -1, 1025})
    EXPECT_NE(failure([&] { set_num_threads(bad); }).find("threads: "), std::string::npos);
  set_num_threads(2);
  const Environment three("GEMMULE_NUM_THREADS", "3");
  EXPECT_EQ(num_threads(), 2);  // what was set here comes first
}

TEST(Options, ClusterOverlapMargin) {
  const SreluCase s = small_srelu();
  const DgluCase d = small_dglu();
  for (const char* bad : {"x", "-1", "1.5", "99999999999999999999"}) {
    const Environment e("CUDNNFE_CLUSTER_OVERLAP_MARGIN", bad);
    EXPECT_NE(support_failure(s).find("CUDNNFE_CLUSTER_OVERLAP_MARGIN: \"" + std::string(bad)),
              std::string::npos);
    EXPECT_NE(call_failure(d).find("CUDNNFE_CLUSTER_OVERLAP_MARGIN: "), std::string::npos);
  }
  const Environment e("CUDNNFE_CLUSTER_OVERLAP_MARGIN", "3");
  EXPECT_EQ(support_failure(s), "");
  EXPECT_EQ(call_failure(d), "");
}

}  // namespace
}  // namespace gemmule::operators_test
