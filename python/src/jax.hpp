#pragma once

#include <nanobind/nanobind.h>

namespace gemmule::python {

/// The XLA FFI handlers of both operators, and what they return for given argument shapes.
void bind_jax(nanobind::module_& module);

}  // namespace gemmule::python
