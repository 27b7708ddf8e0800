#include "bench.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>

#include "backends/cpu/cpu.hpp"
#include "blas.hpp"
#include "gemmule/error.hpp"
#include "gemmule/options.hpp"
#include "pipeline.hpp"
#include "synthetic.hpp"

namespace gemmule::bench {
namespace {

double now(bool cpu_time) {
  timespec time{};
  clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Timing summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

/// The pipeline works on whole blocks.
void expect_blocks(const char* name, std::int64_t value, std::int64_t multiple) {
  if (value < 0 || value % multiple != 0)
    throw InvalidArgument(std::string(name) + ": " + std::to_string(value) + ", expected a multiple of " +
                          std::to_string(multiple));
}

/// OpenBLAS' idle threads spin for a while after a call; whoever is timed next should not pay for that.
void let_blas_threads_sleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

}  // namespace

Problem make_problem(Op op, const std::string& format, int experts, std::int64_t n, std::int64_t k) {
  Problem p;
  p.op = op;
  p.n = n;
  p.k = k;
  p.experts = experts;
  p.c = DType::bfloat16;
  p.d = DType::bfloat16;
  p.has_prob = true;
  p.has_dprob = op == Op::dglu;
  p.linear_offset = 1.0f;
  p.geglu_alpha = 1.702f;
  p.glu_clamp_max = 7.0f;
  p.glu_clamp_min = -7.0f;
  p.situ_beta1 = 4.0f;
  p.situ_beta2 = 25.0f;
  if (format == "bf16" && op == Op::dglu) {
    p.ab = DType::bfloat16;
  } else if (format == "mxfp8" || format == "mxfp8_e5m2") {
    p.ab = format == "mxfp8" ? DType::float8_e4m3fn : DType::float8_e5m2;
    p.scale = DType::float8_e8m0fnu;
    p.vec = 32;
    p.d = DType::float8_e4m3fn;
    p.quantize = true;
    p.has_d_col = true;
  } else if (format == "mxfp4" || format == "nvfp4") {
    p.ab = DType::float4_e2m1fn_x2;
    p.scale = format == "mxfp4" ? DType::float8_e8m0fnu : DType::float8_e4m3fn;
    p.vec = format == "mxfp4" ? 32 : 16;
    p.has_amax = true;
  } else {
    throw InvalidArgument("format: \"" + format + "\", expected " + (op == Op::dglu ? "bf16, " : "") +
                          "mxfp8, mxfp8_e5m2, mxfp4 or nvfp4");
  }
  return p;
}

bool has_baseline() {
  return Blas::instance().loaded();
}

std::string baseline_description() {
  return Blas::instance().description();
}

Result run_case(const Case& which, const Options& options) {
  const Problem& p = which.problem;
  if (which.rows.size() != static_cast<std::size_t>(p.experts))
    throw InvalidArgument("rows: " + std::to_string(which.rows.size()) +
                          " entries, expected one per expert (" + std::to_string(p.experts) + ")");
  expect_blocks("n", p.n, 32);
  expect_blocks("k", p.k, 32);
  for (const std::int64_t rows : which.rows) expect_blocks("rows", rows, 128);
  HostMemory host;
  const Synthetic data(p, which.rows, options.seed, host);
  const Operands& o = data.operands();
  const std::size_t workspace_bytes = cpu::workspace_size(p, o.m);
  std::vector<std::uint8_t> memory(workspace_bytes + 256);
  std::uint8_t* workspace =
      memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256;
  std::optional<PipelineBuffers> buffers;
  if (options.baseline && has_baseline()) buffers.emplace(p, o.m);

  const auto ours = [&] { cpu::run(p, o, workspace, workspace_bytes); };
  const auto pipeline = [&] { run_pipeline(p, o, *buffers); };
  const auto sgemm = [&] { run_sgemm(p, o, *buffers); };
  const auto seconds = [&](const auto& body) {
    const double start = now(options.cpu_time);
    body();
    return now(options.cpu_time) - start;
  };
  std::vector<double> times[3];
  ours();  // Touches all memory and starts the threads.
  if (buffers) pipeline();
  for (int round = 0; round < options.repeats; ++round) {
    if (buffers) let_blas_threads_sleep();
    times[0].push_back(seconds(ours));
    if (buffers) {
      times[1].push_back(seconds(pipeline));
      let_blas_threads_sleep();
      times[2].push_back(seconds(sgemm));
    }
    if (options.progress) options.progress(round + 1, options.repeats);
  }

  Result result;
  result.label = which.label;
  result.target = cpu::target();
  result.threads = num_threads();
  result.flops = 2.0 * static_cast<double>(o.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  result.bytes = data.bytes();
  result.ours = summarize(times[0]);
  result.pipeline = summarize(times[1]);
  result.products = summarize(times[2]);
  return result;
}

}  // namespace gemmule::bench
