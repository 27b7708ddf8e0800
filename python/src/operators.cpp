#include "operators.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "gemmule/grouped_gemm_dglu.hpp"
#include "gemmule/grouped_gemm_srelu.hpp"

namespace gemmule::python {
namespace {

Stream stream_of(std::uintptr_t handle) {
  return {reinterpret_cast<void*>(handle)};
}

/// Arrays of the caller's framework: new_array(), and describe(array), which returns what to_tensor() reads (None: the
/// array itself). Keeps what it made until take() or the end of the call. Operators run without the GIL; it is taken here.
class ArrayAllocator : public Allocator {
 public:
  ArrayAllocator(nb::handle make, nb::handle describe, nb::handle like)
      : make_(make), describe_(describe), like_(like) {}

  void* allocate(std::size_t bytes, Device, Stream) override {
    const nb::gil_scoped_acquire gil;
    const Tensor scratch(nullptr, DType::uint8, {static_cast<std::int64_t>(bytes + alignment - 1)});
    const auto address = reinterpret_cast<std::uintptr_t>(keep(scratch));
    return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
  }
  void* allocate_output(const Tensor& description, Stream) override {
    const nb::gil_scoped_acquire gil;
    return keep(description);
  }
  void deallocate(void*, std::size_t, Device, Stream) noexcept override {}

  /// The arrays for `outputs` (None for an absent one), which are in allocation order.
  template <std::size_t count>
  std::array<nb::object, count> take(const std::array<const Tensor*, count>& outputs) {
    std::array<nb::object, count> taken;
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; ++i) taken[i] = outputs[i]->present() ? arrays_[next++] : nb::none();
    return taken;
  }

 private:
  static constexpr std::size_t alignment = 256;

  void* keep(const Tensor& description) {
    arrays_.push_back(new_array(description, make_, like_));
    return (describe_.is_none() ? to_tensor(arrays_.back()) : to_tensor(describe_(arrays_.back()))).data;
  }

  nb::handle make_, describe_, like_;
  std::vector<nb::object> arrays_;
};

/// One member of SreluTensors or DgluTensors and its argument's name without "sample_" or "_tensor".
template <class T>
struct Member {
  Tensor T::*tensor;
  const char* base;
};

std::string argument_name(const std::string& base, bool sample) {
  if (base == "b_ptrs" || base == "sfb_ptrs") return base;
  if (sample) return "sample_" + base;
  return base == "padded_offsets" ? base : base + "_tensor";
}

template <class T, std::size_t count>
T read_tensors(nb::handle arrays, const std::array<Member<T>, count>& members, bool samples = false) {
  if (!PyTuple_Check(arrays.ptr()) || PyTuple_GET_SIZE(arrays.ptr()) != static_cast<Py_ssize_t>(count))
    throw InvalidArgument("tensors: expected a tuple of " + std::to_string(count) + " arrays");
  T out;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      out.*members[i].tensor = to_tensor(PyTuple_GET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i)));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(argument_name(members[i].base, samples) + ": " + error.what());
    } catch (
        nb::python_error& error) {  // a tensor without memory of its own: sparse, or being differentiated
      if (!error.matches(PyExc_RuntimeError)) throw;
      throw InvalidArgument(argument_name(members[i].base, samples) + ": " +
                            nb::cast<std::string>(nb::str(error.value())));
    }
  }
  return out;
}

/// a_tensor of a tuple that read_tensors() has accepted.
nb::handle first(nb::handle arrays) {
  return PyTuple_GET_ITEM(arrays.ptr(), 0);
}

constexpr std::array<Member<SreluTensors>, 17> srelu_members{
    {{&SreluTensors::a, "a"},
     {&SreluTensors::b, "b"},
     {&SreluTensors::sfa, "sfa"},
     {&SreluTensors::sfb, "sfb"},
     {&SreluTensors::padded_offsets, "padded_offsets"},
     {&SreluTensors::alpha, "alpha"},
     {&SreluTensors::bias, "bias"},
     {&SreluTensors::b_ptrs, "b_ptrs"},
     {&SreluTensors::sfb_ptrs, "sfb_ptrs"},
     {&SreluTensors::norm_const, "norm_const"},
     {&SreluTensors::prob, "prob"},
     {&SreluTensors::c, "c"},
     {&SreluTensors::d, "d"},
     {&SreluTensors::d_col, "d_col"},
     {&SreluTensors::sfd_row, "sfd_row"},
     {&SreluTensors::sfd_col, "sfd_col"},
     {&SreluTensors::amax, "amax"}}};

