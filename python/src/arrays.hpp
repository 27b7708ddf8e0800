// From the arrays of a Python framework to gemmule::Tensor.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "gemmule/tensor.hpp"

namespace gemmule::python {

namespace nb = nanobind;

/// None -> an absent Tensor. A torch.Tensor is read through DLPack's C interface or its attributes. Everything else must be the tuple that
/// gemmule._arrays makes: (address, dtype name, shape, strides in elements, DLPack device type, device index).
Tensor to_tensor(nb::handle array);

/// An array for the tensor that `description` describes: make(dtype name, shape, strides), or where make is None a
/// torch.Tensor on the device of the tensor `like`.
nb::object new_array(const Tensor& description, nb::handle make, nb::handle like);

/// PyTorch's current stream on a CUDA device; nothing when this version of PyTorch does not say.
std::optional<std::uintptr_t> torch_stream(int device_index);

/// "float32", ... -> DType; None -> DType::none.
DType to_dtype(nb::handle name);

}  // namespace gemmule::python
