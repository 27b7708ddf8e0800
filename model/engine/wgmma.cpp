#include "engine/wgmma.hpp"

#include <algorithm>
#include <cstring>

#include "engine/barriers.hpp"
#include "numerics/formats.hpp"

namespace gemmule::model {

MatrixView decode_descriptor(std::uint64_t bits) {
  static constexpr std::uint32_t spans[] = {16, 128, 64, 32};
  MatrixView view;
  view.start = static_cast<std::uint32_t>(bits & 0x3fff) << 4;
  view.leading = static_cast<std::uint32_t>(bits >> 16 & 0x3fff) << 4;
  view.stride = static_cast<std::uint32_t>(bits >> 32 & 0x3fff) << 4;
  view.base_offset = static_cast<std::uint32_t>(bits >> 49 & 7);
  view.span = spans[bits >> 62];
  return view;
}

std::uint32_t swizzle_address(std::uint32_t address, std::uint32_t span) {
  const std::uint32_t mask = span / 16 - 1;  // 7, 3, 1, 0
  return address ^ ((address >> 7 & mask) << 4);
}

std::vector<std::uint32_t> operand_chunks(const MatrixView& view, int rows, bool mn_major) {
  std::vector<std::uint32_t> chunks;
  chunks.reserve(static_cast<std::size_t>(rows) * 2);
  const std::uint32_t span = view.span;
  if (!mn_major) {
    for (std::uint32_t row = 0; row < static_cast<std::uint32_t>(rows); ++row) {
      for (std::uint32_t c = 0; c < 2; ++c) {
        const std::uint32_t in_row = span == 16 ? c * view.leading : c * 16;
        chunks.push_back(swizzle_address(view.start + row / 8 * view.stride + row % 8 * span + in_row, span));
      }
    }
    return chunks;
  }
  const std::uint32_t per_span = span / 16;  // chunks of one atom along M or N
  for (std::uint32_t k = 0; k < 16; ++k) {
    for (std::uint32_t j = 0; j < static_cast<std::uint32_t>(rows) / 8; ++j) {
      const std::uint32_t along =
          span == 16 ? j * view.stride : j / per_span * view.leading + j % per_span * 16;
      const std::uint32_t deep = k / 8 * (span == 16 ? view.leading : view.stride);
      chunks.push_back(swizzle_address(view.start + along + deep + k % 8 * span, span));
    }
  }
  return chunks;
}

namespace {

float widen(std::uint16_t code, bool fp16) {
  if (fp16) return numerics::decode_fp16(code);
  const std::uint32_t bits = static_cast<std::uint32_t>(code) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// acc[64][n] += a[64][16] * b[16][n], k ascending, each product and sum rounded to float.
inline __attribute__((always_inline)) void multiply_body(float* acc, const float* a, const float* b, int n) {
  for (int row = 0; row < 64; ++row) {
    int col = 0;
    for (; col + 32 <= n; col += 32) {
      float sum[32];
      for (int i = 0; i < 32; ++i) sum[i] = acc[row * n + col + i];
      for (int k = 0; k < 16; ++k) {
        const float x = a[row * 16 + k];
        for (int i = 0; i < 32; ++i) sum[i] += x * b[k * n + col + i];
      }
      for (int i = 0; i < 32; ++i) acc[row * n + col + i] = sum[i];
    }
    for (; col < n; ++col) {
      float sum = acc[row * n + col];
      for (int k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[k * n + col];
      acc[row * n + col] = sum;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(float* acc, const float* a, const float* b, int n) {
  multiply_body(acc, a, b, n);
}
#endif

void multiply(float* acc, const float* a, const float* b, int n) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return multiply_avx2(acc, a, b, n);
#endif
  multiply_body(acc, a, b, n);
}

/// Row and column of element `i` of thread `t` of a warpgroup.
int element_row(int t, int i) {
  return 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
}
int element_column(int t, int i) {
  return 8 * (i / 4) + 2 * (t % 4) + i % 2;
}

void gather(const WgmmaOp& op, float* dense) {
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < op.n / 2; ++i)
      dense[element_row(t, i) * op.n + element_column(t, i)] =
          op.accumulators[static_cast<std::size_t>(t)][i];
  }
}

void scatter(const WgmmaOp& op, const float* dense) {
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < op.n / 2; ++i)
      op.accumulators[static_cast<std::size_t>(t)][i] =
          dense[element_row(t, i) * op.n + element_column(t, i)];
  }
}

void read_panel(Cta& cta, const std::vector<std::uint32_t>& chunks, int rows, bool mn_major, bool k_first,
                bool fp16, float* panel) {
  std::uint16_t values[8];
  std::size_t next = 0;
  if (mn_major) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < rows / 8; ++j) {
        std::memcpy(values, cta.shared.at(chunks[next++]), 16);
        for (int i = 0; i < 8; ++i) panel[k * rows + 8 * j + i] = widen(values[i], fp16);
      }
    }
    return;
  }
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < 2; ++c) {
      std::memcpy(values, cta.shared.at(chunks[next++]), 16);
      for (int i = 0; i < 8; ++i) {
        const int k = 8 * c + i;
        panel[k_first ? k * rows + row : row * 16 + k] = widen(values[i], fp16);
      }
    }
  }
}

