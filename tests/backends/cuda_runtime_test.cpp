// The backend without a device: what is said about missing parts, checks of offsets, kernels and their table.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/cache.hpp"
#include "backends/cuda/compile.hpp"
#include "backends/cuda/compiler_stamp.hpp"
#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/module.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "backends/cuda/nvtx.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Runtime, AMissingDriverIsNamedWithThePlacesSearched) {
  std::string why;
  if (find_driver(&why)) GTEST_SKIP() << "NOT TESTED, this machine has a driver";
  EXPECT_NE(why.find("libcuda.so.1"), std::string::npos) << why;
  EXPECT_THROW(gpus(), RuntimeFailure);
  EXPECT_NE(message_of([] { compile(Problem{}, 0); }).find(why), std::string::npos);
  EXPECT_NE(refusal(Problem{}, 0).find(why), std::string::npos);
  EXPECT_EQ(report().driver, why);
  EXPECT_TRUE(report().devices.empty());
}

TEST(Runtime, EveryUnusableDriverIsDiagnosed) {
  Driver d{};
  EXPECT_NE(load_driver("libcuda.so.nowhere", d).find("no CUDA driver: libcuda.so.nowhere was looked for"),
            std::string::npos);
  EXPECT_NE(load_driver("libm.so.6", d).find("libm.so.6 has no cuInit"), std::string::npos);
#ifdef GEMMULE_TEST_DRIVER_STUB
  // The toolkit's link stub exports every function and answers cuInit with an error of its own.
  const std::string why = load_driver(GEMMULE_TEST_DRIVER_STUB, d);
  EXPECT_NE(why.find("does not start: cuInit"), std::string::npos) << why;
  void* members[sizeof d / sizeof(void*)];
  static_assert(sizeof members == sizeof d);
  std::memcpy(members, &d, sizeof d);
  for (void* member : members) EXPECT_NE(member, nullptr);
#endif
}

TEST(Runtime, ReportSaysSomethingAboutEveryPart) {
  const Report r = report();
  EXPECT_NE(r.driver, "");
  EXPECT_NE(r.compiler, "");
  EXPECT_NE(r.cache, "");
}

TEST(Profiler, SeesOneRangePerCall) {
  ::setenv("NVTX_INJECTION64_PATH", GEMMULE_TEST_NVTX_PROBE, 1);
  void* probe = ::dlopen(GEMMULE_TEST_NVTX_PROBE, RTLD_LAZY);
  ASSERT_NE(probe, nullptr);
  const auto* log = static_cast<const std::string*>(::dlsym(probe, "probe_log"));
  ASSERT_NE(log, nullptr);
  {
    const ProfilerRange outer("outer");
    const ProfilerRange inner("inner");
  }
  EXPECT_EQ(*log, "push outer, push inner, pop, pop, ");
  ::unsetenv("NVTX_INJECTION64_PATH");
}

TEST(Devices, EveryFamilyHasItsTarget) {
  const std::optional<Arch> none;
  EXPECT_EQ(arch_of(9, 0), Arch::sm_90a);
  EXPECT_EQ(arch_of(10, 0), Arch::sm_100a);
  EXPECT_EQ(arch_of(10, 3), Arch::sm_103a);
  EXPECT_EQ(arch_of(10, 7), Arch::sm_100f);
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 9}, {9, 1}, {10, 1}, {10, 2}, {11, 0}, {12, 0}, {12, 1}})
    EXPECT_EQ(arch_of(major, minor), none) << major << "." << minor;
  Gpu unknown;
  unknown.name = "Some GPU";
  unknown.capability_major = 12;
  try {
    required_arch(unknown);
    FAIL() << "12.0 was taken";
  } catch (const RuntimeFailure& error) {
    EXPECT_STREQ(
        error.what(),
        "cuda: Some GPU (cuda:0, compute capability 12.0) is not supported: compute capability 9.0, 10.0, "
        "10.3 or a later 10.x is needed");
  }
}

// What every kernel's host file must keep to.
class EveryKernel : public testing::TestWithParam<const Kernel*> {};

TEST_P(EveryKernel, SpecializationIgnoresExtents) {
  const Kernel& kernel = *GetParam();
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_103a, Arch::sm_100f}) {
    if (!kernel.runs_on(arch)) continue;
    for (const Problem& problem : kernel.common_problems()) {
      EXPECT_EQ(kernel.refuse(problem), "");
      Problem other = problem;
      other.experts = problem.experts == 8 ? 3 : 8;
      other.k = problem.k + 64;
      EXPECT_EQ(kernel.specialize(problem, arch).source, kernel.specialize(other, arch).source);
    }
  }
}

// More compile in cuda_*_specializations_test.
TEST_P(EveryKernel, CompileWithoutFaults) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no run-time compiler: " << why;
  const Kernel& kernel = *GetParam();
  const std::vector<Problem> problems = kernel.common_problems();
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100f}) {
    if (!kernel.runs_on(arch)) continue;
    for (const Problem& problem : {problems.front(), problems.back()}) {
      const Specialization specialization = kernel.specialize(problem, arch);
      const Compiled compiled = compile_source(specialization.source, arch);
      EXPECT_EQ(resource_fault(compiled, specialization.tolerated_spill_bytes), "") << specialization.source;
      for (const EntryPoint& entry : specialization.entries)
        EXPECT_NE(compiled.ptx.find(".entry " + entry.name + "("), std::string::npos) << entry.name;
    }
  }
}

TEST(Precompile, FillsTheCacheForMachinesWithoutACompiler) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no run-time compiler: " << why;
  std::string pattern = testing::TempDir() + "gemmule_precompile_XXXXXX";
  const std::string directory = ::mkdtemp(pattern.data());
  ::setenv("GEMMULE_CACHE_DIR", directory.c_str(), 1);
  const Kernel& kernel = *kernels().front();
  const Problem problem = kernel.common_problems().front();
  precompile(Arch::sm_90a, problem);
  const std::string key = identity(kernel.specialize(problem, Arch::sm_90a).source, Arch::sm_90a);
  std::string cubin;
  EXPECT_TRUE(DiskCache::from_environment().load(key, "", cubin));
  EXPECT_EQ(cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(stamped_compiler_version(directory), nvrtc().version());
  EXPECT_EQ(report().cache.find(directory + ", 1 kernel, "), 0u) << report().cache;
  const auto again =
      get_cubin(kernel.specialize(problem, Arch::sm_90a), Arch::sm_90a, DiskCache::from_environment(), true);
  EXPECT_TRUE(again.from_disk);
  EXPECT_EQ(again.cubin, cubin);

  Problem unknown = problem;
  unknown.ab = DType::int64;
  EXPECT_THROW(precompile(Arch::sm_90a, unknown), Unsupported);
  ::setenv("GEMMULE_CACHE_DIR", "/proc/nowhere", 1);
  EXPECT_THROW(precompile(Arch::sm_90a, problem), RuntimeFailure) << "a cache that cannot be written";
  ::unsetenv("GEMMULE_CACHE_DIR");
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryKernel, testing::ValuesIn(kernels().begin(), kernels().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryKernel);

}  // namespace
}  // namespace gemmule::cuda
