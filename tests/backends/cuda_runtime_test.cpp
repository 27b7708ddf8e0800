// The backend without a device: what is said about missing parts, checks of offsets, kernels and their table.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "backends/cuda/checks.hpp"
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

TEST(Checks, OffsetsBreakingARuleAreNamed) {
  const std::int32_t good[] = {0, 256, 256, 1024};
  EXPECT_NO_THROW(check_offsets(good, 4, 256, 1024));
  EXPECT_NO_THROW(check_offsets(good, 4, 256, 2000));
  const auto message = [](const std::int32_t(&offsets)[3], int aligned, std::int64_t m) {
    return message_of([&] { check_offsets(offsets, 3, aligned, m); });
  };
  EXPECT_NE(message({256, 520, 1024}, 256, 1024).find("padded_offsets[1] is 520"), std::string::npos);
  EXPECT_NE(message({256, 128, 1024}, 128, 1024).find("at least its predecessor, 256"), std::string::npos);
  EXPECT_NE(message({-256, 0, 0}, 256, 1024).find("padded_offsets[0] is -256"), std::string::npos);
  EXPECT_NE(message({256, 512, 1024}, 256, 1023).find("at most the number of rows of A, 1023"),
            std::string::npos);
}

TEST(Checks, NullAndMisalignedPointersAreNamed) {
  const std::int64_t pointers[] = {4096, 0, 4104};
  EXPECT_NO_THROW(check_pointers("b_ptrs", pointers, 1));
  EXPECT_NE(message_of([&] { check_pointers("b_ptrs", pointers, 3); }).find("b_ptrs[1] is 0"),
            std::string::npos);
  EXPECT_NE(message_of([&] { check_pointers("sfb_ptrs", pointers + 2, 1); }).find("sfb_ptrs[0] is 4104"),
            std::string::npos);
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
