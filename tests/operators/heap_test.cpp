// execute() takes nothing from the heap: this program's operator new counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "operators/descriptors.hpp"

namespace {

std::atomic<std::int64_t> heap_allocations{0};

}  // namespace

// Counts what the library takes from the heap.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++heap_allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace gemmule::operators_test {
namespace {

TEST(LifeCycle, ExecuteTakesNothingFromTheHeap) {
  SreluCase c;
  c.groups = {0, 0, 0};  // no rows: the backend is not called
  HostMemory memory;
  SreluTensors t = c.tensors();
  place(t, c, memory);
  GroupedGemmSrelu op(t, c.opts());
  op.compile();
  op.execute(t, nullptr, 0);
  const std::int64_t before = heap_allocations;
  for (int i = 0; i < 10; ++i) op.execute(t, nullptr, 0);
  EXPECT_EQ(heap_allocations - before, 0);
  GroupedGemmSrelu control(t, c.opts());
  EXPECT_GT(heap_allocations - before, 0);
}

}  // namespace
}  // namespace gemmule::operators_test
