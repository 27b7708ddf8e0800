// The machine: clusters of CTAs whose threads are fibers, a seeded scheduler, and the state instructions act on.
// Single-threaded: one launch runs on one host thread, and `current()` is the device thread being executed.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/clock.hpp"
#include "engine/fiber.hpp"
#include "engine/global_memory.hpp"
#include "engine/report.hpp"
#include "engine/shared_memory.hpp"

namespace gemmule::model {

class Machine;
struct Cta;
struct Cluster;
struct Warp;
struct Warpgroup;

/// When asynchronous operations take effect, within what the rules allow.
enum class Timing : std::uint8_t {
  early,   ///< at once, when issued
  late,    ///< only when nobody can run without it, or a wait asks for it
  random,  ///< at a random step
};

struct LaunchOptions {
  int grid = 1;     ///< CTAs along x
  int cluster = 1;  ///< CTAs of one cluster, along x
  int threads = 128;
  std::uint32_t shared_bytes = 0;
  int resident = 8;  ///< CTAs that run at once; the others wait for one to end
  /// Registers per thread at entry; 0: as many as 65,536 allow, a multiple of 8, at most 255.
  int registers = 0;
  std::uint64_t seed = 1;
  std::optional<Timing> timing{};  ///< unset: chosen by the seed
  int granule = 4;                 ///< bytes per unit of shared memory's access history: 1, 2, 4, 8 or 16
  bool dependent = false;  ///< an earlier grid still runs: memory it may touch is off limits until grid_wait
  std::int64_t instruction_limit =
      100'000'000;              ///< a run that executes more is stopped and reported as a deadlock
  bool stop_at_hazard = false;  ///< ends the run soon after the first finding
  /// Leaves out the instruction wherever it is called from this line (mutants).
  std::optional<std::pair<Op, Site>> drop{};
};

/// Runs `kernel` once per thread. Throws only what the kernel throws or what makes the run meaningless (the wrong
/// launch, a run too long for the clocks); every mistake of the kernel is in the report.
Report launch(const LaunchOptions& options, GlobalMemory& memory, const std::function<void()>& kernel);

/// Small fast generator: the scheduler draws several numbers per switch.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull) {}
  std::uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 16);
  }
  int below(std::size_t n) { return static_cast<int>(next() % n); }
  bool one_in(std::uint32_t n) { return next() % n == 0; }

 private:
  std::uint64_t state_;
};

/// Thrown through a device thread to end a run that does not end by itself.
struct Stopped {};

/// An asynchronous operation that has been issued and has not taken effect.
class AsyncOp {
 public:
  AsyncOp() = default;
  AsyncOp(const AsyncOp&) = delete;
  AsyncOp& operator=(const AsyncOp&) = delete;
  virtual ~AsyncOp() = default;
  void finish(Machine& machine) {
    if (done) return;
    done = true;
    run(machine);
  }
  bool done = false;

 protected:
  virtual void run(Machine& machine) = 0;
};
using AsyncOpPtr = std::shared_ptr<AsyncOp>;

/// What a blocked thread waits for: shown when nobody can run.
enum class Wait : std::uint8_t {
  none,
  mbarrier,
  named_barrier,
  cluster,
  collective,
  warpgroup,
  registers,
  tensor_memory
};

/// cp.async.bulk groups of one thread.
struct BulkGroups {
  int agent = 0;  ///< its counter is the number of groups whose reads are known to be over
  std::deque<std::vector<AsyncOpPtr>> groups;  ///< oldest first
  int retired = 0;                             ///< groups before groups.front(): reads over
  std::vector<AsyncOpPtr> open, writes;        ///< uncommitted; writes not waited for
  int committed() const { return retired + static_cast<int>(groups.size()); }
};

struct TensorPipe;   // engine/tcgen05.hpp
class TensorMemory;  // engine/tensor_memory.hpp

