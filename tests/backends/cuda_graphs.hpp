// Capture and replay of CUDA graphs in tests.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <type_traits>

#include "backends/cuda/driver.hpp"

namespace gemmule::test {

/// The driver's graph functions, which only tests need.
struct Graphs {
  using Handle = void*;
  cuda::Result (*begin)(cuda::StreamHandle stream, int mode);
  cuda::Result (*end)(cuda::StreamHandle stream, Handle* graph);
  cuda::Result (*instantiate)(Handle* executable, Handle graph, unsigned long long flags);
  cuda::Result (*launch)(Handle executable, cuda::StreamHandle stream);
  cuda::Result (*destroy_executable)(Handle executable);
  cuda::Result (*destroy)(Handle graph);

  Graphs() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto get = [&](auto& member, const char* symbol) {
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(::dlsym(library, symbol));
      if (!member) throw std::runtime_error(symbol);
    };
    get(begin, "cuStreamBeginCapture_v2");
    get(end, "cuStreamEndCapture");
    get(instantiate, "cuGraphInstantiateWithFlags");
    get(launch, "cuGraphLaunch");
    get(destroy_executable, "cuGraphExecDestroy");
    get(destroy, "cuGraphDestroy");
  }
};

}  // namespace gemmule::test
