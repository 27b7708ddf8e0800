#include "pipeline.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "blas.hpp"
#include "numerics/quantization.hpp"

namespace gemmule::bench {
namespace {

const PipelinePasses& choose_passes() {
#if defined(GEMMULE_CPU_X86)
  if (std::strcmp(cpu::target(), "avx512") == 0) return avx512::passes;
  if (std::strcmp(cpu::target(), "avx2") == 0) return avx2::passes;
#endif
  return generic::passes;
}

/// body(begin, end) over [0, count) in pieces, multiples of 32, on all threads.
template <class Body>
void parallel(std::int64_t count, const Body& body) {
  const int threads = num_threads();
  const std::int64_t piece = std::max<std::int64_t>((count / (8 * threads) + 31) / 32 * 32, 32);
  struct Shared {
    const Body& body;
    std::int64_t count, piece;
    std::atomic<std::int64_t> next{0};
  } shared{body, count, piece};
  cpu::run_team(
      threads - 1,
      [](void* context, int) noexcept {
        Shared& s = *static_cast<Shared*>(context);
        while (true) {
          const std::int64_t begin = s.next.fetch_add(s.piece);
          if (begin >= s.count) return;
          s.body(begin, std::min(begin + s.piece, s.count));
        }
      },
      &shared);
}

}  // namespace

PipelineBuffers::PipelineBuffers(const Problem& p, std::int64_t m)
    : a(static_cast<std::size_t>(m * p.k)),
      b(static_cast<std::size_t>(p.experts * p.n * p.k)),
      c(static_cast<std::size_t>(p.op == Op::dglu ? m * p.width() : 0)),
      sum(static_cast<std::size_t>(m * p.n)),
      d(static_cast<std::size_t>(m * p.width())),
      dbias(static_cast<std::size_t>(p.width())) {}

void run_sgemm(const Problem& p, const Operands& o, PipelineBuffers& buffers) {
  const Blas& blas = Blas::instance();
  blas.set_num_threads(num_threads());
  std::int64_t start = 0;
  for (int g = 0; g < p.experts; ++g) {
    const std::int64_t rows = o.padded_offsets[g] - start;
    if (rows > 0)
      blas.multiply(rows, p.n, p.k, buffers.a.data() + start * p.k, buffers.b.data() + g * p.n * p.k,
                    buffers.sum.data() + start * p.n);
    start += rows;
  }
}

void run_pipeline(const Problem& p, const Operands& o, PipelineBuffers& buffers) {
  const PipelinePasses& passes = choose_passes();
  PipelineCall call{p, o, buffers};
  const auto rows = [&](auto pass, std::int64_t offset, std::int64_t count) {
    parallel(count, [&](std::int64_t begin, std::int64_t end) { pass(call, offset + begin, offset + end); });
  };
  rows(passes.dequantize_a, 0, o.m);
  rows(passes.dequantize_b, 0, p.experts * p.n);
  if (p.op == Op::dglu) rows(passes.dequantize_c, 0, o.m);
  run_sgemm(p, o, buffers);
  std::int64_t start = 0;
  for (int g = 0; g < p.experts; ++g) {
    const std::int64_t count = o.padded_offsets[g] - start;
    call.expert = g;
    rows(passes.activation, start, count);
    if (p.has_dbias) rows(passes.reduce_dbias, 0, p.width());
    if (p.has_amax) {
      std::atomic<std::int32_t> largest[2] = {0, 0};
      parallel(count, [&](std::int64_t begin, std::int64_t end) {
        std::int32_t bits[2] = {0, 0};
        passes.maxima(call, start + begin, start + end, bits);
        for (int i = 0; i < 2; ++i) {
          std::int32_t seen = largest[i];
          while (seen < bits[i] && !largest[i].compare_exchange_weak(seen, bits[i])) {
          }
        }
      });
      const int entries = p.op == Op::srelu ? 1 : 2;
      for (int i = 0; i < entries; ++i) {
        float& amax = o.amax[g * entries + i];
        amax = numerics::amax_step(amax, numerics::float_of(static_cast<std::uint32_t>(largest[i].load())));
      }
    }
    if (p.quantize) {
      rows(passes.quantize_rows, start, count);
      rows(passes.quantize_cols, start, count);
    } else {
      rows(passes.store, start, count);
    }
    start += count;
  }
}

}  // namespace gemmule::bench
