// A specialization as code: from the memory cache, the disk cache or the compiler, loaded into a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cache.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/kernel.hpp"

namespace gemmule::cuda {

/// Loaded code. Never unloaded: a captured graph may launch it after the object that compiled it is gone.
struct Module {
  std::vector<Function> functions;
};

/// Cubin from the disk cache or the compiler. Throws RuntimeFailure when it does not compile, or when there is neither
/// an entry nor a compiler. With `strict` a compilation that spills or loses performance in ptxas (resource_fault())
/// throws too; otherwise it is reported on stderr, since the code is right but slow.
DiskCache::Entry get_cubin(const Specialization& specialization, Arch arch, const DiskCache& cache,
                           bool strict);

/// The module on this device. Threads that ask for the same one at once share one compilation.
std::shared_ptr<const Module> get_module(const Specialization& specialization, const Gpu& gpu);

}  // namespace gemmule::cuda
