#include "backends/cpu/cpu.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backends/cpu/kernel.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "gemmule/error.hpp"
#include "layout/offsets.hpp"
#include "numerics/formats.hpp"

// The rows of all experts are cut into row blocks, a row block and some columns of N make a unit, and threads take
// units from a counter. A unit's outputs depend on nothing but its inputs. dprob needs all columns of a row and dbias
// all rows of an expert: units leave partial sums of 128 columns or rows, which are added in ascending order after
// each wave of row blocks. Waves bound the memory of the partial sums.

namespace gemmule::cpu {
namespace {

using layout::ceil_div;
using layout::round_up;

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
constexpr std::int64_t scratch_limit = 62 * mebibyte;
constexpr std::int64_t partial_limit = 16 * mebibyte;
constexpr std::int64_t alignment = 256;
constexpr std::int64_t max_row_blocks = 1024;
constexpr int units_per_thread = 4;

struct RowBlock {
  int expert;
  std::int64_t group_start, group_rows;
  std::int64_t row, rows;
  std::int64_t wave_group;
};

/// How the workspace is divided: shared arrays, then one scratch per thread.
struct Plan {
  Blocking blocking;
  int threads;
  std::int64_t wave_groups;  ///< 128-row groups whose partial sums fit
  std::int64_t dprob_floats, dbias_floats, carry_floats;
  std::int64_t shared_bytes, thread_bytes;

  std::int64_t bytes() const { return shared_bytes + threads * thread_bytes; }
};

std::int64_t aligned(std::int64_t bytes) {
  return round_up(bytes, alignment);
}

Blocking make_blocking(std::int64_t rows, std::int64_t cols) {
  return {rows, cols, cols + 16};
}

std::int64_t bytes_per_thread(const Blocking& b) {
  return aligned(4 * b.rows * a_stride) + aligned(4 * b.cols * k_block) + aligned(4 * b.rows * b.sum_stride);
}

Plan make_plan(const Problem& problem, std::int64_t m, int threads) {
  Plan plan{};
  const std::int64_t rows = std::max<std::int64_t>(round_up(m, group), group);
  const std::int64_t cols = std::max<std::int64_t>(round_up(problem.n, group), group);

  // At least one group whatever N is, which keeps the whole below the limit up to N = 2^21. An expert whose rows are
  // no multiple of 128 needs one more.
  const std::int64_t dprob_per_group = problem.has_dprob ? group * (cols / group) : 0;
  const std::int64_t dbias_per_group = problem.has_dbias ? 2 * problem.n : 0;
  const std::int64_t per_group = 4 * (dprob_per_group + dbias_per_group);
  const std::int64_t needed = rows / group + problem.experts;
  plan.wave_groups = per_group == 0 ? needed : std::clamp(partial_limit / per_group, std::int64_t{1}, needed);
  plan.dprob_floats = plan.wave_groups * dprob_per_group;
  plan.dbias_floats = plan.wave_groups * dbias_per_group;
  plan.carry_floats = problem.has_dbias ? 2 * problem.n : 0;
  plan.shared_bytes = aligned(max_row_blocks * static_cast<std::int64_t>(sizeof(RowBlock))) +
                      aligned(4 * plan.dprob_floats) + aligned(4 * plan.dbias_floats) +
                      aligned(4 * plan.carry_floats);

  // Large blocks dequantize each operand less often; many threads have to share the limit.
  constexpr std::int64_t choices[][2] = {{512, 512}, {512, 256}, {256, 256}, {128, 256}, {128, 128}};
  const std::int64_t available = scratch_limit - plan.shared_bytes;
  for (const auto& [most_rows, most_cols] : choices) {
    plan.blocking =
        make_blocking(std::min({most_rows, rows, plan.wave_groups * group}), std::min(most_cols, cols));
    plan.thread_bytes = bytes_per_thread(plan.blocking);
    if (threads * plan.thread_bytes <= available) break;
  }
  plan.threads = static_cast<int>(std::clamp<std::int64_t>(available / plan.thread_bytes, 1, threads));
  return plan;
}

/// The workspace as the plan divides it.
struct Arena {
  RowBlock* row_blocks;
  float* dprob_partial;
  float* dbias_partial;
  float* carry;
  char* threads;

