#include "backends/cuda/libraries.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace gemmule::cuda {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> subdirectories(const fs::path& parent, const std::string& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path().string());
  std::sort(found.rbegin(), found.rend());  // newest version first
  return found;
}

/// Directories of the wheels below site-packages: those of CUDA 13 share one, those of CUDA 12 have one each.
std::vector<std::string> wheel_directories(const std::string& wheel) {
  return {"nvidia/cu13/lib", "nvidia/" + wheel + "/lib"};
}

/// The same under a Python environment's prefix.
void add_wheels(const fs::path& prefix, const std::string& wheel, std::vector<std::string>& directories) {
  for (const char* lib : {"lib", "lib64"})
    for (const std::string& python : subdirectories(prefix / lib, "python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const std::string& directory : wheel_directories(wheel))
          directories.push_back((fs::path(python) / packages / directory).string());
}

}  // namespace

std::vector<std::string> library_directories(const std::string& wheel) {
  std::vector<std::string> result;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string home = environment(name); !home.empty())
      for (const char* lib : {"lib64", "lib", "targets/x86_64-linux/lib"}) result.push_back(home + "/" + lib);
  result.push_back("/usr/local/cuda/lib64");
  for (const std::string& toolkit : subdirectories("/usr/local", "cuda-"))
    result.push_back(toolkit + "/lib64");

  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = environment(name); !prefix.empty()) {
      result.push_back(prefix + "/lib");
      add_wheels(prefix, wheel, result);
    }
  Dl_info self{};
  std::error_code error;
  // A Python package keeps us in site-packages/gemmule, beside site-packages/nvidia.
  if (dladdr(reinterpret_cast<const void*>(&library_directories), &self) && self.dli_fname) {
    const fs::path packages = fs::absolute(self.dli_fname, error).parent_path().parent_path();
    for (const std::string& directory : wheel_directories(wheel))
      result.push_back((packages / directory).string());
  }
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error)
    add_wheels(program.parent_path().parent_path(), wheel, result);
  return result;
}

}  // namespace gemmule::cuda
