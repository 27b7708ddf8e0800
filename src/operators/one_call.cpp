#include "operators/one_call.hpp"

#include "operators/environment.hpp"

namespace gemmule::operators {
namespace {

/// One allocation, given back unless release() was called.
class Memory {
 public:
  Memory(Allocator& allocator, void* data, std::size_t bytes, Device device, Stream stream)
      : allocator_(&allocator), data_(data), bytes_(bytes), device_(device), stream_(stream) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (allocator_) allocator_->deallocate(data_, bytes_, device_, stream_);
  }
  void* data() const { return data_; }
  void release() { allocator_ = nullptr; }

 private:
  Allocator* allocator_;
  void* data_;
  std::size_t bytes_;
  Device device_;
  Stream stream_;
};

void allocate_and_run(const Plan& plan, const Arguments& args, std::span<const Output> outputs,
                      Allocator& allocator, Stream stream) {
  if (outputs.empty()) {
    const std::size_t bytes = plan.workspace_size(args[Role::a].shape[0]);
    if (bytes == 0) return plan.execute_checked(args, nullptr, 0, stream);
    const Device device = plan.key().device;
    const Memory workspace(allocator, allocator.allocate(bytes, device, stream), bytes, device, stream);
    return plan.execute_checked(args, workspace.data(), bytes, stream);
  }
  const Output& output = outputs.front();
  if (!output.tensor->present()) return allocate_and_run(plan, args, outputs.subspan(1), allocator, stream);
  Memory memory(allocator, allocator.allocate_output(*output.tensor, stream), output.tensor->bytes(),
                plan.key().device, stream);
  output.tensor->data = memory.data();
  if (output.initial && output.tensor->bytes() > 0) initialise(*output.tensor, *output.initial, stream);
  allocate_and_run(plan, args, outputs.subspan(1), allocator, stream);
  memory.release();
}

}  // namespace

void run_one_call(const PlanKey& key, const Arguments& args, std::span<const Output> outputs,
                  Allocator& allocator, Stream stream) {
  if (key.backend == Backend::cpu) check_thread_environment();
  check_memory(args, key, Needed::inputs);
  if (device_checks_requested()) check_values(args, key.problem, args[Role::a].shape[0], &stream);
  allocate_and_run(*cached_plan(key), args, outputs, allocator, stream);
}

}  // namespace gemmule::operators
