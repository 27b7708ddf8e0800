#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace gemmule::python {
namespace {

/// What is needed of torch, looked up when the first torch tensor arrives. Kept for the life of the process.
struct Torch {
  nb::object tensor_type;
  std::vector<std::pair<PyObject*, DType>> dtypes;  // torch.dtype objects are singletons
  nb::object data_ptr = nb::steal(PyUnicode_InternFromString("data_ptr"));
  nb::object get_device = nb::steal(PyUnicode_InternFromString("get_device"));
  nb::object stride = nb::steal(PyUnicode_InternFromString("stride"));
};

const Torch* torch() {
  static const Torch* cached = nullptr;
  if (cached) return cached;
  const auto modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  if (!modules.contains("torch")) return nullptr;
  nb::object module = modules["torch"];
  if (!nb::hasattr(module, "Tensor")) return nullptr;  // still being imported
  auto* found = new Torch;
  found->tensor_type = module.attr("Tensor");
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

Tensor from_torch(nb::handle array, const Torch& torch) {
  Tensor out;
  nb::object dtype = array.attr("dtype");
  for (const auto& [object, value] : torch.dtypes)
    if (object == dtype.ptr()) out.dtype = value;
  if (!out.present())
    throw InvalidArgument("dtype " + nb::cast<std::string>(nb::str(dtype)) + ", not one of any argument");
  nb::object shape = array.attr("shape");
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

}  // namespace

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
