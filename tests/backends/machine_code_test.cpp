#include "backends/machine_code.hpp"

#include <gtest/gtest.h>

#include "backends/cuda/compile.hpp"
#include "backends/cuda/nvrtc.hpp"

namespace gemmule::cuda {
namespace {

/// Loads a word, arrives, uses the word.
std::string reader(const std::string& before, const std::string& address_of_arrival) {
  return R"(
#include "ptx/mbarrier.hpp"
#include "ptx/fence.hpp"
#include "ptx/identity.hpp"
using namespace gemmule::ptx;
struct Params { u32* out; u32 zero; };
extern "C" __global__ void __launch_bounds__(128, 1) reader(const __grid_constant__ Params params) {
  const Shared<u32> word = dynamic_shared().as<u32>() + thread_index();
  const Barrier barrier = dynamic_shared().bytes(1024).as<Mbarrier>();
  const u32 value = load(word);
  )" + before +
         "arrive(" + address_of_arrival + R"();
  params.out[thread_index()] = value;
})";
}

TEST(MachineCode, ArrivalsThatDoNotWaitForALoadAreFound) {
  std::string why;
  if (!find_nvrtc(&why)) GTEST_SKIP() << "NOT TESTED, no compiler: " << why;
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a}) {
    EXPECT_NE(overtaking_arrival(compile_source(reader("", "barrier"), arch).cubin), "");
    EXPECT_EQ(
        overtaking_arrival(compile_source(reader("", "barrier.bytes(value & params.zero)"), arch).cubin), "");
    EXPECT_EQ(overtaking_arrival(compile_source(reader("fence_async_shared();", "barrier"), arch).cubin), "");
  }
}

TEST(MachineCode, TruncatedCodeIsRefused) {
  EXPECT_THROW(overtaking_arrival("\x7f\x45LF"), std::runtime_error);
}

}  // namespace
}  // namespace gemmule::cuda
