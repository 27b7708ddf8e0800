// The extension module gemmule._native: exceptions, options, operators. The Python files beside it hold the documents'
// names and know the array frameworks.
#include <nanobind/nanobind.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <vector>

#include "cli.hpp"
#include "gemmule/error.hpp"
#include "gemmule/options.hpp"
#include "gemmule/version.hpp"
#include "jax.hpp"
#include "operators.hpp"

namespace nb = nanobind;

NB_MODULE(_native, module) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const gemmule::InvalidArgument& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const gemmule::Unsupported& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what());
    } catch (const gemmule::RuntimeFailure& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  });
  module.attr("__version__") = gemmule::version();
  module.def("set_num_threads", &gemmule::set_num_threads, nb::arg("threads"));
  module.def("num_threads", &gemmule::num_threads);
  module.def(
      "command",
      [](std::vector<std::string> arguments) {  // argv[0] first
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        const nb::gil_scoped_release release;
        return gemmule::cli::main(static_cast<int>(arguments.size()), argv.data());
      },
      nb::arg("argv"));
  gemmule::python::bind_operators(module);
  gemmule::python::bind_jax(module);
}
