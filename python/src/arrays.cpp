#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dlpack.hpp"

namespace gemmule::python {
namespace {

/// What is needed of torch, looked up when the first torch tensor arrives. Kept for the life of the process.
struct Torch {
  nb::object tensor_type, parameter_type;
  std::vector<std::pair<PyObject*, DType>> dtypes;  // torch.dtype objects are singletons
  const dlpack::ExchangeApi* exchange = nullptr;    // null before PyTorch 2.10
  nb::object empty_strided;
  nb::object empty_keywords = nb::make_tuple("dtype", "device");
  nb::object device = nb::steal(PyUnicode_InternFromString("device"));
  nb::object dtype = nb::steal(PyUnicode_InternFromString("dtype"));
  nb::object shape = nb::steal(PyUnicode_InternFromString("shape"));
  nb::object data_ptr = nb::steal(PyUnicode_InternFromString("data_ptr"));
  nb::object get_device = nb::steal(PyUnicode_InternFromString("get_device"));
  nb::object stride = nb::steal(PyUnicode_InternFromString("stride"));
};

/// Of version 1, whose layout later minor versions keep.
const dlpack::ExchangeApi* exchange_api(nb::handle tensor_type) {
  if (!nb::hasattr(tensor_type, dlpack::attribute_name)) return nullptr;
  const nb::object capsule = tensor_type.attr(dlpack::attribute_name);
  if (!PyCapsule_IsValid(capsule.ptr(), dlpack::capsule_name)) return nullptr;
  auto* api = static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::capsule_name));
  while (api && api->version.major != 1) api = api->previous;
  return api && api->tensor_from_object ? api : nullptr;
}

const Torch* torch() {
  static const Torch* cached = nullptr;
  if (cached) return cached;
  const auto modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  if (!modules.contains("torch")) return nullptr;
  nb::object module = modules["torch"];
  if (!nb::hasattr(module, "Tensor")) return nullptr;  // still being imported
  auto* found = new Torch;
  found->tensor_type = module.attr("Tensor");
  found->parameter_type = module.attr("nn").attr("Parameter");
  found->exchange = exchange_api(found->tensor_type);
  found->empty_strided = module.attr("empty_strided");
  for (DType dtype :
       {DType::float32, DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2,
        DType::float8_e8m0fnu, DType::float4_e2m1fn_x2, DType::uint8, DType::int32, DType::int64})
    if (nb::hasattr(module, name(dtype))) {
      nb::object object = module.attr(name(dtype));
      found->dtypes.emplace_back(object.inc_ref().ptr(), dtype);
    }
  return cached = found;
}

void set_extents(nb::handle sequence, std::array<std::int64_t, Tensor::max_rank>& out, int rank) {
  if (!PyTuple_Check(sequence.ptr()) || PyTuple_GET_SIZE(sequence.ptr()) != rank)
    throw InvalidArgument("shape and strides must be tuples of the same length");
  for (int i = 0; i < rank; ++i) {
    out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sequence.ptr(), i));
    if (out[i] == -1 && PyErr_Occurred()) throw nb::python_error();
  }
}

int checked_rank(nb::handle shape) {
  if (!PyTuple_Check(shape.ptr())) throw InvalidArgument("shape must be a tuple");
  const auto rank = PyTuple_GET_SIZE(shape.ptr());
  if (rank > Tensor::max_rank) throw InvalidArgument("rank " + std::to_string(rank) + ", expected at most 6");
  return static_cast<int>(rank);
}

nb::object call(nb::handle object, const nb::object& method) {
  PyObject* result = PyObject_CallMethodNoArgs(object.ptr(), method.ptr());
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

nb::object attribute(nb::handle object, const nb::object& name) {
  PyObject* result = PyObject_GetAttr(object.ptr(), name.ptr());
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

/// A tensor of exactly PyTorch's own type, without a Python object for each of its properties. Nothing where that is not
/// possible; from_torch() then says what is wrong with the tensor, if anything is.
std::optional<Tensor> exchanged(nb::handle array, const Torch& torch) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(array.ptr()));
  if (!torch.exchange || (type != torch.tensor_type.ptr() && type != torch.parameter_type.ptr())) return {};
  dlpack::DLTensor described{};
  if (torch.exchange->tensor_from_object(array.ptr(), &described) != 0) {
    PyErr_Clear();
    return {};
  }
  try {
    const Tensor out = from_dlpack(described);
    if (out.device.type == DeviceType::cpu || out.device.type == DeviceType::cuda) return out;
  } catch (const InvalidArgument&) {  // rank or dtype
  }
  return {};
}

