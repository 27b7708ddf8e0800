// Arbitrary tensors and options through the public API: every check answers or throws one of the library's exceptions,
// and reads no memory that a tensor does not describe. Nothing is executed.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "gemmule/gemmule.hpp"

namespace {

using namespace gemmule;

/// What tensors point to: offsets, norm_const and pointer arrays are read on the host.
constexpr std::size_t memory_bytes = 16384;
alignas(256) std::array<std::uint8_t, memory_bytes> memory;

constexpr std::array<DType, 11> dtypes{
    DType::none,          DType::float32,     DType::float16,        DType::bfloat16,
    DType::float8_e4m3fn, DType::float8_e5m2, DType::float8_e8m0fnu, DType::float4_e2m1fn_x2,
    DType::uint8,         DType::int32,       DType::int64};

/// Builds arguments that are right in most places, so that the later checks are reached too.
class Arguments {
 public:
  explicit Arguments(FuzzedDataProvider& in) : in_(in) {
    constexpr std::array<std::int64_t, 8> sizes{0, 1, 32, 128, 256, 512, 768, std::int64_t{1} << 40};
    m_ = in.PickValueInArray(sizes);
    n_ = in.PickValueInArray(sizes);
    k_ = in.PickValueInArray(sizes);
    l_ = in.PickValueInArray(std::array<std::int64_t, 5>{0, 1, 2, 1024, 1025});
    vec_ = in.PickValueInArray(std::array<int, 4>{16, 32, 0, -1});
    ab_ = in.PickValueInArray(dtypes);
    scale_ = in.PickValueInArray(dtypes);
    d_ = in.PickValueInArray(dtypes);
  }

  template <class Options>
  void common(Options& o) {
    o.sf_vec_size = vec_;
    if (in_.ConsumeBool()) o.acc_dtype = in_.PickValueInArray(dtypes);
    if (in_.ConsumeBool()) o.mma_tiler_mn = {in_.ConsumeIntegral<int>(), in_.ConsumeIntegralInRange(0, 512)};
    if (in_.ConsumeBool())
      o.cluster_shape_mn = ClusterShape{in_.ConsumeIntegralInRange(-1, 8), in_.ConsumeIntegral<int>()};
    o.vector_f32 = in_.ConsumeBool();
    o.discrete_col_sfd = in_.ConsumeBool();
    o.m_aligned = in_.PickValueInArray(std::array<int, 4>{256, 128, 0, -256});
    o.sm_limit = in_.ConsumeIntegralInRange(-1, 2);
    o.b_major = in_.ConsumeBool() ? Major::n : Major::k;
    discrete_ = in_.ConsumeBool();
    if (discrete_) {
      o.num_experts = in_.ConsumeBool() ? static_cast<int>(l_) : in_.ConsumeIntegral<int>();
      o.b_shape = {n_, k_};
      o.b_dtype = in_.ConsumeBool() ? ab_ : in_.PickValueInArray(dtypes);
    }
    o.backend = static_cast<Backend>(in_.ConsumeIntegralInRange(0, 2));  // cuda is another library's concern
  }

  template <class Tensors>
  void shared(Tensors& t) {
    const std::int64_t stored_k = ab_ == DType::float4_e2m1fn_x2 ? k_ / 2 : k_;
    t.a = tensor(ab_, {m_, stored_k, 1});
    t.b = discrete_ ? Tensor() : tensor(ab_, {n_, stored_k, l_});
    t.sfa = scales(m_, k_, 1);
    t.sfb = discrete_ ? Tensor() : scales(n_, k_, l_);
    t.b_ptrs = discrete_ ? tensor(DType::int64, {l_}) : Tensor();
    t.sfb_ptrs = discrete_ ? tensor(DType::int64, {l_}) : Tensor();
    t.padded_offsets = tensor(DType::int32, {l_});
    t.alpha = tensor(DType::float32, {l_});
    t.norm_const = tensor(DType::float32, {1});
    t.prob = tensor(DType::float32, {m_, 1, 1});
  }

  Tensor matrix(DType dtype, std::int64_t width) { return tensor(dtype, {m_, width, 1}); }
  Tensor scales(std::int64_t rows, std::int64_t length, std::int64_t experts) {
    if (vec_ < 1) return {};
    const auto shape = scale_shape(rows, length, vec_, experts);
    Tensor t = tensor(scale_, {1, 1, 1, 1, 1, 1});
    t.shape = shape;
    t.strides = scale_strides(rows, length, vec_);
    return t;
  }
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor t(nullptr, dtype, shape);
    if (t.rank == 3) t.strides = {shape.begin()[1], 1, 0};
    const int damage = in_.ConsumeIntegralInRange(0, 40);
    if (damage == 1) return {};
    if (damage == 2) t.dtype = in_.PickValueInArray(dtypes);
    if (damage == 3) t.rank = in_.ConsumeIntegralInRange(0, 6);
    if (damage == 4)
      t.shape[in_.ConsumeIntegralInRange<std::size_t>(0, 5)] = in_.ConsumeIntegral<std::int64_t>();
    if (damage == 5)
      t.strides[in_.ConsumeIntegralInRange<std::size_t>(0, 5)] = in_.ConsumeIntegral<std::int64_t>();
    if (damage == 6) t.device = {DeviceType::cuda, in_.ConsumeIntegral<std::int32_t>()};
    // Data is given only where it is as long as the tensor says.
    const bool small =
        t.rank == 1 && t.shape[0] >= 0 && t.shape[0] <= 1024 && t.strides[0] >= 0 && t.strides[0] <= 2;
    if (small) t.data = memory.data();
    return t;
  }

