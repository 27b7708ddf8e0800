// From the arrays of a Python framework to gemmule::Tensor.
#pragma once

#include <nanobind/nanobind.h>

#include "gemmule/tensor.hpp"

namespace gemmule::python {

namespace nb = nanobind;

/// None -> an absent Tensor. A torch.Tensor is read through its attributes. Everything else must be the tuple that
/// gemmule._arrays makes: (address, dtype name, shape, strides in elements, DLPack device type, device index).
Tensor to_tensor(nb::handle array);

/// "float32", ... -> DType; None -> DType::none.
DType to_dtype(nb::handle name);

}  // namespace gemmule::python
