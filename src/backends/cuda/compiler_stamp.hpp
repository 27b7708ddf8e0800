// Which NVRTC this machine would load, without loading it: mapping and relocating its 100 MB takes longer than reading a
// kernel from the disk cache. A file beside the cache entries notes the last answer and everything that led to it.
#pragma once

#include <filesystem>
#include <string>

#include "backends/cuda/nvrtc.hpp"

namespace gemmule::cuda {

/// Version of the compiler noted in `directory`, if nothing that decides the search has changed since; empty otherwise.
std::string stamped_compiler_version(const std::filesystem::path& directory);

/// Notes the compiler; a directory that cannot be written is left alone.
void stamp_compiler(const std::filesystem::path& directory, const Nvrtc& n);

}  // namespace gemmule::cuda
