#include "backends/cuda/compiler_stamp.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "backends/cuda/cache.hpp"
#include "backends/cuda/driver.hpp"

namespace gemmule::cuda {
namespace {

namespace fs = std::filesystem;

/// Identity of a file's content as far as stat tells.
std::string state(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "absent";
  std::ostringstream text;
  text << info.st_dev << ' ' << info.st_ino << ' ' << info.st_size << ' ' << info.st_mtim.tv_sec << '.'
       << info.st_mtim.tv_nsec;
  return text.str();
}

/// What decides where the search ends: its environment, the loader's cache, the toolkits installed, the driver.
std::string circumstances() {
  std::ostringstream text;
  for (const char* name :
       {"GEMMULE_NVRTC", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* value = std::getenv(name);
    text << name << '=' << (value ? value : "") << '\n';
  }
  for (const char* path : {"/etc/ld.so.cache", "/usr/local", "/proc/self/exe"})
    text << path << ' ' << state(path) << '\n';
  text << "driver " << driver_version() << '\n';
  return text.str();
}

}  // namespace

std::string stamped_compiler_version(const fs::path& directory) {
  if (directory.empty()) return {};
  std::ifstream file(directory / "compiler");
  std::string version, path, noted_state;
  if (!std::getline(file, version) || !std::getline(file, path) || !std::getline(file, noted_state))
    return {};
  std::ostringstream rest;
  rest << file.rdbuf();
  return noted_state == state(path) && rest.str() == circumstances() ? version : "";
}

void stamp_compiler(const fs::path& directory, const Nvrtc& n) {
  if (directory.empty()) return;
  write_atomically(directory / "compiler",
                   n.version() + '\n' + n.path + '\n' + state(n.path) + '\n' + circumstances());
}

}  // namespace gemmule::cuda
