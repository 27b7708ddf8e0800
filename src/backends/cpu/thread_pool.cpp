#include "backends/cpu/thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gemmule::cpu {
namespace {

/// One caller's request; lives on the caller's stack. Guarded by Pool::mutex_.
struct Team {
  TeamBody body;
  void* context;
  int next_slot;
  int last_slot;
  int active;
  std::condition_variable finished;
  Team* next;
};

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(int helpers, TeamBody body, void* context) {
    Team team{body, context, 1, helpers, 0, {}, nullptr};
    {
      const std::lock_guard lock(mutex_);
      start_workers(static_cast<std::size_t>(helpers));
      append(team);
    }
    work_.notify_all();
    body(context, 0);
    std::unique_lock lock(mutex_);
    remove(team);
    team.finished.wait(lock, [&] { return team.active == 0; });
  }

 private:
  void start_workers(std::size_t count) {
    while (workers_.size() < count) {
      try {
        workers_.emplace_back([this] { serve(); });
      } catch (const std::system_error&) {
        return;  // The system has no more threads; the callers do the work themselves.
      }
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return stopping_ || teams_ != nullptr; });
      if (stopping_) return;
      Team& team = *teams_;
      const int slot = team.next_slot++;
      ++team.active;
      if (team.next_slot > team.last_slot) remove(team);
      lock.unlock();
      team.body(team.context, slot);
      lock.lock();
      if (--team.active == 0) team.finished.notify_one();
    }
  }

  void append(Team& team) {
    Team** link = &teams_;
    while (*link != nullptr) link = &(*link)->next;
    *link = &team;
  }

  void remove(const Team& team) {
    for (Team** link = &teams_; *link != nullptr; link = &(*link)->next) {
      if (*link == &team) {
        *link = team.next;
        return;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<std::thread> workers_;
  Team* teams_ = nullptr;  // Teams that still want helpers, oldest first.
  bool stopping_ = false;
};

/// Owns the pool of this process. The child of a fork has none of its parent's threads, and the parent's pool may be
/// in any state there, so the child abandons it and makes another.
class Owner {
 public:
  Owner() {
    pool_.store(new Pool, std::memory_order_release);
    instance = this;
    pthread_atfork(nullptr, nullptr, [] {
      if (instance != nullptr) instance->pool_.store(new Pool, std::memory_order_release);
    });
  }
  ~Owner() {
    instance = nullptr;
    delete pool_.load(std::memory_order_acquire);
  }
  Pool& pool() { return *pool_.load(std::memory_order_acquire); }

 private:
  static inline Owner* instance = nullptr;
  std::atomic<Pool*> pool_{nullptr};
};

}  // namespace

void run_team(int helpers, TeamBody body, void* context) {
  if (helpers <= 0) {
    body(context, 0);
    return;
  }
  static Owner owner;
  owner.pool().run(helpers, body, context);
}

}  // namespace gemmule::cpu
