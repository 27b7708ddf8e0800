#include "backends/cuda/compile.hpp"

#include <algorithm>
#include <charconv>

#include "backends/cuda/embedded.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/sha256.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

constexpr const char* source_name = "kernel.cu";

/// A program that is destroyed whatever happens.
class Program {
 public:
  Program(const Nvrtc& n, const std::string& source) : n_(n) {
    std::vector<const char*> texts, names;
    for (const EmbeddedFile& file : embedded_files()) {
      names.push_back(file.name);
      texts.push_back(file.text);
    }
    check(n_.nvrtcCreateProgram(&program_, source.c_str(), source_name, static_cast<int>(texts.size()),
                                texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Program() { n_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  NvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    pointers.reserve(options.size());
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return n_.nvrtcCompileProgram(program_, static_cast<int>(pointers.size()), pointers.data());
  }
  std::string log() {
    return text(n_.nvrtcGetProgramLogSize, n_.nvrtcGetProgramLog, "nvrtcGetProgramLog", true);
  }
  std::string ptx() { return text(n_.nvrtcGetPTXSize, n_.nvrtcGetPTX, "nvrtcGetPTX", true); }
  std::string cubin() { return text(n_.nvrtcGetCUBINSize, n_.nvrtcGetCUBIN, "nvrtcGetCUBIN", false); }

  void check(NvrtcResult result, const char* call) const {
    if (result != 0)
      throw RuntimeFailure(std::string("cuda: ") + call + " failed: " + n_.nvrtcGetErrorString(result));
  }

 private:
  template <class Size, class Get>
  std::string text(Size size, Get get, const char* call, bool zero_terminated) {
    std::size_t bytes = 0;
    check(size(program_, &bytes), call);
    std::string result(bytes, '\0');
    if (bytes != 0) check(get(program_, result.data()), call);
    if (zero_terminated) result.resize(std::min(result.size(), result.find('\0')));
    return result;
  }

  const Nvrtc& n_;
  NvrtcProgram program_ = nullptr;
};

/// The number before `unit` in the line, as in "16 bytes stack frame".
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

/// The word after `phrase`, without quotes.
std::string word_after(std::string_view line, std::string_view phrase) {
  line.remove_prefix(line.find(phrase) + phrase.size());
  const std::size_t begin = line.find_first_not_of(" '\"");
  if (begin == std::string_view::npos) return {};
  const std::size_t end = line.find_first_of(" '\"", begin);
  return std::string(line.substr(begin, end == std::string_view::npos ? end : end - begin));
}

template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

const std::string& headers_digest() {
  static const std::string digest = [] {
    std::string all;
    for (const EmbeddedFile& file : embedded_files()) {
      all.append(file.name).push_back('\0');
      all.append(file.text).push_back('\0');
    }
    return hex(sha256(all));
  }();
  return digest;
}

}  // namespace

std::vector<std::string> compile_options(Arch arch) {
  return {"--gpu-architecture=" + std::string(name(arch)),
          "--std=c++20",
          "--device-as-default-execution-space",
          "--fmad=false",
          "--ftz=false",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--no-source-include",
          "--ptxas-options=-v"};
}

std::string identity(std::string_view source, Arch arch) {
  std::string text = "headers " + headers_digest() + "\n";
  for (const std::string& option : compile_options(arch)) text += option + "\n";
  return text.append("\n").append(source);
}

Compiled compile_source(const std::string& source, Arch arch) {
  const Nvrtc& n = nvrtc();
  Program program(n, source);
  std::vector<std::string> options = compile_options(arch);
  // From 12.9 on NVRTC keeps what it has compiled, and says nothing about resources when it finds it again.
  if (n.major > 12 || (n.major == 12 && n.minor >= 9)) options.push_back("--no-cache");
  const NvrtcResult result = program.compile(options);
  Compiled compiled;
  compiled.log = program.log();
  if (result != 0)
    throw RuntimeFailure(std::string("cuda: NVRTC ") + n.version() + " (" + n.path + ") cannot compile for " +
                         name(arch) + ": " + n.nvrtcGetErrorString(result) + "\n" + compiled.log);
  compiled.cubin = program.cubin();
  compiled.ptx = program.ptx();
  compiled.usage = parse_usage(compiled.log);
  return compiled;
}

std::vector<ResourceUsage> parse_usage(std::string_view log) {
  std::vector<ResourceUsage> usage;
  for_each_line(log, [&](std::string_view line) {
    constexpr std::string_view properties = "Function properties for ", entry = "Compiling entry function ";
    if (line.find(entry) != line.npos || line.find(properties) != line.npos) {
      const std::string function = word_after(line, line.find(entry) != line.npos ? entry : properties);
      if (usage.empty() || usage.back().function != function) usage.push_back({.function = function});
    } else if (usage.empty()) {
      return;
    } else if (line.find("bytes stack frame") != line.npos) {
      usage.back().stack_bytes = number_before(line, " bytes stack frame");
      usage.back().spill_store_bytes = number_before(line, " bytes spill stores");
      usage.back().spill_load_bytes = number_before(line, " bytes spill loads");
    } else if (line.find("Used ") != line.npos) {
      usage.back().registers = number_before(line, " registers");
    }
  });
  return usage;
}

std::string resource_fault(const Compiled& compiled, int tolerated_spill_bytes) {
  if (compiled.usage.empty()) return "ptxas reported no function";
  for (const ResourceUsage& u : compiled.usage)
    if (std::max({u.stack_bytes, u.spill_store_bytes, u.spill_load_bytes}) > tolerated_spill_bytes)
      return u.function + " uses local memory: " + std::to_string(u.stack_bytes) + " bytes of stack, " +
             std::to_string(u.spill_store_bytes) + " bytes of spill stores, " +
             std::to_string(u.spill_load_bytes) + " bytes of spill loads, " + std::to_string(u.registers) +
             " registers";
  // C7508: setmaxnreg ignored. C7510 and its like: wgmma serialized.
  std::string fault;
  for_each_line(compiled.log, [&](std::string_view line) {
    if (fault.empty() && line.find("Potential Performance Loss") != line.npos) fault = line;
    if (fault.empty() && line.find("setmaxnreg ignored") != line.npos) fault = line;
  });
  return fault;
}

}  // namespace gemmule::cuda