/// Pair p of thread t: row 16 (t / 32) + (t % 32) / 4 + 8 (p % 2), k = 2 (t % 4) + 8 (p / 2) and the next.
void read_fragments(const std::array<std::array<std::uint32_t, 4>, 128>& registers, bool fp16, float* panel) {
  for (std::size_t t = 0; t < 128; ++t) {
    for (std::size_t p = 0; p < 4; ++p) {
      float* to = panel + (16 * (t / 32) + t % 32 / 4 + 8 * (p % 2)) * 16 + 2 * (t % 4) + 8 * (p / 2);
      to[0] = widen(static_cast<std::uint16_t>(registers[t][p] & 0xffff), fp16);
      to[1] = widen(static_cast<std::uint16_t>(registers[t][p] >> 16), fp16);
    }
  }
}

/// Executes queued operations of groups before `group`, at most `limit`; runs of one accumulator are moved only once.
void execute(Warpgroup& g, int group, std::size_t limit) {
  static thread_local std::vector<float> dense(64 * 256), a(64 * 16), b(16 * 256);
  const WgmmaOp* held = nullptr;
  std::unique_ptr<WgmmaOp> keep;
  while (!g.queue.empty() && g.queue.front()->group < group && limit-- > 0) {
    std::unique_ptr<WgmmaOp> op = std::move(g.queue.front());
    g.queue.pop_front();
    if (held && (held->n != op->n || held->accumulators != op->accumulators)) {
      scatter(*held, dense.data());
      held = nullptr;
    }
    if (!op->accumulate) {
      std::fill(dense.begin(), dense.begin() + 64 * op->n, 0.0f);
    } else if (!held) {
      gather(*op, dense.data());
    }
    if (op->a_in_registers)
      read_fragments(op->a_registers, op->fp16, a.data());
    else
      read_panel(*g.cta, op->a, 64, false, false, op->fp16, a.data());
    read_panel(*g.cta, op->b, op->n, op->b_mn_major, true, op->fp16, b.data());
    multiply(dense.data(), a.data(), b.data(), op->n);
    keep = std::move(op);
    held = keep.get();
  }
  if (held) scatter(*held, dense.data());
}

/// Lets the scheduler execute part of a warpgroup's queue at a moment of its choice.
class WgmmaStep : public AsyncOp {
 public:
  explicit WgmmaStep(Warpgroup& group) : group_(group) {}

 protected:
  void run(Machine& m) override {
    group_.token = false;
    const std::size_t ops = group_.queue.size();
    if (ops > 0) execute(group_, max_counter, 1 + static_cast<std::size_t>(m.random().below(ops)));
  }

 private:
  Warpgroup& group_;
};

