// A fiber: one device thread on a stack of its own. Switches go between the scheduler and one fiber.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <vector>

namespace gemmule::model {

class Fiber {
 public:
  using Entry = void (*)(void*);
  void start(void* stack, std::size_t bytes, Entry entry, void* argument);
  void resume();   ///< from the scheduler: runs until the fiber suspends or ends
  void suspend();  ///< from inside
  bool finished() const { return finished_; }

 private:
  static void trampoline(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t inside_ = nullptr, scheduler_ = nullptr;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  bool finished_ = false;
  // What AddressSanitizer must be told at each switch: the stack entered, and the fake stack left.
  void* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void *fake_inside_ = nullptr, *fake_scheduler_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
};

/// Stacks of one size, each above a page that faults on overflow; kept between runs.
class StackPool {
 public:
  static constexpr std::size_t stack_bytes = GEMMULE_MODEL_STACK_BYTES;
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  void* take();  ///< lowest address of a stack, cleared of sanitizer poison
  void give(void* stack) { free_.push_back(stack); }

 private:
  std::vector<void*> free_, blocks_;
};

}  // namespace gemmule::model