constexpr std::array<Member<DgluTensors>, 19> dglu_members{{{&DgluTensors::a, "a"},
                                                            {&DgluTensors::b, "b"},
                                                            {&DgluTensors::c, "c"},
                                                            {&DgluTensors::sfa, "sfa"},
                                                            {&DgluTensors::sfb, "sfb"},
                                                            {&DgluTensors::padded_offsets, "padded_offsets"},
                                                            {&DgluTensors::alpha, "alpha"},
                                                            {&DgluTensors::beta, "beta"},
                                                            {&DgluTensors::prob, "prob"},
                                                            {&DgluTensors::b_ptrs, "b_ptrs"},
                                                            {&DgluTensors::sfb_ptrs, "sfb_ptrs"},
                                                            {&DgluTensors::norm_const, "norm_const"},
                                                            {&DgluTensors::dprob, "dprob"},
                                                            {&DgluTensors::d_row, "d_row"},
                                                            {&DgluTensors::d_col, "d_col"},
                                                            {&DgluTensors::dbias, "dbias"},
                                                            {&DgluTensors::amax, "amax"},
                                                            {&DgluTensors::sfd_row, "sfd_row"},
                                                            {&DgluTensors::sfd_col, "sfd_col"}}};

GegluFilter filter_of(const std::optional<std::string>& text) {
  if (!text) return GegluFilter::automatic;
  if (*text == "mask") return GegluFilter::mask;
  if (*text == "value") return GegluFilter::value;
  throw InvalidArgument("geglu_filter: \"" + *text + "\", expected None, \"mask\" or \"value\"");
}

Major major_of(const std::string& text) {
  if (text == "k") return Major::k;
  if (text == "n") return Major::n;
  throw InvalidArgument("b_major: \"" + text + "\", expected \"k\" or \"n\"");
}

using Pair = std::array<int, 2>;
using Shape = std::array<std::int64_t, 2>;

void set_common(CommonOptions& o, const std::string& acc_dtype, Pair tile, std::optional<Pair> cluster,
                int sf_vec_size, bool vector_f32, int m_aligned, bool discrete_col_sfd, bool dynamic,
                std::optional<int> num_experts, std::optional<Shape> b_shape,
                std::optional<std::string> b_dtype, const std::string& b_major, bool deterministic,
                int sm_limit, bool programmatic_launch, const std::string& backend) {
  o.acc_dtype = dtype_from_name(acc_dtype);
  o.mma_tiler_mn = {tile[0], tile[1]};
  if (cluster) o.cluster_shape_mn = ClusterShape{(*cluster)[0], (*cluster)[1]};
  o.sf_vec_size = sf_vec_size;
  o.vector_f32 = vector_f32;
  o.m_aligned = m_aligned;
  o.discrete_col_sfd = discrete_col_sfd;
  o.use_dynamic_sched = dynamic;
  o.num_experts = num_experts;
  o.b_shape = b_shape;
  o.b_dtype = b_dtype ? dtype_from_name(*b_dtype) : DType::none;
  o.b_major = major_of(b_major);
  o.deterministic = deterministic;
  o.sm_limit = sm_limit;
  o.programmatic_launch = programmatic_launch;
  o.backend = backend_from_name(backend);
}

char major_letter(const std::string& text) {
  return text.size() == 1 ? text[0] : '?';
}

nb::tuple call_srelu(nb::handle arrays, const SreluOptions& options, const std::string& c_dtype,
                     const std::string& d_dtype, const std::string& cd_major, nb::handle make,
                     nb::handle describe, std::uintptr_t stream) {
  const auto tensors = read_tensors<SreluTensors>(arrays, srelu_members);
  const SreluCall call{dtype_from_name(c_dtype), dtype_from_name(d_dtype), major_letter(cd_major)};
  ArrayAllocator allocator(make, describe, first(arrays));
  const SreluResult out = [&] {
    const nb::gil_scoped_release release;
    return grouped_gemm_srelu(tensors, options, call, allocator, stream_of(stream));
  }();
  const auto [c, d, d_col, sfd_row, sfd_col, amax] =
      allocator.take(std::array{&out.c, &out.d, &out.d_col, &out.sfd_row, &out.sfd_col, &out.amax});
  return nb::make_tuple(c, d, d_col, amax, sfd_row, sfd_col);
}