bool legal(Thread& t, const MatrixView& view, int rows, bool mn_major, const char* operand, Site site) {
  const char* rule = nullptr;
  if (view.base_offset != 0) {
    rule = "base offset is not 0 (tiles start at a multiple of eight swizzle rows here)";
  } else if (view.span > 16 && (view.start >> 7) % 8 % (view.span / 16) != 0) {
    rule = "starts inside the swizzle pattern";
  } else if (view.span > 16 && !mn_major && view.start % view.span + 32 > view.span) {
    rule = "16 values of K cross the end of a swizzle row";
  } else if (view.span > 16 && view.stride % (8 * view.span) != 0) {
    rule = "stride is not a multiple of eight swizzle rows";
  } else if (view.span > 16 && mn_major && static_cast<std::uint32_t>(rows) * 2 > view.span &&
             view.leading % (8 * view.span) != 0) {
    rule = "leading offset is not a multiple of eight swizzle rows";
  }
  if (!rule) return true;
  t.machine->hazard(Hazard::illegal_descriptor, site, [&] {
    return t.label() + ": operand " + operand + ": " + rule + " (start " + std::to_string(view.start) +
           ", leading " + std::to_string(view.leading) + ", stride " + std::to_string(view.stride) +
           ", span " + std::to_string(view.span) + ")";
  });
  return false;
}

/// What the thread has brought to the rendezvous.
const WgmmaRegisters& registers_of(const Thread& t) {
  return *reinterpret_cast<const WgmmaRegisters*>(t.collective_value);
}

void form(Thread& t, int n, std::uint64_t a, std::uint64_t b, bool accumulate, bool b_mn_major, Site site) {
  Machine& m = *t.machine;
  Warpgroup& g = *t.group;
  auto op = std::make_unique<WgmmaOp>();
  const MatrixView view_a = decode_descriptor(a), view_b = decode_descriptor(b);
  op->a_in_registers = registers_of(*g.threads[0]).a != nullptr;
  op->fp16 = registers_of(*g.threads[0]).fp16;
  if (n % 8 != 0 || n < 8 || n > 256) {
    m.hazard(Hazard::illegal_descriptor, site, [&] { return t.label() + ": N = " + std::to_string(n); });
    return;
  }
  if (!op->a_in_registers && !legal(t, view_a, 64, false, "A", site)) return;
  if (!legal(t, view_b, n, b_mn_major, "B", site)) return;
  op->n = n;
  op->accumulate = accumulate;
  op->b_mn_major = b_mn_major;
  if (!op->a_in_registers) op->a = operand_chunks(view_a, 64, false);
  op->b = operand_chunks(view_b, n, b_mn_major);
  op->group = t.wgmma_committed;
  const Epoch stamp(g.agent, op->group + 1);
  for (const std::vector<std::uint32_t>* chunks : {&op->a, &op->b}) {
    if (!async_read_chunks(m, g.threads.data(), 128, *t.cta, *chunks, stamp, site)) return;
  }
  for (std::size_t i = 0; i < 128; ++i) {
    const WgmmaRegisters& registers = registers_of(*g.threads[i]);
    op->accumulators[i] = registers.accumulators;
    // Copied now: a write under the multiplication is reported when it happens.
    if (registers.a) std::copy_n(registers.a, 4, op->a_registers[i].begin());
  }
  OpCount& counter = m.report().counter(Op::wgmma);
  ++counter.calls;
  counter.bytes += (op->a_in_registers ? 0 : 64 * 32) + n * 32;
  g.queue.push_back(std::move(op));
  if (!g.token) {
    g.token = true;
    m.submit(std::make_shared<WgmmaStep>(g));
  }
}

}  // namespace

void accumulator_created(AccumulatorState& state) {
  state.owner = &current();
  state.touched = ++state.owner->register_sequence;
}

namespace {

void access(AccumulatorState& state, Site site) {
  Thread& t = *state.owner;
  state.touched = ++t.register_sequence;
  if (state.group < t.wgmma_waited) return;
  t.machine->hazard(Hazard::accumulator_in_flight, site, [&] {
    return t.label() + ": a multiplication of group " + std::to_string(state.group) +
           " may still write the accumulator; groups waited for: " + std::to_string(t.wgmma_waited);
  });
}

}  // namespace

void accumulator_cleared(AccumulatorState& state, int width, Site site) {
  access(state, site);
  state.initialised = true;
  state.width = width;
  state.brought_from = state.brought = 0;
}