Tensor from_torch(nb::handle array, const Torch& torch) {
  if (const auto fast = exchanged(array, torch)) return *fast;
  Tensor out;
  nb::object dtype = attribute(array, torch.dtype);
  for (const auto& [object, value] : torch.dtypes)
    if (object == dtype.ptr()) out.dtype = value;
  if (!out.present())
    throw InvalidArgument("dtype " + nb::cast<std::string>(nb::str(dtype)) + ", not one of any argument");
  nb::object shape = attribute(array, torch.shape);
  out.rank = checked_rank(shape);
  set_extents(shape, out.shape, out.rank);
  set_extents(call(array, torch.stride), out.strides, out.rank);
  const int index = nb::cast<int>(call(array, torch.get_device));
  if (index >= 0) {
    if (!nb::cast<bool>(array.attr("is_cuda")))
      throw InvalidArgument("device " + nb::cast<std::string>(nb::str(array.attr("device"))) +
                            ", expected cpu or cuda");
    out.device = {DeviceType::cuda, index};
  }
  out.data = PyLong_AsVoidPtr(call(array, torch.data_ptr).ptr());
  if (!out.data && PyErr_Occurred()) throw nb::python_error();
  return out;
}

Tensor from_description(nb::handle tuple) {
  if (!PyTuple_Check(tuple.ptr()) || PyTuple_GET_SIZE(tuple.ptr()) != 6)
    throw InvalidArgument(nb::cast<std::string>(nb::str(tuple.type())) +
                          ", expected an array of the framework of a_tensor");
  auto item = [&](int i) { return nb::handle(PyTuple_GET_ITEM(tuple.ptr(), i)); };
  Tensor out;
  out.data = PyLong_AsVoidPtr(item(0).ptr());
  if (!out.data && PyErr_Occurred()) throw nb::python_error();
  out.dtype = to_dtype(item(1));
  out.rank = checked_rank(item(2));
  set_extents(item(2), out.shape, out.rank);
  set_extents(item(3), out.strides, out.rank);
  out.device = {static_cast<DeviceType>(nb::cast<int>(item(4))), nb::cast<int>(item(5))};
  return out;
}

nb::object extents(const Tensor& tensor, const std::array<std::int64_t, Tensor::max_rank>& values) {
  nb::object tuple = nb::steal(PyTuple_New(tensor.rank));
  for (int i = 0; i < tensor.rank; ++i) PyTuple_SET_ITEM(tuple.ptr(), i, PyLong_FromLongLong(values[i]));
  return tuple;
}

/// torch.empty_strided(shape, strides, dtype=, device=).
nb::object torch_empty(const Tensor& description, const nb::object& device) {
  const Torch& known = *torch();
  const auto found = std::find_if(known.dtypes.begin(), known.dtypes.end(),
                                  [&](const auto& entry) { return entry.second == description.dtype; });
  if (found == known.dtypes.end())
    throw Unsupported(std::string("this version of PyTorch has no dtype ") + name(description.dtype));
  const nb::object shape = extents(description, description.shape),
                   strides = extents(description, description.strides);
  PyObject* const arguments[] = {shape.ptr(), strides.ptr(), found->first, device.ptr()};
  PyObject* result = PyObject_Vectorcall(known.empty_strided.ptr(), arguments, 2, known.empty_keywords.ptr());
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

}  // namespace

nb::object new_array(const Tensor& description, nb::handle make, nb::handle like) {
  if (make.is_none()) return torch_empty(description, attribute(like, torch()->device));
  return make(name(description.dtype), extents(description, description.shape),
              extents(description, description.strides));
}

std::optional<std::uintptr_t> torch_stream(int device_index) {
  const Torch* found = torch();
  void* stream = nullptr;
  if (!found || !found->exchange || !found->exchange->current_stream) return {};
  if (found->exchange->current_stream(static_cast<int>(DeviceType::cuda), device_index, &stream) != 0)
    throw nb::python_error();
  return reinterpret_cast<std::uintptr_t>(stream);
}

DType to_dtype(nb::handle text) {
  return text.is_none() ? DType::none : dtype_from_name(nb::cast<std::string>(text));
}

Tensor to_tensor(nb::handle array) {
  if (array.is_none()) return {};
  if (PyTuple_Check(array.ptr())) return from_description(array);
  if (const Torch* found = torch(); found && PyObject_IsInstance(array.ptr(), found->tensor_type.ptr()) == 1)
    return from_torch(array, *found);
  return from_description(array);
}

}  // namespace gemmule::python
