// Both operators as XLA custom calls. JAX arrays are row-major, so tensors come in memory order, with the names, shapes
// and dtypes of a problem file; here they become the documents' strided views. XLA's results start as zeros (aliased
// operands), are asked for in the order of Allocator::allocate_output, and hold the names of a result file.
#include "jax.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gemmule/error.hpp"
#include "io/options.hpp"
#include "xla/ffi/api/ffi.h"

namespace gemmule::python {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;
using Shape = std::vector<std::int64_t>;

/// One row-major array and the name of the argument it is for.
struct Array {
  std::string name;
  DType dtype = DType::none;
  Shape shape{};
  void* data = nullptr;
  Device device{};
};

std::string text(const Shape& shape) {
  std::string out = "(";
  for (const std::int64_t extent : shape)
    out.append(out.size() > 1 ? ", " : "").append(std::to_string(extent));
  return out + ")";
}

void check_rank(const Array& x, std::size_t rank, const char* shape) {
  if (x.shape.size() != rank)
    throw InvalidArgument(x.name + ": shape " + text(x.shape) + ", expected " + shape);
}

/// The documents' view of one argument.
Tensor view(const Array& x, bool b_n_major) {
  const auto of = [&](std::initializer_list<std::int64_t> shape,
                      std::initializer_list<std::int64_t> strides) {
    return Tensor(x.data, x.dtype, shape, strides, x.device);
  };
  const Shape& s = x.shape;
  if (x.name == "a" || x.name == "c") {
    check_rank(x, 2, "(M, columns)");
    return of({s[0], s[1], 1}, {s[1], 1, s[0] * s[1]});
  }
  if (x.name == "b") {
    check_rank(x, 3, b_n_major ? "(L, K, N)" : "(L, N, K)");
    if (b_n_major) return of({s[2], s[1], s[0]}, {1, s[2], s[1] * s[2]});
    return of({s[1], s[2], s[0]}, {s[2], 1, s[1] * s[2]});
  }
  if (x.name == "sfa" || x.name == "sfb") {
    check_rank(x, 6, "(1 or L, R, B, 32, 4, 4)");
    const std::int64_t row = s[2] * 512;
    return of({s[3], s[4], s[1], s[5], s[2], s[0]}, {16, 4, row, 1, 512, row * s[1]});
  }
  if (x.name == "bias") {
    check_rank(x, 2, "(L, N)");
    return of({s[1], s[0]}, {1, s[1]});
  }
  check_rank(x, 1, "one dimension");
  if (x.name == "prob" || x.name == "dprob") return of({s[0], 1, 1}, {1, 1, 1});
  if (x.name == "b_ptrs" &&
      x.dtype == DType::uint8)  // 8 little-endian bytes a pointer, for JAX without 64-bit types
    return Tensor(x.data, DType::int64, {s[0] / 8}, {1}, x.device);
  return of({s[0]}, {1});
}

struct Slot {
  const char* name;
  Tensor SreluTensors::*srelu;
  Tensor DgluTensors::*dglu;
};
constexpr std::array slots{
    Slot{"a", &SreluTensors::a, &DgluTensors::a},
    Slot{"b", &SreluTensors::b, &DgluTensors::b},
    Slot{"c", nullptr, &DgluTensors::c},
    Slot{"sfa", &SreluTensors::sfa, &DgluTensors::sfa},
    Slot{"sfb", &SreluTensors::sfb, &DgluTensors::sfb},
    Slot{"padded_offsets", &SreluTensors::padded_offsets, &DgluTensors::padded_offsets},
    Slot{"alpha", &SreluTensors::alpha, &DgluTensors::alpha},
    Slot{"beta", nullptr, &DgluTensors::beta},
    Slot{"prob", &SreluTensors::prob, &DgluTensors::prob},
    Slot{"dprob", nullptr, &DgluTensors::dprob},
    Slot{"bias", &SreluTensors::bias, nullptr},
    Slot{"b_ptrs", &SreluTensors::b_ptrs, &DgluTensors::b_ptrs},
    Slot{"norm_const", &SreluTensors::norm_const, &DgluTensors::norm_const}};

template <class Arguments>
void place(Arguments& arguments, const Array& x, bool b_n_major) {
  constexpr bool is_srelu = std::is_same_v<Arguments, io::SreluArguments>;
  for (const Slot& slot : slots)
    if (x.name == slot.name) {
      const auto member = [&] {
        if constexpr (is_srelu)
          return slot.srelu;
        else
          return slot.dglu;
      }();
      if (member) {
        arguments.tensors.*member = view(x, b_n_major);
        return;
      }
    }
  throw InvalidArgument(x.name + ": not an argument of this operator");
}

/// `options`: KEY=VALUE lines as in a problem file, and b_major, n, b_dtype.
template <class Arguments>
Arguments assemble(const std::vector<Array>& arrays, std::string_view options) {
  Arguments out;
  bool b_n_major = false;
  std::istringstream lines{std::string(options)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    const std::string key = line.substr(0, equals), value = line.substr(equals + 1);
    if (key == "b_major")
      b_n_major = value == "n";
    else if (key == "n")
      out.options.b_shape = {io::parse_int(key, value), 0};  // K as in A
    else if (key == "b_dtype")
      out.options.b_dtype = io::parse_dtype(key, value);
    else if (!io::set_option(out, key, value))
      throw InvalidArgument(key + "=" + value + ": not an option of this operator");
  }
  if (b_n_major && out.options.b_shape) out.options.b_major = Major::n;
  for (const Array& x : arrays) place(out, x, b_n_major);
  return out;
}

/// Names and documents' views of the results, in the order of Allocator::allocate_output.
using Named = std::vector<std::pair<std::string, Tensor>>;

Named results(const io::SreluArguments& a) {
  const SreluResult r = describe_outputs(a.tensors, a.options, a.call);
  return {{"c", r.c},      {"d", r.d}, {"d_col", r.d_col}, {"sfd_row", r.sfd_row}, {"sfd_col", r.sfd_col},
          {"amax", r.amax}};
}

Named results(const io::DgluArguments& a) {
  const DgluResult r = describe_outputs(a.tensors, a.options, a.call);
  return {{"d_row", r.d_row},     {"d_col", r.sfd_row ? r.d_col : Tensor{}},  // else the same tensor as d_row
          {"sfd_row", r.sfd_row}, {"sfd_col", r.sfd_col},
          {"dbias", r.dbias},     {"amax", r.amax}};
}

/// The row-major shape whose documents' view is `t`.
Shape memory_shape(const std::string& name, const Tensor& t) {
  const auto& s = t.shape;
  if (t.rank == 6) return {s[5], s[2], s[4], s[0], s[1], s[3]};
  if (name == "amax") return Shape(s.begin(), s.begin() + t.rank);
  return {s[0], s[1]};
}

using Description = std::tuple<std::string, std::string, Shape>;  // name, dtype, shape

std::vector<Description> jax_outputs(const std::string& op, const std::vector<Description>& inputs,
                                     const std::string& options) {
  std::vector<Array> arrays;
  for (const auto& [name, dtype, shape] : inputs) arrays.push_back({name, dtype_from_name(dtype), shape});
  const Named named = op == "srelu" ? results(assemble<io::SreluArguments>(arrays, options))
                                    : results(assemble<io::DgluArguments>(arrays, options));
  std::vector<Description> out;
  for (const auto& [result, tensor] : named)
    if (tensor) out.emplace_back(result, name(tensor.dtype), memory_shape(result, tensor));
  return out;
}

DType dtype_of(ffi::DataType type, const std::string& argument) {
  switch (type) {
    case ffi::DataType::F32:
      return DType::float32;
    case ffi::DataType::F16:
      return DType::float16;
    case ffi::DataType::BF16:
      return DType::bfloat16;
    case ffi::DataType::F8E4M3FN:
      return DType::float8_e4m3fn;
    case ffi::DataType::F8E5M2:
      return DType::float8_e5m2;
    case ffi::DataType::F8E8M0FNU:
      return DType::float8_e8m0fnu;
    case ffi::DataType::S32:
      return DType::int32;
    case ffi::DataType::S64:
      return DType::int64;
    case ffi::DataType::U8:
      if (argument == "sfa" || argument == "sfb") return DType::float8_e8m0fnu;
      return argument == "a" || argument == "b" ? DType::float4_e2m1fn_x2 : DType::uint8;
    default:
      throw InvalidArgument(argument + ": XLA element type " + std::to_string(static_cast<int>(type)) +
                            ", not one of any argument");
  }
}

/// Hands out XLA's result buffers and scratch memory that lives until the end of the call (device: of its stream's work).
class XlaAllocator : public Allocator {
 public:
  XlaAllocator(std::vector<Array> buffers, ffi::ScratchAllocator* device_scratch)
      : results_(std::move(buffers)), device_scratch_(device_scratch) {}

