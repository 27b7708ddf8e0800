#include "backends/cuda/nvrtc.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <type_traits>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "gemmule/error.hpp"

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

/// Directories of the NVRTC wheels under a Python environment's prefix.
void add_wheels(const fs::path& prefix, std::vector<std::string>& directories) {
  for (const char* lib : {"lib", "lib64"})
    for (const std::string& python : subdirectories(prefix / lib, "python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})
          directories.push_back((fs::path(python) / packages / wheel).string());
}

/// Directories to look in, most specific first; the loader's own path is tried before all of them.
std::vector<std::string> directories() {
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
      add_wheels(prefix, result);
    }
  Dl_info self{};
  std::error_code error;
  // A Python package keeps us in site-packages/gemmule, beside site-packages/nvidia.
  if (dladdr(reinterpret_cast<const void*>(&find_nvrtc), &self) && self.dli_fname) {
    const fs::path packages = fs::absolute(self.dli_fname, error).parent_path().parent_path();
    for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})
      result.push_back((packages / wheel).string());
  }
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error)
    add_wheels(program.parent_path().parent_path(), result);
  return result;
}

bool resolve(void* library, Nvrtc& n) {
  bool complete = true;
  const auto get = [&](auto& member, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, symbol));
    complete = complete && member;
  };
  get(n.nvrtcGetErrorString, "nvrtcGetErrorString");
  get(n.nvrtcVersion, "nvrtcVersion");
  get(n.nvrtcCreateProgram, "nvrtcCreateProgram");
  get(n.nvrtcDestroyProgram, "nvrtcDestroyProgram");
  get(n.nvrtcCompileProgram, "nvrtcCompileProgram");
  get(n.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
  get(n.nvrtcGetCUBIN, "nvrtcGetCUBIN");
  get(n.nvrtcGetPTXSize, "nvrtcGetPTXSize");
  get(n.nvrtcGetPTX, "nvrtcGetPTX");
  get(n.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
  get(n.nvrtcGetProgramLog, "nvrtcGetProgramLog");
  return complete;
}

/// Loads one file; false when it is not there or is no NVRTC that we can use.
bool load(const std::string& file, Nvrtc& n) {
  void* library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library) return false;
  if (!resolve(library, n) || n.nvrtcVersion(&n.major, &n.minor) != 0 || n.major < 12) {
    dlclose(library);
    return false;
  }
  Dl_info info{};
  n.path =
      dladdr(reinterpret_cast<const void*>(n.nvrtcVersion), &info) && info.dli_fname ? info.dli_fname : file;
  // The compiler asks the loader for this part by name, which succeeds anywhere once it is loaded. Outside the loader's
  // path it lies beside the compiler.
  const fs::path builtins = fs::path(n.path).parent_path() / ("libnvrtc-builtins.so." + n.version());
  dlopen(builtins.c_str(), RTLD_LAZY | RTLD_LOCAL);
  return true;
}

}  // namespace

std::string search_nvrtc(Nvrtc& n) {
  if (const std::string file = environment("GEMMULE_NVRTC"); !file.empty())
    return load(file, n)
               ? ""
               : "no CUDA compiler: GEMMULE_NVRTC=" + file + " cannot be loaded as NVRTC 12 or later";

  // A driver loads cubins of its own major version and older ones.
  const int driver_major = driver_version() / 1000;
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  if (driver_major == 12) std::swap(names[0], names[1]);
  const std::vector<std::string> places = directories();
  std::string looked;
  for (const std::string& name : names) {
    if (load(name, n)) return {};
    for (const std::string& place : places)
      if (const std::string file = place + "/" + name; ::access(file.c_str(), R_OK) == 0 && load(file, n))
        return {};
  }
  for (const std::string& place : places) looked.append(", ").append(place);
  return "no CUDA compiler: libnvrtc.so.13 and libnvrtc.so.12 were looked for on the loader's path" + looked +
         "; set GEMMULE_NVRTC to the file, or install the Python package nvidia-cuda-nvrtc";
}

const Nvrtc* find_nvrtc(std::string* why) {
  static std::mutex mutex;
  static Nvrtc table;
  static bool ready = false;
  const std::lock_guard lock(mutex);
  if (ready) return &table;
  const std::string reason = search_nvrtc(table);
  ready = reason.empty();
  if (why) *why = reason;
  return ready ? &table : nullptr;
}

const Nvrtc& nvrtc() {
  std::string why;
  const Nvrtc* found = find_nvrtc(&why);
  if (!found) throw RuntimeFailure("cuda: " + why);
  return *found;
}

std::string describe_nvrtc() {
  std::string why;
  const Nvrtc* n = find_nvrtc(&why);
  return n ? "NVRTC " + n->version() + ", " + n->path : why;
}

}  // namespace gemmule::cuda
