// Runs test problems on a device.
#pragma once

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "support/problems.hpp"

namespace gemmule::test {

/// A test problem's operands in device memory, each between guards that no kernel may touch.
class DeviceProblem {
 public:
  DeviceProblem(const TestProblem& t, int device_index) : t_(t), device_(device_index) {
    operands_.m = t.m;
    operands_.a = put(t.a);
    operands_.sfa = put(t.sfa);
    for (const Buffer& b : t.b) b_ptrs_.push_back(reinterpret_cast<std::int64_t>(put(b)));
    for (const Buffer& sfb : t.sfb) sfb_ptrs_.push_back(reinterpret_cast<std::int64_t>(put(sfb)));
    if (t.problem.discrete) {
      operands_.b_ptrs = static_cast<const std::int64_t*>(put(b_ptrs_.data(), b_ptrs_.size() * 8));
      if (!sfb_ptrs_.empty())
        operands_.sfb_ptrs = static_cast<const std::int64_t*>(put(sfb_ptrs_.data(), sfb_ptrs_.size() * 8));
    } else {
      operands_.b = reinterpret_cast<const void*>(b_ptrs_.at(0));
      operands_.sfb = sfb_ptrs_.empty() ? nullptr : reinterpret_cast<const void*>(sfb_ptrs_[0]);
    }
    offsets_ = put(t.padded_offsets.data(), t.padded_offsets.size() * 4);
    operands_.padded_offsets = static_cast<const std::int32_t*>(offsets_);
    operands_.alpha = static_cast<const float*>(put(t.alpha));
    operands_.beta = static_cast<const float*>(put(t.beta));
    operands_.prob = static_cast<const float*>(put(t.prob));
    operands_.norm_const = static_cast<const float*>(put(t.norm_const));
    operands_.bias = put(t.bias);
    operands_.c_in = put(t.c_in);
    add_output(&Outputs::c, operands_.c_out);
    add_output(&Outputs::d, operands_.d);
    add_output(&Outputs::d_col, operands_.d_col);
    add_output(&Outputs::sfd_row, operands_.sfd_row);
    add_output(&Outputs::sfd_col, operands_.sfd_col);
    add_output(&Outputs::amax, operands_.amax);
    add_output(&Outputs::dprob, operands_.dprob);
    add_output(&Outputs::dbias, operands_.dbias);
  }

  const Operands& operands() const { return operands_; }

  /// Makes the outputs what they were before the first call.
  void reset() {
    for (Output& output : outputs_) write(output.at, (t_.initial.*output.member).data(), output.bytes);
  }
  Outputs download() const {
    Outputs out = t_.outputs();
    for (const Output& output : outputs_) read(output.at, (out.*output.member).data(), output.bytes);
    return out;
  }
  void set_offsets(const std::vector<std::int32_t>& offsets) {
    write(offsets_, offsets.data(), offsets.size() * 4);
  }
  /// Discrete weights: from now on the pointers lead to the weights of `other`.
  void set_pointers(const DeviceProblem& other) {
    write(const_cast<std::int64_t*>(operands_.b_ptrs), other.b_ptrs_.data(), other.b_ptrs_.size() * 8);
    if (!other.sfb_ptrs_.empty())
      write(const_cast<std::int64_t*>(operands_.sfb_ptrs), other.sfb_ptrs_.data(),
            other.sfb_ptrs_.size() * 8);
  }
  /// Scratch memory of exactly this size, filled with poison, between guards.
  void* workspace(std::size_t bytes) {
    const Buffer poison(static_cast<std::int64_t>(bytes));
    return put(poison);
  }
  /// True while every guard around every block holds its bytes.
  bool guards_intact() const {
    for (const Block& block : blocks_)
      for (const std::size_t at : {std::size_t{0}, guard + block.padded}) {
        std::vector<std::uint8_t> bytes(guard);
        block.memory->download(bytes.data(), guard, at);
        for (const std::uint8_t byte : bytes)
          if (byte != guard_byte) return false;
      }
    return true;
  }

 private:
  static constexpr std::size_t guard = 4096;
  static constexpr std::uint8_t guard_byte = 0xA5;

  struct Block {
    std::unique_ptr<cuda::DeviceMemory> memory;
    std::size_t padded;  ///< bytes between the guards
  };
  struct Output {
    Buffer Outputs::*member;
    void* at;
    std::size_t bytes;
  };

  void* put(const Buffer& buffer) { return put(buffer.data(), static_cast<std::size_t>(buffer.size())); }
  void* put(const void* host, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const std::size_t padded = (bytes + 255) / 256 * 256;
    auto memory = std::make_unique<cuda::DeviceMemory>(device_, padded + 2 * guard);
    memory->fill(guard_byte);
    memory->upload(host, bytes, guard);
    void* data = static_cast<std::byte*>(memory->data()) + guard;
    blocks_.push_back({std::move(memory), padded});
    return data;
  }
  template <class Pointer>
  void add_output(Buffer Outputs::*member, Pointer& pointer) {
    const Buffer& initial = t_.initial.*member;
    void* at = put(initial);
    pointer = static_cast<Pointer>(at);
    if (at) outputs_.push_back({member, at, static_cast<std::size_t>(initial.size())});
  }
  const Block& block_of(const void* at) const {
    for (const Block& block : blocks_)
      if (static_cast<std::byte*>(block.memory->data()) + guard == at) return block;
    throw std::logic_error("no such block");
  }
  void write(void* at, const void* host, std::size_t bytes) {
    block_of(at).memory->upload(host, bytes, guard);
  }
  void read(const void* at, void* host, std::size_t bytes) const {
    block_of(at).memory->download(host, bytes, guard);
  }

  const TestProblem& t_;
  int device_;
  Operands operands_;
  void* offsets_ = nullptr;
  std::vector<std::int64_t> b_ptrs_, sfb_ptrs_;  ///< device addresses
  std::vector<Block> blocks_;
  std::vector<Output> outputs_;
};

/// The cuda backend's outputs.
inline Outputs run_cuda(const TestProblem& t, int device_index = 0) {
  const auto plan = cuda::compile(t.problem, device_index);
  DeviceProblem on_device(t, device_index);
  const std::size_t bytes = cuda::workspace_size(*plan, t.m);
  void* workspace = on_device.workspace(bytes);
  cuda::execute(*plan, on_device.operands(), workspace, bytes, {});
  cuda::synchronize(device_index);
  if (!on_device.guards_intact()) throw std::runtime_error("memory outside the operands was written");
  return on_device.download();
}

/// How many of the calls of one plan, from several threads on streams of their own, go wrong.
inline int wrong_results_of_threads(const TestProblem& t, const Outputs& expected) {
  const auto plan = cuda::compile(t.problem, 0);
  const std::size_t bytes = cuda::workspace_size(*plan, t.m);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      DeviceProblem on_device(t, 0);
      void* workspace = on_device.workspace(bytes);
      const cuda::OwnStream own(0);
      for (int repeat = 0; repeat < 10; ++repeat) {
        on_device.reset();
        cuda::execute(*plan, on_device.operands(), workspace, bytes, own.stream());
        own.synchronize();
        wrong += !first_difference(t, on_device.download(), expected).empty();
      }
      wrong += !on_device.guards_intact();
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace gemmule::test