struct Thread {
  Fiber fiber;
  Machine* machine = nullptr;
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  Warpgroup* group = nullptr;
  int index = 0, lane = 0, agent = 0;
  void* stack = nullptr;
  Clock clock;
  bool released = false;  ///< the current epoch has been published
  bool done = false;

  Wait wait = Wait::none;
  std::uint32_t wait_a = 0, wait_b = 0;
  Site wait_site{};

  std::uint64_t collective_value = 0, collective_result = 0;
  std::int64_t register_sequence = 1, fence_sequence = 0;  ///< order of accumulator accesses and wgmma.fence
  int wgmma_committed = 0, wgmma_waited = 0;               ///< groups
  int registers = 0;
  std::vector<std::int32_t> observed;  ///< per mbarrier of its CTA: last phase waited for, plus one
  std::unique_ptr<BulkGroups> bulk;
  std::vector<std::pair<const void*, int>> acquired_maps;  ///< tensor map in global memory, its generation
  std::uint64_t cluster_phase = 0;
  bool cluster_arrived = false;

  std::unique_ptr<TensorPipe> pipe;  ///< tcgen05.mma, cp and commit issued by this thread
  Clock tensor_clock;  ///< what tcgen05 operations come after: the clock at the last fence::after_thread_sync
  int load_waits = 0, store_waits = 0;  ///< tcgen05.wait::ld, wait::st

  /// Stamp of an access made now. The first one after a release starts a new epoch, which that release does not cover.
  Epoch epoch() {
    if (released) clock.set(agent, clock.counter(agent) + 1);
    released = false;
    return {agent, clock.counter(agent)};
  }
  std::string label() const;  ///< "cta 0 warp 3 lane 7"
};

/// One rendezvous of the lanes in a mask.
struct Collective {
  Op op;
  std::uint32_t mask = 0, arrived = 0;
  Site site{};
};

struct Warp {
  Cta* cta = nullptr;
  int index = 0;
  std::vector<Thread*> lanes;
  std::uint32_t runnable = 0;
  int ready_slot = -1;
  std::uint32_t priority = 0;
  std::vector<Collective> collectives;
  // Rendezvous of the whole warp (tcgen05 instructions that are .sync.aligned).
  int arrived = 0;
  Op op = Op::count_;
  std::uint64_t key = 0;
  std::vector<Thread*> waiting;
  /// Agents of the warp's tcgen05.ld and st: the counter is the number of waits that cover them. -1: none yet.
  int load_agent = -1, store_agent = -1;
};

struct NamedBarrier {
  int expected = 0, arrived = 0;
  Clock clock;
  std::vector<Thread*> waiting;
};

/// An mbarrier object. Phases are counted from 0; `phase` is the one in progress.
struct Mbarrier {
  Cta* cta = nullptr;
  std::uint32_t address = 0;
  int agent = 0, slot = 0;
  int expected = 0, pending = 0;
  std::int64_t tx = 0;  ///< bytes announced and not yet arrived (negative: arrived and not yet announced)
  int phase = 0;
  int on_the_way = 0;  ///< arrivals of commits that have not got here
  Epoch init;
  Thread* init_thread = nullptr;
  bool fenced = false;  ///< its initialisation is visible to the async proxy and the cluster
  Clock arriving, completed;
  std::vector<Thread*> waiting;
};

struct WgmmaOp;

struct Warpgroup {
  Cta* cta = nullptr;
  int index = 0, agent = 0;
  std::vector<Thread*> threads;
  // Rendezvous of the group's threads (wgmma, setmaxnreg).
  int arrived = 0;
  Op op = Op::count_;
  std::uint64_t key = 0;
  std::vector<Thread*> waiting;
  // wgmma operations in issue order; [0, executed) of them have taken effect.
  std::deque<std::unique_ptr<WgmmaOp>> queue;
  int committed = 0;  ///< groups committed by every thread
  int open_ops = 0;
  bool token = false;  ///< an AsyncOp that may execute the queue is pending
  int registers = 0;   ///< per thread, by the ledger
};

