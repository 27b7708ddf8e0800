#include "gemmule/options.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "gemmule/grouped_gemm_dglu.hpp"
#include "operators/environment.hpp"

namespace gemmule {
namespace {

constexpr int max_threads = 1024;
std::atomic<int> threads_set{0};  // 0: not set

constexpr std::array backend_names = {"automatic", "reference", "cpu", "cuda"};
constexpr std::array act_names = {"dswiglu", "dgeglu", "dsituglu"};

int usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more than CPU_SETSIZE cores
}

}  // namespace

const char* name(Backend backend) noexcept {
  const auto i = static_cast<std::size_t>(backend);
  return i < backend_names.size() ? backend_names[i] : "unknown";
}

Backend backend_from_name(const std::string& text) {
  if (text == "auto") return Backend::automatic;
  for (std::size_t i = 0; i < backend_names.size(); ++i)
    if (text == backend_names[i]) return static_cast<Backend>(i);
  throw InvalidArgument("backend: \"" + text + "\", expected auto, reference, cpu or cuda");
}

const char* name(ActFunc act) noexcept {
  const auto i = static_cast<std::size_t>(act);
  return i < act_names.size() ? act_names[i] : "unknown";
}

ActFunc act_func_from_name(const std::string& text) {
  for (std::size_t i = 0; i < act_names.size(); ++i)
    if (text == act_names[i]) return static_cast<ActFunc>(i);
  throw InvalidArgument("act_func: \"" + text + "\", expected dswiglu, dgeglu or dsituglu");
}

EpilogueOp epilogue_op_from_name(const std::string& text) {
  if (text == "none" || text == "identity") return EpilogueOp::none;
  if (text == "relu") return EpilogueOp::relu;
  if (text == "srelu") return EpilogueOp::srelu;
  throw InvalidArgument("epilogue_op: \"" + text + "\", expected none, identity, relu or srelu");
}

void set_num_threads(int threads) {
  if (threads < 1 || threads > max_threads)
    throw InvalidArgument("threads: " + std::to_string(threads) + ", expected 1 to " +
                          std::to_string(max_threads));
  threads_set.store(threads, std::memory_order_relaxed);
}

int num_threads() noexcept {
  if (const int set = threads_set.load(std::memory_order_relaxed); set > 0) return set;
  if (const auto value = operators::integer_from_environment("GEMMULE_NUM_THREADS", 1, max_threads).value)
    return *value;
  return std::min(usable_cores(), max_threads);
}

namespace operators {

EnvironmentInteger integer_from_environment(const char* variable, int low, int high) noexcept {
  const char* text = std::getenv(variable);
  if (!text || !*text) return {};
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end || value < low || value > high) return {text, std::nullopt};
  return {text, static_cast<int>(value)};
}

int checked_integer_from_environment(const char* variable, int low, int high, int fallback) {
  const EnvironmentInteger read = integer_from_environment(variable, low, high);
  if (read.text && !read.value)
    throw InvalidArgument(std::string(variable) + ": \"" + read.text + "\", expected an integer from " +
                          std::to_string(low) + " to " + std::to_string(high));
  return read.value.value_or(fallback);
}

int cluster_overlap_margin() {
  return checked_integer_from_environment("CUDNNFE_CLUSTER_OVERLAP_MARGIN", 0, 1 << 20, 0);
}

void check_thread_environment() {
  checked_integer_from_environment("GEMMULE_NUM_THREADS", 1, max_threads, 1);
}

}  // namespace operators
}  // namespace gemmule
