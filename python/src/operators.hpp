#pragma once

#include <nanobind/nanobind.h>

namespace gemmule::python {

/// Options, the class API and the one-call form of both operators.
void bind_operators(nanobind::module_& module);

}  // namespace gemmule::python
