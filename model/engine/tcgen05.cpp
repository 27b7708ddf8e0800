#include "engine/tcgen05.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "engine/barriers.hpp"
#include "engine/tensor_memory.hpp"
#include "numerics/formats.hpp"

namespace gemmule::model {

bool TensorPipe::touches(const Cta& cta) const {
  return std::any_of(queue.begin(), queue.end(), [&](const auto& op) { return op->touches(cta); });
}

namespace {

// ---- the pipeline ----

/// Lets the scheduler execute part of a pipeline at a moment of its choice.
class PipeStep : public AsyncOp {
 public:
  explicit PipeStep(TensorPipe& pipe) : pipe_(pipe) {}

 protected:
  void run(Machine& m) override {
    int count = 1 + m.random().below(pipe_.queue.size());
    while (count-- > 0) {
      const std::unique_ptr<TensorOp> op = std::move(pipe_.queue.front());
      pipe_.queue.pop_front();
      op->run(m);
    }
    pipe_.token = !pipe_.queue.empty();
    if (pipe_.token) m.submit(std::make_shared<PipeStep>(pipe_));
  }

 private:
  TensorPipe& pipe_;
};

TensorPipe& pipe_of(Thread& t) {
  if (!t.pipe) t.pipe = std::make_unique<TensorPipe>(t.machine->take_agent(*t.cta));
  return *t.pipe;
}

void enqueue(Thread& t, std::unique_ptr<TensorOp> op) {
  TensorPipe& pipe = pipe_of(t);
  pipe.queue.push_back(std::move(op));
  if (pipe.token) return;
  pipe.token = true;
  t.machine->submit(std::make_shared<PipeStep>(pipe));
}

/// Stamp of what `t` issues now: covered by its next commit.
Epoch stamp_of(Thread& t) {
  const TensorPipe& pipe = pipe_of(t);
  return {pipe.agent, pipe.commits + 1};
}

// ---- values ----

using Table = std::array<float, 256>;
template <typename F>
Table make_table(F&& decode) {
  Table table;
  for (std::size_t code = 0; code < 256; ++code) table[code] = decode(static_cast<std::uint8_t>(code));
  return table;
}

const Table& table_of(TensorFormat format) {
  static const Table e4m3 = make_table(numerics::decode_e4m3), e5m2 = make_table(numerics::decode_e5m2),
                     e2m1 = make_table(numerics::decode_e2m1);
  return format == TensorFormat::e4m3 ? e4m3 : format == TensorFormat::e5m2 ? e5m2 : e2m1;
}

/// UE4M3 has no sign: what a code with the top bit set means is not documented, so it is NaN here.
const Table& scale_table(bool e8m0) {
  static const Table powers = make_table(numerics::decode_e8m0);
  static const Table ue4m3 = make_table([](std::uint8_t code) {
    return code < 0x80 ? numerics::decode_e4m3(code) : std::numeric_limits<float>::quiet_NaN();
  });
  return e8m0 ? powers : ue4m3;
}

/// The 128 / bits values of a chunk.
int decode_chunk(const std::uint8_t* bytes, TensorFormat format, float* out) {
  if (format == TensorFormat::bf16 || format == TensorFormat::f16) {
    std::uint16_t codes[8];
    std::memcpy(codes, bytes, 16);
    for (int i = 0; i < 8; ++i) {
      out[i] =
          format == TensorFormat::bf16 ? numerics::decode_bf16(codes[i]) : numerics::decode_fp16(codes[i]);
    }
    return 8;
  }
  const Table& table = table_of(format);
  if (format != TensorFormat::e2m1) {
    for (int i = 0; i < 16; ++i) out[i] = table[bytes[i]];
    return 16;
  }
  for (int i = 0; i < 16; ++i) {
    out[2 * i] = table[bytes[i] & 0xf];
    out[2 * i + 1] = table[bytes[i] >> 4];
  }
  return 32;
}

struct Operand {
  std::vector<std::uint32_t> chunks;
  TensorFormat format = TensorFormat::f16;
  int rows = 0;  ///< in one CTA's shared memory
  bool mn_major = false, negate = false;
};

/// panel[row * row_stride + k * k_stride], unscaled.
void read_panel(Cta& cta, const Operand& operand, int depth, float* panel, int row_stride, int k_stride) {
  float values[32];
  std::size_t next = 0;
  const auto put = [&](int row, int k, float value) {
    panel[row * row_stride + k * k_stride] = operand.negate ? -value : value;
  };
  if (operand.mn_major) {
    for (int k = 0; k < depth; ++k) {
      for (int row = 0; row < operand.rows;) {
        const int count = decode_chunk(cta.shared.at(operand.chunks[next++]), operand.format, values);
        for (int i = 0; i < count; ++i) put(row + i, k, values[i]);
        row += count;
      }
    }
    return;
  }
  for (int row = 0; row < operand.rows; ++row) {
    for (int k = 0; k < depth;) {
      const int count = decode_chunk(cta.shared.at(operand.chunks[next++]), operand.format, values);
      for (int i = 0; i < count; ++i) put(row, k + i, values[i]);
      k += count;
    }
  }
}

// Eight floats: one register with AVX2, two without.
using Vector = float __attribute__((vector_size(32)));
constexpr int vector_width = 8, strip_rows = 4, strip_columns = 2 * vector_width;

/// acc[r][c] += sum over k of a[r][k] b[k][c], k ascending, each product and each sum rounded to float.
inline __attribute__((always_inline)) void multiply_strip(float* const* acc, const float* a, const float* b,
                                                          int depth, int ld, int columns) {
  int c = 0;
  for (; c + strip_columns <= columns; c += strip_columns) {
    Vector sum[strip_rows][2];
    for (int r = 0; r < strip_rows; ++r) std::memcpy(sum[r], acc[r] + c, sizeof sum[r]);
    for (int k = 0; k < depth; ++k) {
      Vector y[2];
      std::memcpy(y, b + k * ld + c, sizeof y);
      for (int r = 0; r < strip_rows; ++r) {
        const float x = a[r * depth + k];
        sum[r][0] += x * y[0];
        sum[r][1] += x * y[1];
      }
    }
    for (int r = 0; r < strip_rows; ++r) std::memcpy(acc[r] + c, sum[r], sizeof sum[r]);
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < strip_rows; ++r) {
      float sum = acc[r][c];
      for (int k = 0; k < depth; ++k) sum += a[r * depth + k] * b[k * ld + c];
      acc[r][c] = sum;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_strip_avx2(float* const* acc, const float* a, const float* b,
                                                         int depth, int ld, int columns) {
  multiply_strip(acc, a, b, depth, ld, columns);
}
#endif

void multiply(float* const* acc, const float* a, const float* b, int depth, int ld, int columns) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return multiply_strip_avx2(acc, a, b, depth, ld, columns);
#endif
  multiply_strip(acc, a, b, depth, ld, columns);
}

// ---- mma ----

struct Scales {
  int column = 0, columns = 0, id = 0;
};

class Multiply : public TensorOp {
 public:
  Multiply(Cta& cta, Cta* peer, Site where) : TensorOp(cta, peer, where) {}
  InstructionView view;
  AccumulatorPlacement placement;
  Operand a, b;
  Scales a_scales, b_scales;
  int d_column = 0;
  bool accumulate = false;

  void run(Machine& m) override {
    static thread_local std::vector<float> rows, shared_columns, columns;
    rows.resize(static_cast<std::size_t>(placement.rows) * static_cast<std::size_t>(view.k));
    shared_columns.resize(static_cast<std::size_t>(view.n) * static_cast<std::size_t>(view.k));
    const int per_cta = view.n / view.ctas;
    for (int i = 0; i < view.ctas; ++i) {
      if (!alive(m, *ctas[i])) return;
      read_panel(*ctas[i], b, view.k, shared_columns.data() + i * per_cta, 1, view.n);
    }
    for (int i = 0; i < view.ctas; ++i) {
      read_panel(*ctas[i], a, view.k, rows.data(), view.k, 1);
      columns = shared_columns;
      if (view.block != 0) {
        scale(m, *ctas[i], a_scales, placement.rows, rows.data(), view.k, 1);
        scale(m, *ctas[i], b_scales, view.n, columns.data(), 1, view.n);
      }
      accumulate_into(tensor_of(*ctas[i]), rows.data(), columns.data());
    }
  }

 private:
  bool alive(Machine& m, const Cta& cta) const {
    if (cta.live > 0) return true;
    m.hazard(Hazard::exit_while_pending, site, [&] {
      return "a tcgen05.mma reads the shared memory of cta " + std::to_string(cta.index) +
             ", which has exited";
    });
    return false;
  }

  /// Multiplies every value by its block's scale. The four copies of the scales must agree: which copy serves which row is
  /// the hardware's choice.
  void scale(Machine& m, Cta& cta, const Scales& scales, int count, float* panel, int row_stride,
             int k_stride) const {
    const Table& table = scale_table(view.e8m0_scales);
    TensorMemory& memory = tensor_of(cta);
    for (int row = 0; row < count; ++row) {
      const int lane = row % 32, column = scales.column + row / 32;
      for (int q = 1; q < TensorMemory::quarters; ++q) {
        if (std::memcmp(memory.row(lane) + column, memory.row(32 * q + lane) + column, 4) == 0) continue;
        m.hazard(Hazard::tensor_memory_misuse, site, [&] {
          return "scale factors of cta " + std::to_string(cta.index) + ", column " + std::to_string(column) +
                 ", differ between lanes " + std::to_string(lane) + " and " + std::to_string(32 * q + lane);
        });
      }
      const auto* word = reinterpret_cast<const unsigned char*>(memory.row(lane) + column);
      for (int k = 0; k < view.k; ++k) {
        panel[row * row_stride + k * k_stride] *= table[word[scales.id + k / view.block]];
      }
    }
  }

  void accumulate_into(TensorMemory& memory, const float* rows, const float* columns) const {
    for (int half = 0; half < placement.halves; ++half) {
      for (int row = 0; row < placement.rows; row += strip_rows) {
        float* acc[strip_rows];
        for (int r = 0; r < strip_rows; ++r) {
          acc[r] = memory.row(placement.lane(row + r, half)) + d_column;
          if (!accumulate) std::fill_n(acc[r], placement.columns, 0.0f);
        }
        multiply(acc, rows + row * view.k, columns + half * placement.columns, view.k, view.n,
                 placement.columns);
      }
    }
  }
};

class CopyScales : public TensorOp {
 public:
  CopyScales(Cta& cta, Cta* peer, int to, std::vector<std::uint32_t> chunks, Site where)
      : TensorOp(cta, peer, where), column_(to), chunks_(std::move(chunks)) {}
  void run(Machine&) override {
    for (Cta* cta : ctas) {
      if (!cta || cta->live == 0) continue;  // reported when it ended
      TensorMemory& memory = tensor_of(*cta);
      for (int lane = 0; lane < TensorMemory::lanes; ++lane) {
        std::memcpy(memory.row(lane) + column_, cta->shared.at(chunks_[static_cast<std::size_t>(lane % 32)]),
                    16);
      }
    }
  }

 private:
  int column_;
  std::vector<std::uint32_t> chunks_;
};

/// A commit's arrival in one CTA.
class Arrival : public AsyncOp {
 public:
  Arrival(Mbarrier& barrier, const Clock& clock, Site site) : barrier_(barrier), clock_(clock), site_(site) {
    ++barrier.on_the_way;
  }

 protected:
  void run(Machine& m) override {
    --barrier_.on_the_way;
    if (barrier_.cta->live > 0) async_arrive(m, barrier_, clock_, site_);  // else reported when it ended
  }

 private:
  Mbarrier& barrier_;
  Clock clock_;
  Site site_;
};

class Commit : public TensorOp {
 public:
  Commit(Cta& cta, const Clock& clock, Site where) : TensorOp(cta, nullptr, where), clock_(clock) {}
  std::vector<Mbarrier*> barriers;

  void run(Machine& m) override {
    for (Mbarrier* b : barriers) {
      if (b->cta->live == 0) continue;  // reported when it ended
      if (barriers.size() == 1)
        async_arrive(m, *b, clock_, site);
      else
        m.submit(std::make_shared<Arrival>(*b, clock_, site));
    }
  }
  bool touches(const Cta& cta) const override {
    return std::any_of(barriers.begin(), barriers.end(), [&](const Mbarrier* b) { return b->cta == &cta; });
  }

 private:
  Clock clock_;
};

// ---- checks at issue ----

bool refuse(Thread& t, Hazard kind, Site site, const std::string& why) {
  t.machine->hazard(kind, site, [&] { return t.label() + ": " + why; });
  return false;
}

/// Pairs are issued by the even CTA here, as every public kernel does.
bool check_issuer(Thread& t, int ctas, Site site) {
  if (!check_group(t, ctas, site)) return false;
  if (ctas == 1 || t.cta->rank % 2 == 0) return true;
  return refuse(t, Hazard::illegal_instruction, site,
                "operations of a pair issued by the odd CTA are not modelled");
}

bool check_operand(Thread& t, const char* which, const OperandView& view, const Operand& operand, int bits,
                   Site site) {
  const std::string error = operand_error(view, operand.rows, operand.mn_major, bits);
  if (error.empty()) return true;
  return refuse(t, Hazard::illegal_descriptor, site,
                std::string("operand ") + which + ": " + error + " (start " + std::to_string(view.start) +
                    ", leading " + std::to_string(view.leading) + ", stride " + std::to_string(view.stride) +
                    ", span " + std::to_string(view.span) + ")");
}

bool check_destination(Thread& t, const AccumulatorPlacement& p, std::uint32_t address, Site site) {
  const int lane = tensor_lane(address);
  if (lane != 0 && !(p.quarter && lane == 16)) {
    return refuse(t, Hazard::tensor_memory_misuse, site, "D starts at lane " + std::to_string(lane));
  }
  return true;
}

/// Scale factors lie whole in the columns: no public kernel starts them at an odd one.
bool check_scales(Thread& t, std::uint32_t address, Site site) {
  if (tensor_lane(address) == 0 && tensor_column(address) % 2 == 0) return true;
  return refuse(t, Hazard::tensor_memory_misuse, site,
                "scale factors at lane " + std::to_string(tensor_lane(address)) + ", column " +
                    std::to_string(tensor_column(address)) + ": they start at lane 0 and an even column");
}

bool access_scales(Thread& t, Cta& cta, const Scales& s, int rows, Epoch stamp, Site site) {
  // The last column may be needed in part only.
  for (int i = 0; i < s.columns; ++i) {
    const int in_column = std::min(32, rows - 32 * i);
    TensorAccess access{.first = s.column + i, .count = 1, .read = true};
    for (std::uint32_t& mask : access.lane_masks) mask = 0xffffffffu >> (32 - in_column);
    if (!tensor_access(t, cta, access, stamp, site)) return false;
  }
  return true;
}

bool access_everything(Thread& t, Multiply& op, Cta& cta, Epoch stamp, Site site) {
  Machine& m = *t.machine;
  Thread* issuer = &t;
  for (const Operand* operand : {&op.a, &op.b}) {
    if (!async_read_chunks(m, &issuer, 1, cta, operand->chunks, stamp, site)) return false;
  }
  if (op.view.block != 0 && (!access_scales(t, cta, op.a_scales, op.placement.rows, stamp, site) ||
                             !access_scales(t, cta, op.b_scales, op.view.n, stamp, site))) {
    return false;
  }
  TensorAccess d{.first = op.d_column, .count = op.placement.columns, .read = op.accumulate, .write = true};
  for (std::uint32_t& mask : d.lane_masks) mask = op.placement.mask();
  return tensor_access(t, cta, d, stamp, site);
}

Scales scales_at(std::uint32_t address, int rows, int id) {
  return {tensor_column(address), (rows + 31) / 32, id};
}

}  // namespace

void tensor_multiply(Thread& t, const TensorMultiply& o, Site site) {
  if (!check_issuer(t, o.ctas, site)) return;
  Cta* peer = o.ctas == 2 ? peer_of(*t.cta) : nullptr;
  auto op = std::make_unique<Multiply>(*t.cta, peer, site);
  op->view = decode_instruction(o.kind, o.block, o.ctas, o.instruction);
  const InstructionView& v = op->view;
  if (!v.error.empty()) {
    refuse(t, Hazard::illegal_instruction, site, v.error);
    return;
  }
  op->placement = placement_of(v, tensor_lane(o.d));
  op->d_column = tensor_column(o.d);
  op->accumulate = o.accumulate;
  const OperandView a = decode_operand(o.a), b = decode_operand(o.b);
  op->a = {{}, v.a, op->placement.rows, v.a_mn_major, v.negate_a};
  op->b = {{}, v.b, v.n / v.ctas, v.b_mn_major, v.negate_b};
  if (!check_operand(t, "A", a, op->a, v.element_bits(), site) ||
      !check_operand(t, "B", b, op->b, v.element_bits(), site) ||
      !check_destination(t, op->placement, o.d, site)) {
    return;
  }
  op->a.chunks = tensor_operand_chunks(a, op->a.rows, v.a_mn_major, v.element_bits());
  op->b.chunks = tensor_operand_chunks(b, op->b.rows, v.b_mn_major, v.element_bits());
  if (v.block != 0) {
    if (!check_scales(t, o.a_scales, site) || !check_scales(t, o.b_scales, site)) return;
    op->a_scales = scales_at(o.a_scales, op->placement.rows, v.a_scale_id);
    op->b_scales = scales_at(o.b_scales, v.n, v.b_scale_id);
  }
  const Epoch stamp = stamp_of(t);
  for (Cta* cta : {t.cta, peer}) {
    if (cta && !access_everything(t, *op, *cta, stamp, site)) return;
  }
  OpCount& counter = t.machine->report().counter(Op::tensor_mma);
  ++counter.calls;
  counter.bytes += (v.m + v.n) * 32;
  enqueue(t, std::move(op));
}

void tensor_copy(Thread& t, std::uint32_t to, std::uint64_t from, int ctas, Site site) {
  if (!check_issuer(t, ctas, site)) return;
  const OperandView view = decode_operand(from);
  const std::string error = !view.error.empty() ? view.error
                            : view.span != 16   ? "tcgen05.cp from swizzled shared memory is not modelled"
                                                : "";
  if (!error.empty()) {
    refuse(t, Hazard::illegal_descriptor, site, error);
    return;
  }
  if (tensor_lane(to) != 0) {
    refuse(t, Hazard::tensor_memory_misuse, site, "copies to lane " + std::to_string(tensor_lane(to)));
    return;
  }
  Cta* peer = ctas == 2 ? peer_of(*t.cta) : nullptr;
  std::vector<std::uint32_t> chunks = copy_chunks(view);
  const Epoch stamp = stamp_of(t);
  Thread* issuer = &t;
  TensorAccess access{.first = tensor_column(to), .count = 4, .write = true};
  for (std::uint32_t& mask : access.lane_masks) mask = 0xffffffffu;
  for (Cta* cta : {t.cta, peer}) {
    if (!cta) continue;
    if (!async_read_chunks(*t.machine, &issuer, 1, *cta, chunks, stamp, site)) return;
    if (!tensor_access(t, *cta, access, stamp, site)) return;
  }
  OpCount& counter = t.machine->report().counter(Op::tensor_copy);
  ++counter.calls;
  counter.bytes += 512 * ctas;
  enqueue(t, std::make_unique<CopyScales>(*t.cta, peer, access.first, std::move(chunks), site));
}

void tensor_commit(Thread& t, std::uint32_t barrier, std::optional<std::uint32_t> destinations, int ctas,
                   Site site) {
  Machine& m = *t.machine;
  if (!check_issuer(t, ctas, site)) return;
  std::uint32_t offset = 0;
  if (resolve(t, barrier, offset) != t.cta) {
    refuse(t, Hazard::mbarrier_misuse, site,
           "commits to a barrier that is not given by its address in the own CTA");
    return;
  }
  // What the operations before came after is released with them; ordinary accesses of this thread are not.
  Clock released = t.clock;
  for (const auto& cta : t.cta->cluster->ctas) released.forget(cta->agent_base, m.options().threads);
  TensorPipe& pipe = pipe_of(t);
  released.set(pipe.agent, ++pipe.commits);
  auto op = std::make_unique<Commit>(*t.cta, released, site);
  for (Cta* cta : multicast_targets(t, destinations, site)) {
    if (Mbarrier* b = commit_barrier(t, *cta, offset, site)) op->barriers.push_back(b);
  }
  enqueue(t, std::move(op));
}

}  // namespace gemmule::model