void accumulator_touched(AccumulatorState& state, int index, Site site) {
  Thread& t = *state.owner;
  access(state, site);
  const int source = index < state.brought ? index + state.brought_from : index;
  if (!state.initialised || source >= state.width / 2) {
    t.machine->hazard(Hazard::uninitialised_read, site, [&] {
      return t.label() + ": accumulator element " + std::to_string(index) +
             " was not written by the last multiplication";
    });
  }
}

void accumulator_brought_down(AccumulatorState& state, int first, int number, Site site) {
  accumulator_touched(state, 0, site);
  state.brought_from = first;
  state.brought = number;
}

void accumulator_destroyed(AccumulatorState& state) {
  Thread& t = *state.owner;
  if (state.group < t.wgmma_waited || t.group->queue.empty()) return;
  t.machine->hazard(Hazard::accumulator_in_flight, Site{},
                    [&] { return t.label() + ": the accumulator goes out of scope under a multiplication"; });
  execute(*t.group, max_counter,
          t.group->queue.size());  // the operations must not write a stack that is gone
}

void operand_created(OperandState& state) {
  state.owner = &current();
}

void operand_written(OperandState& state, Site site) {
  Thread& t = *state.owner;
  state.touched = ++t.register_sequence;
  if (state.group < t.wgmma_waited) return;
  t.machine->hazard(Hazard::operand_in_flight, site, [&] {
    return t.label() + ": a multiplication of group " + std::to_string(state.group) +
           " may still read the registers; groups waited for: " + std::to_string(t.wgmma_waited);
  });
}

void operand_used(Thread& t, OperandState& state, Site site) {
  if (state.touched == 0) {
    t.machine->hazard(Hazard::uninitialised_read, site,
                      [&] { return t.label() + ": operand registers never written"; });
  }
  if (state.touched > t.fence_sequence) {
    t.machine->hazard(Hazard::missing_wgmma_fence, site, [&] {
      return t.label() + ": no wgmma.fence since the operand registers were written";
    });
  }
  state.group = t.wgmma_committed;
}

void operand_destroyed(OperandState& state) {
  Thread& t = *state.owner;
  if (state.group < t.wgmma_waited || t.group->queue.empty()) return;
  t.machine->hazard(Hazard::operand_in_flight, Site{}, [&] {
    return t.label() + ": the operand registers go out of scope under a multiplication";
  });
}

void wgmma_issue(Thread& t, const WgmmaRegisters& registers, AccumulatorState& state, int n, std::uint64_t a,
                 std::uint64_t b, bool accumulate, bool b_mn_major, Site site) {
  Machine& m = *t.machine;
  if (state.touched > t.fence_sequence || (state.group >= t.wgmma_waited && state.width != n)) {
    m.hazard(Hazard::missing_wgmma_fence, site, [&] {
      return t.label() +
             ": no wgmma.fence since the accumulator was last touched (or used with another shape)";
    });
  }
  if (accumulate && !state.initialised) {
    m.hazard(Hazard::uninitialised_read, site,
             [&] { return t.label() + ": adds to an accumulator never written"; });
  }
  state.initialised = true;
  state.group = t.wgmma_committed;
  state.width = n;
  state.brought_from = state.brought = 0;
  t.collective_value = reinterpret_cast<std::uint64_t>(&registers);
  const std::uint64_t key =
      (a * 0x9e3779b97f4a7c15ull ^ b) * 0x9e3779b97f4a7c15ull ^
      static_cast<std::uint64_t>(n * 8 + registers.fp16 * 4 + accumulate * 2 + b_mn_major) ^
      static_cast<std::uint64_t>(t.wgmma_committed) << 32;
  if (!warpgroup_arrive(t, Op::wgmma, key, site)) return;
  form(t, n, a, b, accumulate, b_mn_major, site);
  warpgroup_release(t);
}

void wgmma_commit(Thread& t) {
  ++t.wgmma_committed;
}

void wgmma_wait(Thread& t, int pending) {
  const int waited = t.wgmma_committed - pending;
  if (waited <= t.wgmma_waited) return;
  t.wgmma_waited = waited;
  execute(*t.group, waited, t.group->queue.size());
  t.clock.set(t.group->agent, waited);
}

}  // namespace gemmule::model