/// The caller's own dprob is not among the returned objects; the Python side puts it in.
nb::tuple call_dglu(nb::handle arrays, const DgluOptions& options, const std::string& d_dtype,
                    const std::string& cd_major, bool generate_dbias, nb::handle make, nb::handle describe,
                    std::uintptr_t stream) {
  const auto tensors = read_tensors<DgluTensors>(arrays, dglu_members);
  const DgluCall call{dtype_from_name(d_dtype), major_letter(cd_major), generate_dbias};
  ArrayAllocator allocator(make, describe, first(arrays));
  const DgluResult out = [&] {
    const nb::gil_scoped_release release;
    return grouped_gemm_dglu(tensors, options, call, allocator, stream_of(stream));
  }();
  const bool shared = out.d_col && !out.sfd_row;  // without scale factors d_col is d_row
  const Tensor absent;
  const auto [d_row, d_col, sfd_row, sfd_col, dbias, amax] = allocator.take(std::array{
      &out.d_row, shared ? &absent : &out.d_col, &out.sfd_row, &out.sfd_col, &out.dbias, &out.amax});
  return nb::make_tuple(d_row, shared ? d_row : d_col, dbias, amax, sfd_row, sfd_col);
}

/// The compile-once object as Python sees it: tensors come as the tuple in the order of `members`.
template <class Op, class Tensors, class Options, std::size_t count>
void bind_class(nb::module_& module, const char* class_name,
                const std::array<Member<Tensors>, count>& members) {
  nb::class_<Op>(module, class_name)
      .def(
          "__init__",
          [&members](Op* self, nb::tuple samples, const Options& options) {
            new (self) Op(read_tensors<Tensors>(samples, members, true), options);
          },
          nb::arg("samples"), nb::arg("options"))
      .def("check_support", &Op::check_support)
      .def("compile", &Op::compile, nb::call_guard<nb::gil_scoped_release>())
      .def("compiled", &Op::compiled)
      .def("workspace_size", &Op::workspace_size, nb::arg("rows"))
      .def(
          "execute",
          [&members](const Op& self, nb::tuple arrays, nb::handle make, nb::handle describe,
                     std::uintptr_t stream) {
            const auto tensors = read_tensors<Tensors>(arrays, members);
            ArrayAllocator allocator(make, describe, first(arrays));
            const std::size_t bytes = self.workspace_size(tensors.a.rank > 0 ? tensors.a.shape[0] : 0);
            void* workspace =
                bytes > 0 ? allocator.allocate(bytes, tensors.a.device, stream_of(stream)) : nullptr;
            const nb::gil_scoped_release release;
            self.execute(tensors, workspace, bytes, stream_of(stream));
          },
          nb::arg("tensors"), nb::arg("make").none(), nb::arg("describe").none(), nb::arg("stream"));
}

}  // namespace