  Arena(const Plan& plan, void* workspace) {
    char* next = static_cast<char*>(workspace);
    const auto take = [&](std::int64_t bytes) {
      char* out = next;
      next += aligned(bytes);
      return out;
    };
    const auto take_floats = [&](std::int64_t count) { return reinterpret_cast<float*>(take(4 * count)); };
    row_blocks =
        reinterpret_cast<RowBlock*>(take(max_row_blocks * static_cast<std::int64_t>(sizeof(RowBlock))));
    dprob_partial = take_floats(plan.dprob_floats);
    dbias_partial = take_floats(plan.dbias_floats);
    carry = take_floats(plan.carry_floats);
    threads = next;
  }

  Scratch scratch(const Plan& plan, int slot) const {
    char* base = threads + slot * plan.thread_bytes;
    const std::int64_t a = aligned(4 * plan.blocking.rows * a_stride);
    const std::int64_t b = aligned(4 * plan.blocking.cols * k_block);
    return {reinterpret_cast<float*>(base), reinterpret_cast<float*>(base + a),
            reinterpret_cast<float*>(base + a + b)};
  }
};

/// Walks the row blocks of all experts in order.
class RowBlocks {
 public:
  RowBlocks(const Problem& problem, const Operands& operands, std::int64_t most_rows)
      : problem_(problem), operands_(operands), most_rows_(most_rows) {}

  /// Fills `out` with the next wave; returns its length, 0 at the end.
  std::int64_t next_wave(RowBlock* out, std::int64_t wave_groups) {
    std::int64_t count = 0, groups = 0;
    while (count < max_row_blocks && skip_finished_experts()) {
      const std::int64_t pieces = ceil_div(end_ - start_, most_rows_);
      const std::int64_t size = round_up(ceil_div(end_ - start_, pieces), group);
      const std::int64_t rows = std::min(size, end_ - row_);
      if (count > 0 && groups + ceil_div(rows, group) > wave_groups) break;
      out[count++] = {expert_, start_, end_ - start_, row_, rows, groups};
      groups += ceil_div(rows, group);
      row_ += rows;
    }
    return count;
  }

 private:
  bool skip_finished_experts() {
    while (row_ >= end_) {
      if (++expert_ >= problem_.experts) {
        expert_ = problem_.experts - 1;
        return false;
      }
      start_ = row_ = end_;
      end_ = problem_.single_group_runtime_offsets ? operands_.m : operands_.padded_offsets[expert_];
    }
    return true;
  }

