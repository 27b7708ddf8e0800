#include "engine/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define GEMMULE_MODEL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GEMMULE_MODEL_ASAN 1
#endif
#endif
#ifdef GEMMULE_MODEL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace gemmule::model {
namespace ctx = boost::context::detail;

namespace {

void start_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] std::size_t size) {
#ifdef GEMMULE_MODEL_ASAN
  __sanitizer_start_switch_fiber(save, bottom, size);
#endif
}

void finish_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom,
                   [[maybe_unused]] std::size_t* size) {
#ifdef GEMMULE_MODEL_ASAN
  __sanitizer_finish_switch_fiber(saved, bottom, size);
#endif
}

}  // namespace

void Fiber::start(void* stack, std::size_t bytes, Entry entry, void* argument) {
  stack_ = stack;
  bytes_ = bytes;
  entry_ = entry;
  argument_ = argument;
  finished_ = false;
  fake_inside_ = nullptr;
  inside_ = ctx::make_fcontext(static_cast<char*>(stack) + bytes, bytes, &Fiber::trampoline);
}

void Fiber::trampoline(ctx::transfer_t from) {
  Fiber* self = static_cast<Fiber*>(from.data);
  self->scheduler_ = from.fctx;
  finish_switch(nullptr, &self->scheduler_stack_, &self->scheduler_bytes_);
  self->entry_(self->argument_);
  self->finished_ = true;
  start_switch(nullptr, self->scheduler_stack_, self->scheduler_bytes_);  // null: the fake stack is given up
  ctx::jump_fcontext(self->scheduler_, nullptr);
}

void Fiber::resume() {
  start_switch(&fake_scheduler_, stack_, bytes_);
  inside_ = ctx::jump_fcontext(inside_, this).fctx;
  finish_switch(fake_scheduler_, nullptr, nullptr);
}

void Fiber::suspend() {
  start_switch(&fake_inside_, scheduler_stack_, scheduler_bytes_);
  scheduler_ = ctx::jump_fcontext(scheduler_, nullptr).fctx;
  finish_switch(fake_inside_, &scheduler_stack_, &scheduler_bytes_);
}

void* StackPool::take() {
  if (free_.empty()) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* block = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    mprotect(block, page, PROT_NONE);
    blocks_.push_back(block);
    free_.push_back(static_cast<char*>(block) + page);
  }
  void* stack = free_.back();
  free_.pop_back();
#ifdef GEMMULE_MODEL_ASAN
  __asan_unpoison_memory_region(stack, stack_bytes);
#endif
  return stack;
}

StackPool::~StackPool() {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (void* block : blocks_) munmap(block, page + stack_bytes);
}

}  // namespace gemmule::model
