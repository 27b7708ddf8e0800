// Run-time compilation without a device: options, embedded headers, the resource report.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/embedded.hpp"
#include "backends/cuda/module.hpp"
#include "backends/cuda/nvrtc.hpp"
#include "gemmule/error.hpp"

namespace gemmule::cuda {
namespace {

constexpr Arch archs[] = {Arch::sm_90a, Arch::sm_100a, Arch::sm_103a, Arch::sm_100f};

#define REQUIRE_NVRTC()                                                                 \
  do {                                                                                  \
    std::string why;                                                                    \
    if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no run-time compiler: " << why; \
  } while (false)

TEST(Embedded, HoldsTheDeviceHeadersUnderTheNamesKernelsInclude) {
  std::set<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    EXPECT_NE(std::string(file.text).find("#pragma once"), std::string::npos) << file.name;
  }
  EXPECT_TRUE(names.count("numerics/formats.hpp"));
  EXPECT_TRUE(names.count("layout/scale_factors.hpp"));
}

TEST(Arch, NamesRoundTrip) {
  for (const Arch arch : archs) EXPECT_EQ(arch_from_name(name(arch)), arch);
  EXPECT_THROW(arch_from_name("sm_80"), InvalidArgument);
}

TEST(Identity, CoversSourceAndArchitecture) {
  EXPECT_EQ(identity("a", Arch::sm_90a), identity("a", Arch::sm_90a));
  EXPECT_NE(identity("a", Arch::sm_90a), identity("b", Arch::sm_90a));
  EXPECT_NE(identity("a", Arch::sm_90a), identity("a", Arch::sm_100a));
}

TEST(Compile, TrivialKernelForEveryArchitecture) {
  REQUIRE_NVRTC();
  for (const Arch arch : archs) {
    const Compiled compiled =
        compile_source("extern \"C\" __global__ void k(float* p) { p[threadIdx.x] += 1; }", arch);
    EXPECT_EQ(compiled.cubin.substr(0, 4),
              "\x7f"
              "ELF")
        << name(arch);
    EXPECT_NE(compiled.ptx.find(std::string(".target ") + name(arch)), std::string::npos) << compiled.ptx;
    ASSERT_EQ(compiled.usage.size(), 1u) << compiled.log;
    EXPECT_EQ(compiled.usage[0].function, "k");
    EXPECT_GT(compiled.usage[0].registers, 0);
    EXPECT_EQ(resource_fault(compiled), "");
  }
}

TEST(Compile, EveryEmbeddedHeaderOnItsOwn) {
  REQUIRE_NVRTC();
  for (const EmbeddedFile& file : embedded_files()) {
    const std::string text =
        "#include \"" + std::string(file.name) + "\"\nextern \"C\" __global__ void k() {}";
    try {
      const Compiled compiled = compile_source(text, Arch::sm_90a);
      EXPECT_EQ(compiled.log.find("warning"), std::string::npos) << file.name << ": " << compiled.log;
    } catch (const Error& error) {
      ADD_FAILURE() << file.name << ": " << error.what();
    }
  }
}

TEST(Compile, ErrorsCarryTheLog) {
  REQUIRE_NVRTC();
  try {
    compile_source("extern \"C\" __global__ void k() { undeclared(); }", Arch::sm_90a);
    FAIL();
  } catch (const RuntimeFailure& error) {
    EXPECT_NE(std::string(error.what()).find("undeclared"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("sm_90a"), std::string::npos) << error.what();
  }
}

TEST(Compile, NoFileOfTheMachineIsIncluded) {
  REQUIRE_NVRTC();
  EXPECT_THROW(compile_source("#include <cuda_fp8.h>\n", Arch::sm_90a), RuntimeFailure);
  EXPECT_THROW(compile_source("#include \"CMakeLists.txt\"\n", Arch::sm_90a), RuntimeFailure);
}

TEST(Compile, ProductsAndSumsAreNotContracted) {
  REQUIRE_NVRTC();
  const std::string ptx =
      compile_source("extern \"C\" __global__ void k(float* p) { p[0] = p[1] * p[2] + p[3]; }", Arch::sm_90a)
          .ptx;
  EXPECT_EQ(ptx.find("fma"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find("ftz"), std::string::npos) << ptx;
  EXPECT_NE(ptx.find("mul.rn.f32"), std::string::npos) << ptx;
}

TEST(ResourceReport, IsParsed) {
  const auto usage = parse_usage(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Function properties for first\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "ptxas info    : Function properties for second\n"
      "    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 32 registers\n");
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].function, "first");
  EXPECT_EQ(usage[0].registers, 168);
  EXPECT_EQ(usage[0].spill_store_bytes, 0);
  EXPECT_EQ(usage[1].function, "second");
  EXPECT_EQ(usage[1].registers, 32);
  EXPECT_EQ(usage[1].stack_bytes, 24);
  EXPECT_EQ(usage[1].spill_store_bytes, 16);
  EXPECT_EQ(usage[1].spill_load_bytes, 20);
}

TEST(ResourceReport, IsThereWhenTheCompilerHasSeenTheSourceBefore) {
  REQUIRE_NVRTC();
  const std::string source = "extern \"C\" __global__ void again(float* p) { p[threadIdx.x] += 1; }";
  for (int time = 0; time < 2; ++time) {
    const Compiled compiled = compile_source(source, Arch::sm_90a);
    EXPECT_EQ(resource_fault(compiled), "") << "compilation " << time << ": " << compiled.log;
  }
}

TEST(ResourceReport, LocalMemoryIsAFault) {
  REQUIRE_NVRTC();
  const Compiled compiled = compile_source(
      "extern \"C\" __global__ void k(float* p, const int* q) { float a[64] = {};"
      " for (int j = 0; j < 64; ++j) a[q[j] & 63] += p[j];"
      " for (int j = 0; j < 64; ++j) p[j] = a[q[j + 64] & 63]; }",
      Arch::sm_90a);
  EXPECT_NE(resource_fault(compiled).find("k uses local memory"), std::string::npos) << compiled.log;
  EXPECT_NE(resource_fault({}), "") << "a missing report is a fault, not a pass";
}

TEST(ResourceReport, IgnoredSetmaxnregIsAFault) {
  REQUIRE_NVRTC();
  const auto source = [](const char* bounds) {
    return std::string("extern \"C\" __global__ void __launch_bounds__(") + bounds +
           ") k(int* p) { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 24;\"); p[threadIdx.x] = 1; }";
  };
  const Compiled ignored = compile_source(source("128"), Arch::sm_90a);
  EXPECT_NE(resource_fault(ignored), "") << ignored.log;
  const Compiled heeded = compile_source(source("384, 1"), Arch::sm_90a);
  EXPECT_EQ(resource_fault(heeded), "") << heeded.log;
}

TEST(Nvrtc, AWrongFileIsNamedAndNothingElseIsTried) {
  const char* before = std::getenv("GEMMULE_NVRTC");
  const std::string saved = before ? before : "";
  Nvrtc n;
  ::setenv("GEMMULE_NVRTC", "/nowhere/libnvrtc.so", 1);
  EXPECT_NE(search_nvrtc(n).find("GEMMULE_NVRTC=/nowhere/libnvrtc.so"), std::string::npos);
  ::setenv("GEMMULE_NVRTC", "libm.so.6", 1);
  EXPECT_NE(search_nvrtc(n).find("GEMMULE_NVRTC=libm.so.6"), std::string::npos)
      << "a library that is no NVRTC";
  if (find_nvrtc()) {
    ::setenv("GEMMULE_NVRTC", nvrtc().path.c_str(), 1);
    EXPECT_EQ(search_nvrtc(n), "");
    EXPECT_EQ(n.version(), nvrtc().version());
  }
  before ? ::setenv("GEMMULE_NVRTC", saved.c_str(), 1) : ::unsetenv("GEMMULE_NVRTC");
}

}  // namespace
}  // namespace gemmule::cuda