void bind_operators(nb::module_& module) {
  nb::class_<SreluOptions>(module, "SreluOptions")
      .def(
          "__init__",
          [](SreluOptions* self, const std::string& acc_dtype, Pair tile, std::optional<Pair> cluster,
             int sf_vec_size, bool vector_f32, int m_aligned, bool discrete_col_sfd, bool dynamic,
             std::optional<int> num_experts, std::optional<Shape> b_shape, std::optional<std::string> b_dtype,
             const std::string& b_major, bool deterministic, int sm_limit, bool programmatic_launch,
             const std::string& backend, std::optional<double> tanh_clamp_scale) {
            auto* o = new (self) SreluOptions;
            set_common(*o, acc_dtype, tile, cluster, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd,
                       dynamic, num_experts, b_shape, b_dtype, b_major, deterministic, sm_limit,
                       programmatic_launch, backend);
            o->tanh_clamp_scale = tanh_clamp_scale;
          },
          nb::arg("acc_dtype"), nb::arg("mma_tiler_mn"), nb::arg("cluster_shape_mn").none(),
          nb::arg("sf_vec_size"), nb::arg("vector_f32"), nb::arg("m_aligned"), nb::arg("discrete_col_sfd"),
          nb::arg("use_dynamic_sched"), nb::arg("num_experts").none(), nb::arg("b_shape").none(),
          nb::arg("b_dtype").none(), nb::arg("b_major"), nb::arg("deterministic"), nb::arg("sm_limit"),
          nb::arg("programmatic_launch"), nb::arg("backend"), nb::arg("tanh_clamp_scale").none());

  nb::class_<DgluOptions>(module, "DgluOptions")
      .def(
          "__init__",
          [](DgluOptions* self, const std::string& acc_dtype, Pair tile, std::optional<Pair> cluster,
             int sf_vec_size, bool vector_f32, int m_aligned, bool discrete_col_sfd, bool dynamic,
             std::optional<int> num_experts, std::optional<Shape> b_shape, std::optional<std::string> b_dtype,
             const std::string& b_major, bool deterministic, int sm_limit, bool programmatic_launch,
             const std::string& backend, const std::string& act_func, std::optional<float> linear_offset,
             float geglu_alpha, float glu_clamp_max, float glu_clamp_min,
             std::optional<std::string> geglu_filter, float situ_beta1, float situ_beta2,
             std::optional<std::string> epilogue_op, bool single_group) {
            auto* o = new (self) DgluOptions;
            set_common(*o, acc_dtype, tile, cluster, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd,
                       dynamic, num_experts, b_shape, b_dtype, b_major, deterministic, sm_limit,
                       programmatic_launch, backend);
            o->act_func = act_func_from_name(act_func);
            o->linear_offset = linear_offset;
            o->geglu_alpha = geglu_alpha;
            o->glu_clamp_max = glu_clamp_max;
            o->glu_clamp_min = glu_clamp_min;
            o->geglu_filter = filter_of(geglu_filter);
            o->situ_beta1 = situ_beta1;
            o->situ_beta2 = situ_beta2;
            o->epilogue_op = epilogue_op ? epilogue_op_from_name(*epilogue_op) : EpilogueOp::none;
            o->use_single_group_runtime_offsets = single_group;
          },
          nb::arg("acc_dtype"), nb::arg("mma_tiler_mn"), nb::arg("cluster_shape_mn").none(),
          nb::arg("sf_vec_size"), nb::arg("vector_f32"), nb::arg("m_aligned"), nb::arg("discrete_col_sfd"),
          nb::arg("use_dynamic_sched"), nb::arg("num_experts").none(), nb::arg("b_shape").none(),
          nb::arg("b_dtype").none(), nb::arg("b_major"), nb::arg("deterministic"), nb::arg("sm_limit"),
          nb::arg("programmatic_launch"), nb::arg("backend"), nb::arg("act_func"),
          nb::arg("linear_offset").none(), nb::arg("geglu_alpha"), nb::arg("glu_clamp_max"),
          nb::arg("glu_clamp_min"), nb::arg("geglu_filter").none(), nb::arg("situ_beta1"),
          nb::arg("situ_beta2"), nb::arg("epilogue_op").none(), nb::arg("use_single_group_runtime_offsets"));

  bind_class<GroupedGemmSrelu, SreluTensors, SreluOptions>(module, "Srelu", srelu_members);
  bind_class<GroupedGemmDglu, DgluTensors, DgluOptions>(module, "Dglu", dglu_members);
  module.def("torch_stream", &torch_stream, nb::arg("device_index"));
  module.def("call_srelu", &call_srelu, nb::arg("tensors"), nb::arg("options"), nb::arg("c_dtype"),
             nb::arg("d_dtype"), nb::arg("cd_major"), nb::arg("make").none(), nb::arg("describe").none(),
             nb::arg("stream"));
  module.def("call_dglu", &call_dglu, nb::arg("tensors"), nb::arg("options"), nb::arg("d_dtype"),
             nb::arg("cd_major"), nb::arg("generate_dbias"), nb::arg("make").none(),
             nb::arg("describe").none(), nb::arg("stream"));
}

}  // namespace gemmule::python
