// NVRTC, the run-time compiler, loaded when first needed.
#pragma once

#include <string>

#include "backends/cuda/abi.hpp"

namespace gemmule::cuda {

/// Entry points of libnvrtc; each member has the name of the function it is.
struct Nvrtc {
  const char* (*nvrtcGetErrorString)(NvrtcResult result);
  NvrtcResult (*nvrtcVersion)(int* major, int* minor);
  NvrtcResult (*nvrtcCreateProgram)(NvrtcProgram* program, const char* source, const char* name,
                                    int header_count, const char* const* headers,
                                    const char* const* include_names);
  NvrtcResult (*nvrtcDestroyProgram)(NvrtcProgram* program);
  NvrtcResult (*nvrtcCompileProgram)(NvrtcProgram program, int option_count, const char* const* options);
  NvrtcResult (*nvrtcGetCUBINSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetCUBIN)(NvrtcProgram program, char* cubin);
  NvrtcResult (*nvrtcGetPTXSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetPTX)(NvrtcProgram program, char* ptx);
  NvrtcResult (*nvrtcGetProgramLogSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetProgramLog)(NvrtcProgram program, char* log);

  int major = 0, minor = 0;
  std::string path;

  std::string version() const { return std::to_string(major) + "." + std::to_string(minor); }
};

/// The compiler. Searched for in GEMMULE_NVRTC (a file; nothing else is tried when it is set), on the loader's path, in
/// CUDA_HOME, CUDA_PATH and /usr/local/cuda*, and in the nvidia-cuda-nvrtc wheel of the Python environment this library
/// or the process belongs to. A library that the driver cannot load code from (newer major version) comes last.
/// Throws RuntimeFailure that names every place; a later call tries again.
const Nvrtc& nvrtc();

/// The compiler, or null with the reason in `why`. Throws nothing.
const Nvrtc* find_nvrtc(std::string* why = nullptr);

/// Searches and loads, whatever was found before; returns why that fails, empty on success.
std::string search_nvrtc(Nvrtc& n);

/// "NVRTC 13.0, <path>", or why there is none.
std::string describe_nvrtc();

}  // namespace gemmule::cuda