  std::int64_t m() const { return m_; }
  std::int64_t n() const { return n_; }
  std::int64_t l() const { return l_; }
  DType d() const { return d_; }

 private:
  FuzzedDataProvider& in_;
  std::int64_t m_, n_, k_, l_;
  int vec_;
  DType ab_, scale_, d_;
  bool discrete_ = false;
};

template <class Call>
void attempt(Call call) {
  try {
    call();
  } catch (const Error&) {
  }
}

void srelu(FuzzedDataProvider& in) {
  Arguments arguments(in);
  SreluTensors t;
  SreluOptions o;
  SreluCall call;
  arguments.common(o);
  arguments.shared(t);
  if (in.ConsumeBool()) o.tanh_clamp_scale = in.ConsumeFloatingPoint<double>();
  if (in.ConsumeBool())
    t.bias = arguments.tensor(in.PickValueInArray(dtypes), {arguments.n(), arguments.l()});
  call.c_dtype = in.PickValueInArray(dtypes);
  call.d_dtype = arguments.d();
  call.cd_major = in.ConsumeBool() ? 'n' : 'm';
  attempt([&] { describe_outputs(t, o, call); });
  t.c = arguments.matrix(call.c_dtype, arguments.n());
  t.d = arguments.matrix(call.d_dtype, arguments.n());
  if (in.ConsumeBool()) t.d_col = arguments.matrix(call.d_dtype, arguments.n());
  if (in.ConsumeBool()) t.sfd_row = arguments.scales(arguments.m(), arguments.n(), 1);
  if (in.ConsumeBool()) t.sfd_col = arguments.scales(arguments.n(), arguments.m(), 1);
  if (in.ConsumeBool()) t.amax = arguments.tensor(DType::float32, {arguments.l(), 1});
  attempt([&] { GroupedGemmSrelu(t, o).check_support(); });
}

void dglu(FuzzedDataProvider& in) {
  Arguments arguments(in);
  DgluTensors t;
  DgluOptions o;
  DgluCall call;
  arguments.common(o);
  arguments.shared(t);
  const std::int64_t width = arguments.n() * 2;
  o.act_func = static_cast<ActFunc>(in.ConsumeIntegralInRange(0, 2));
  if (in.ConsumeBool()) o.linear_offset = in.ConsumeFloatingPoint<float>();
  if (in.ConsumeBool()) o.geglu_alpha = in.ConsumeFloatingPoint<float>();
  if (in.ConsumeBool()) o.glu_clamp_max = in.ConsumeFloatingPoint<float>();
  if (in.ConsumeBool()) o.situ_beta1 = in.ConsumeFloatingPoint<float>();
  o.geglu_filter = static_cast<GegluFilter>(in.ConsumeIntegralInRange(0, 2));
  o.epilogue_op = static_cast<EpilogueOp>(in.ConsumeIntegralInRange(0, 2));
  o.use_single_group_runtime_offsets = in.ConsumeBool();
  t.c = arguments.matrix(in.PickValueInArray(dtypes), width);
  t.beta = arguments.tensor(DType::float32, {arguments.l()});
  t.dprob = arguments.tensor(DType::float32, {arguments.m(), 1, 1});
  call.d_dtype = arguments.d();
  call.generate_dbias = in.ConsumeBool();
  attempt([&] { describe_outputs(t, o, call); });
  t.d_row = arguments.matrix(call.d_dtype, width);
  if (in.ConsumeBool()) t.d_col = arguments.matrix(call.d_dtype, width);
  if (in.ConsumeBool()) t.dbias = arguments.tensor(DType::bfloat16, {arguments.l(), width, 1});
  if (in.ConsumeBool()) t.amax = arguments.tensor(DType::float32, {arguments.l(), 2, 1});
  if (in.ConsumeBool()) t.sfd_row = arguments.scales(arguments.m(), width, 1);
  if (in.ConsumeBool()) t.sfd_col = arguments.scales(width, arguments.m(), 1);
  attempt([&] { GroupedGemmDglu(t, o).check_support(); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider in(data, size);
  const std::vector<std::uint8_t> bytes =
      in.ConsumeBytes<std::uint8_t>(in.ConsumeIntegralInRange<std::size_t>(0, 64));
  memory.fill(0);
  std::copy(bytes.begin(), bytes.end(), memory.begin());
  attempt([&] { in.ConsumeBool() ? srelu(in) : dglu(in); });
  return 0;
}
