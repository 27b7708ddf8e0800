// The backend without a device: what is said about missing parts, checks of offsets, kernels and their table.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/driver.hpp"
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
  EXPECT_THROW(gpu_count(), RuntimeFailure);
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

// What a kernel's specialization may depend on. Each common problem is compiled for every architecture it names.
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

TEST_P(EveryKernel, CommonProblemsCompileWithoutSpills) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no run-time compiler: " << why;
  const Kernel& kernel = *GetParam();
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_103a, Arch::sm_100f}) {
    if (!kernel.runs_on(arch)) continue;
    std::set<std::string> seen;
    for (const Problem& problem : kernel.common_problems()) {
      const Specialization specialization = kernel.specialize(problem, arch);
      if (!seen.insert(specialization.source).second) continue;
      const Compiled compiled = compile_source(specialization.source, arch);
      EXPECT_EQ(resource_fault(compiled), "") << kernel.name << " " << name(arch) << "\n"
                                              << specialization.source;
      for (const EntryPoint& entry : specialization.entries)
        EXPECT_NE(compiled.ptx.find(".entry " + entry.name + "("), std::string::npos) << entry.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryKernel, testing::ValuesIn(kernels().begin(), kernels().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryKernel);

}  // namespace
}  // namespace gemmule::cuda
