// Where the libraries of the CUDA toolkit may lie.
#pragma once

#include <string>
#include <vector>

namespace gemmule::cuda {

/// Directories to look in, most specific first; the loader's own path is to be tried before all of them: CUDA_HOME,
/// CUDA_PATH, /usr/local/cuda*, and the wheels of the Python environment this library or the process belongs to.
/// `wheel`: the library's package of CUDA 12 below nvidia/, as "cuda_nvrtc" or "cublas".
std::vector<std::string> library_directories(const std::string& wheel);

}  // namespace gemmule::cuda
