// Notices that work no longer goes on, a kernel that waits for ever for example.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gemmule::cli {

/// Calls `expired` once, on a thread of its own, when feed() is not called for `limit`.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::function<void()> expired)
      : limit_(limit), thread_([this, call = std::move(expired)] { watch(call); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Waits while `expired` is being called.
  void feed() {
    const std::lock_guard lock(mutex_);
    ++fed_;
    changed_.notify_one();
  }

 private:
  void watch(const std::function<void()>& expired) {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const unsigned long long before = fed_;
      if (changed_.wait_for(lock, limit_, [&] { return stop_ || fed_ != before; })) continue;
      return expired();
    }
  }

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned long long fed_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace gemmule::cli