  void* allocate(std::size_t bytes, Device, Stream) override {
    if (device_scratch_) {
      const auto memory = device_scratch_->Allocate(bytes + alignment - 1);
      if (!memory)
        throw RuntimeFailure("scratch: XLA could not allocate " + std::to_string(bytes) + " bytes");
      return aligned(*memory);
    }
    host_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes + alignment - 1));
    return aligned(host_.back().get());
  }
  void* allocate_output(const Tensor& description, Stream) override {
    if (next_ == results_.size() || bytes_of(results_[next_]) != description.bytes())
      throw RuntimeFailure("results: not the shapes that gemmule.jax declared");
    return results_[next_++].data;
  }
  void deallocate(void*, std::size_t, Device, Stream) noexcept override {}

 private:
  static constexpr std::size_t alignment = 256;
  static std::size_t bytes_of(const Array& x) {
    std::size_t out = size_of(x.dtype);
    for (const std::int64_t extent : x.shape) out *= static_cast<std::size_t>(extent);
    return out;
  }
  static void* aligned(void* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
  }

  std::vector<Array> results_;
  std::size_t next_ = 0;
  ffi::ScratchAllocator* device_scratch_;
  std::vector<std::unique_ptr<std::byte[]>> host_;
};

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

/// `inputs` names the operands (those after them are the zeros behind the results); `outputs` the results.
void run(std::string_view op, std::string_view inputs, std::string_view outputs, std::string_view options,
         const ffi::RemainingArgs& args, const ffi::RemainingRets& rets, Device device, Stream stream,
         ffi::ScratchAllocator* scratch) {
  std::vector<Array> arrays, buffers;
  for (const std::string& name : words(inputs)) {
    const auto buffer = args.get<ffi::AnyBuffer>(arrays.size()).value();
    const auto dims = buffer.dimensions();
    arrays.push_back({name, dtype_of(buffer.element_type(), name), Shape(dims.begin(), dims.end()),
                      buffer.untyped_data(), device});
  }
  std::size_t index = 0;
  for (const std::string& name : words(outputs)) {
    const auto buffer = *rets.get<ffi::AnyBuffer>(index++).value();
    const auto dims = buffer.dimensions();
    Array array{name, dtype_of(buffer.element_type(), name), Shape(dims.begin(), dims.end()),
                buffer.untyped_data(), device};
    (name == "dprob" ? arrays : buffers).push_back(std::move(array));  // dprob accumulates into zeros
  }
  XlaAllocator allocator(std::move(buffers), scratch);
  if (op == "srelu") {
    const auto call = assemble<io::SreluArguments>(arrays, options);
    grouped_gemm_srelu(call.tensors, call.options, call.call, allocator, stream);
  } else {
    const auto call = assemble<io::DgluArguments>(arrays, options);
    grouped_gemm_dglu(call.tensors, call.options, call.call, allocator, stream);
  }
}