struct Cta {
  Machine* machine = nullptr;
  Cluster* cluster = nullptr;
  int index = 0, rank = 0;  ///< in the grid, in the cluster
  int live = 0;
  SharedMemory shared;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Warpgroup>> groups;
  std::vector<NamedBarrier> barriers;
  std::vector<std::unique_ptr<Mbarrier>> mbarriers;
  std::vector<Thread*> waiting_for_registers;
  int free_registers = 0;
  std::unique_ptr<TensorMemory> tensor;  ///< created by the first tcgen05 instruction
  int next_agent = 0;
  int agent_base = 0;
};

struct Cluster {
  int index = 0;
  int live = 0;
  std::vector<std::unique_ptr<Cta>> ctas;
  int arrived = 0, expected = 0;
  std::uint64_t phase = 0;
  Clock arriving, completed;
  std::vector<Thread*> waiting;
};

inline constexpr int async_agents = 96;  ///< per CTA: warpgroups, mbarriers, threads with bulk groups

class Machine {
 public:
  Machine(const LaunchOptions& options, GlobalMemory& memory, const std::function<void()>& kernel);
  ~Machine();
  void run();

  const LaunchOptions& options() const { return options_; }
  GlobalMemory& memory() { return memory_; }
  Report& report() { return report_; }
  Random& random() { return random_; }
  int agents() const { return agents_; }
  int grid_agent() const { return agents_ - 1; }  ///< its counter is 1 once griddepcontrol.wait was observed

  /// Counts the instruction; false if this site is the one a mutant leaves out.
  bool enter(Op op, Site site, std::int64_t bytes = 0);
  template <typename Text>
  void hazard(Hazard kind, Site site, Text&& text) {
    if (!report_.known(kind, site)) report_.add(kind, site, text());
    stopped_ = stopped_ || options_.stop_at_hazard;
  }

  void block(Thread& t, Wait wait, std::uint32_t a, std::uint32_t b, Site site);
  void wake(Thread* t);
  void wake_all(std::vector<Thread*>& waiting);
  void preempt(Thread& t);
  void submit(AsyncOpPtr op);
  int take_agent(Cta& cta);
  const std::function<void()>& kernel() const { return kernel_; }
  void fail(std::exception_ptr error) {
    if (!error_) error_ = error;
  }
  void thread_ended(Thread& t);
  void stop() { stopped_ = true; }
  /// The .cta_group every tcgen05 instruction of a kernel must agree on; 0: none executed yet.
  int& tensor_group() { return tensor_group_; }

  // Tensor maps in global memory: every thread that uses one must have acquired it since it last changed.
  void map_changed(const void* map) { ++map_generation_[map]; }
  void acquire_map(Thread& t, const void* map);
  bool map_acquired(const Thread& t, const void* map);

 private:
  void start_cluster();
  void retire(Cluster& cluster);
  Warp* pick();
  void run_warp(Warp& warp);
  void finish_one();
  void make_ready(Warp& warp);
  void unready(Warp& warp);
  void report_deadlock();

  const LaunchOptions options_;
  GlobalMemory& memory_;
  const std::function<void()>& kernel_;
  Report report_;
  Random random_;
  Timing timing_;
  bool by_priority_;
  std::uint32_t preempt_every_;
  std::int64_t preempt_in_ = 0, executed_ = 0;
  bool stopped_ = false;
  int tensor_group_ = 0;
  int agents_ = 0, next_cta_ = 0;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Warp*> ready_;
  std::vector<AsyncOpPtr> pending_;
  std::map<const void*, int> map_generation_;
  std::exception_ptr error_;
};

std::string describe_wait(const Thread& t, int lanes);

/// The device thread being executed. Only valid inside a kernel.
Thread& current();

}  // namespace gemmule::model
