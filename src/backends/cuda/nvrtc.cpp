#include "backends/cuda/nvrtc.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/libraries.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

namespace fs = std::filesystem;

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
  if (const char* file = std::getenv("GEMMULE_NVRTC"); file && *file)
    return load(file, n) ? ""
                         : std::string("no CUDA compiler: GEMMULE_NVRTC=") + file +
                               " cannot be loaded as NVRTC 12 or later";

  // A driver loads cubins of its own major version and older ones.
  const int driver_major = driver_version() / 1000;
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  if (driver_major == 12) std::swap(names[0], names[1]);
  const std::vector<std::string> places = library_directories("cuda_nvrtc");
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