template <class Run>
ffi::Error guarded(Run&& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const InvalidArgument& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const Unsupported& error) {
    return ffi::Error(ffi::ErrorCode::kUnimplemented, error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

ffi::Error on_cpu(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view op,
                  std::string_view inputs, std::string_view outputs, std::string_view options) {
  return guarded([&] { run(op, inputs, outputs, options, args, rets, Device{}, Stream{}, nullptr); });
}

ffi::Error on_cuda(void* stream, ffi::ScratchAllocator scratch, std::int32_t ordinal, ffi::RemainingArgs args,
                   ffi::RemainingRets rets, std::string_view op, std::string_view inputs,
                   std::string_view outputs, std::string_view options) {
  const Device device{DeviceType::cuda, ordinal};
  return guarded([&] { run(op, inputs, outputs, options, args, rets, device, Stream{stream}, &scratch); });
}

XLA_FFI_DEFINE_HANDLER(cpu_handler, on_cpu,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<std::string_view>("op")
                           .Attr<std::string_view>("inputs")
                           .Attr<std::string_view>("outputs")
                           .Attr<std::string_view>("options"));
XLA_FFI_DEFINE_HANDLER(cuda_handler, on_cuda,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<void*>>()
                           .Ctx<ffi::ScratchAllocator>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<std::string_view>("op")
                           .Attr<std::string_view>("inputs")
                           .Attr<std::string_view>("outputs")
                           .Attr<std::string_view>("options"));

}  // namespace

void bind_jax(nb::module_& module) {
  module.def("jax_outputs", &jax_outputs, nb::arg("op"), nb::arg("inputs"), nb::arg("options"));
  module.def("jax_handlers", [] {
    nb::dict out;
    out["cpu"] = nb::capsule(reinterpret_cast<void*>(cpu_handler));
    out["CUDA"] = nb::capsule(reinterpret_cast<void*>(cuda_handler));
    return out;
  });
}

}  // namespace gemmule::python