  const Problem& problem_;
  const Operands& operands_;
  std::int64_t most_rows_;
  int expert_ = -1;
  std::int64_t start_ = 0, end_ = 0, row_ = 0;
};

/// What the threads of one wave share.
struct Wave {
  const Call& call;
  const Plan& plan;
  const Arena& arena;
  RunUnit run_unit;
  std::int64_t unit_cols, units_per_row_block, units;
  std::atomic<std::int64_t> next{0};
};

/// The larger of the caller's value and `bits`, compared as signed integers: -inf is below everything and NaN above.
void combine_amax(float& amax, std::int32_t bits) {
  const std::atomic_ref<float> target(amax);
  const float value = numerics::float_of(static_cast<std::uint32_t>(bits));
  float seen = target.load(std::memory_order_relaxed);
  while (static_cast<std::int32_t>(numerics::bits_of(seen)) < bits &&
         !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void work(void* context, int slot) noexcept {
  Wave& wave = *static_cast<Wave*>(context);
  const Problem& problem = wave.call.problem;
  const Scratch scratch = wave.arena.scratch(wave.plan, slot);
  while (true) {
    const std::int64_t index = wave.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= wave.units) return;
    const RowBlock& rows = wave.arena.row_blocks[index / wave.units_per_row_block];
    const std::int64_t col = index % wave.units_per_row_block * wave.unit_cols;
    const Unit unit{rows.expert,
                    rows.group_start,
                    rows.group_rows,
                    rows.row,
                    rows.rows,
                    col,
                    std::min(wave.unit_cols, problem.n - col),
                    rows.wave_group};
    const Maxima maxima = wave.run_unit(wave.call, unit, scratch);
    if (!problem.has_amax) continue;
    const int entries = problem.op == Op::srelu ? 1 : 2;
    for (int i = 0; i < entries; ++i)
      combine_amax(wave.call.operands.amax[rows.expert * entries + i], maxima.bits[i]);
  }
}

void add_dprob(const Call& call, const RowBlock& rows) {
  const std::int64_t parts = ceil_div(call.problem.n, group);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    const float* part = call.dprob_partial + (rows.wave_group * group + i) * parts;
    float sum = part[0];
    for (std::int64_t p = 1; p < parts; ++p) sum += part[p];
    call.operands.dprob[rows.row + i] += sum;
  }
}

/// Adds the row block's partial sums to `carry`, the FP32 sums of its expert so far, and rounds into the caller's
/// BF16 once the expert is complete.
void add_dbias(const Call& call, const RowBlock& rows, float* carry) {
  const std::int64_t width = 2 * call.problem.n;
  if (rows.row == rows.group_start) std::fill(carry, carry + width, 0.0f);
  for (std::int64_t g = 0; g < ceil_div(rows.rows, group); ++g) {
    const float* part = call.dbias_partial + (rows.wave_group + g) * width;
    for (std::int64_t j = 0; j < width; ++j) carry[j] += part[j];
  }
  if (rows.row + rows.rows < rows.group_start + rows.group_rows) return;
  std::uint16_t* dbias = call.operands.dbias + rows.expert * width;
  for (std::int64_t j = 0; j < width; ++j)
    dbias[j] = numerics::encode_bf16(numerics::decode_bf16(dbias[j]) + carry[j]);
}

struct Target {
  const char* name;
  RunUnit run_unit;
};

/// The best target of this machine, or the lower one that GEMMULE_CPU_TARGET asks for.
Target choose_target() noexcept {
#if defined(GEMMULE_CPU_X86)
  const char* wish = std::getenv("GEMMULE_CPU_TARGET");
  const bool generic_only = wish != nullptr && std::strcmp(wish, "generic") == 0;
  const bool no_avx512 = wish != nullptr && std::strcmp(wish, "avx2") == 0;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2 && has_avx512 && !generic_only && !no_avx512) return {"avx512", avx512::run_unit};
  if (has_avx2 && !generic_only) return {"avx2", avx2::run_unit};
#endif
  return {"generic", generic::run_unit};
}

}  // namespace

const char* target() noexcept {
  return choose_target().name;
}

std::size_t workspace_size(const Problem& problem, std::int64_t m) {
  return static_cast<std::size_t>(make_plan(problem, m, num_threads()).bytes());
}

void run(const Problem& problem, const Operands& operands, void* workspace, std::size_t workspace_bytes) {
  Plan plan = make_plan(problem, operands.m, num_threads());
  // The number of threads may have changed since the caller asked for the size.
  while (plan.threads > 1 && plan.bytes() > static_cast<std::int64_t>(workspace_bytes))
    plan = make_plan(problem, operands.m, plan.threads - 1);
  if (plan.bytes() > static_cast<std::int64_t>(workspace_bytes))
    throw InvalidArgument("workspace_bytes is " + std::to_string(workspace_bytes) + ", expected at least " +
                          std::to_string(plan.bytes()));
  if (reinterpret_cast<std::uintptr_t>(workspace) % alignment != 0)
    throw InvalidArgument("workspace is not aligned to " + std::to_string(alignment) + " bytes");

  const Arena arena(plan, workspace);
  const Call call{problem, operands, plan.blocking, arena.dprob_partial, arena.dbias_partial};
  RowBlocks row_blocks(problem, operands, plan.blocking.rows);
  while (const std::int64_t count = row_blocks.next_wave(arena.row_blocks, plan.wave_groups)) {
    std::int64_t cols = plan.blocking.cols;
    while (cols > group && count * ceil_div(problem.n, cols) < plan.threads * units_per_thread)
      cols = round_up(cols / 2, group);
    const std::int64_t per_row_block = ceil_div(problem.n, cols);
    Wave wave{call, plan, arena, choose_target().run_unit, cols, per_row_block, count * per_row_block};
    run_team(static_cast<int>(std::min<std::int64_t>(plan.threads, wave.units)) - 1, work, &wave);
    for (std::int64_t i = 0; i < count; ++i) {
      if (problem.has_dprob) add_dprob(call, arena.row_blocks[i]);
      if (problem.has_dbias) add_dbias(call, arena.row_blocks[i], arena.carry);
    }
  }
}

}  // namespace gemmule::cpu
