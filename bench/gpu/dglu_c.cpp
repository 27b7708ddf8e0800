// The CUDA backend's grouped_gemm_dglu behind C functions, so that dglu_torch.py can time it and PyTorch in one process.
#include <chrono>
#include <cstdint>
#include <memory>

#include "backends/cuda/cuda.hpp"
#include "bench_c.hpp"

using gemmule::DType;

namespace {

DType type_of(int bits) {
  return bits == 32 ? DType::float32 : bits == 16 ? DType::float16 : DType::bfloat16;
}

}  // namespace

using PlanPointer = std::shared_ptr<const gemmule::cuda::Plan>;

extern "C" {

struct BenchOptions {
  std::int64_t n, k;
  int experts;
  int c, d;  ///< 0 bf16, 16 fp16, 32 f32
  int geglu, discrete, n_major, dbias, deterministic, dynamic, sm_limit;
};

struct BenchOperands {
  std::int64_t m;
  const void *a, *b;
  const std::int64_t* b_ptrs;
  const std::int32_t* offsets;
  const float *alpha, *beta, *prob;
  const void* c;
  void* d;
  float* dprob;
  std::uint16_t* dbias;
};

static gemmule::Operands operands_of(const BenchOperands& o) {
  gemmule::Operands x;
  x.m = o.m;
  x.a = o.a;
  x.b = o.b;
  x.b_ptrs = o.b_ptrs;
  x.padded_offsets = o.offsets;
  x.alpha = o.alpha;
  x.beta = o.beta;
  x.prob = o.prob;
  x.c_in = o.c;
  x.d = o.d;
  x.dprob = o.dprob;
  x.dbias = o.dbias;
  return x;
}

const char* bench_error() {
  return last_error;
}

int bench_plan(const BenchOptions* o, void** plan) {
  return guarded([&] {
    gemmule::Problem p;
    p.op = gemmule::Op::dglu;
    p.n = o->n;
    p.k = o->k;
    p.experts = o->experts;
    p.ab = DType::bfloat16;
    p.c = type_of(o->c);
    p.d = type_of(o->d);
    p.has_prob = p.has_dprob = true;
    p.discrete = o->discrete != 0;
    p.b_n_major = o->n_major != 0;
    p.has_dbias = o->dbias != 0;
    p.deterministic = o->deterministic != 0;
    p.use_dynamic_sched = o->dynamic != 0;
    p.sm_limit = o->sm_limit;
    if (o->geglu != 0) {
      p.act = gemmule::ActFunc::dgeglu;
      p.geglu_value_filter = true;
      p.linear_offset = 1;
      p.geglu_alpha = 1.702f;
      p.glu_clamp_max = 7;
      p.glu_clamp_min = -7;
    }
    *plan = new PlanPointer(gemmule::cuda::compile(p, 0));
  });
}

void bench_free(void* plan) {
  delete static_cast<PlanPointer*>(plan);
}

std::int64_t bench_workspace(const void* plan, std::int64_t m) {
  const auto& p = *static_cast<const PlanPointer*>(plan);
  return static_cast<std::int64_t>(gemmule::cuda::workspace_size(*p, m));
}

int bench_execute(const void* plan, const BenchOperands* o, void* workspace, std::int64_t bytes,
                  void* stream) {
  return guarded([&] {
    gemmule::cuda::execute(**static_cast<const PlanPointer*>(plan), operands_of(*o), workspace,
                           static_cast<std::size_t>(bytes), gemmule::Stream{stream});
  });
}

/// Host time of one of `calls` calls in a row on the default stream.
int bench_host_seconds(const void* plan, const BenchOperands* o, void* workspace, std::int64_t bytes,
                       int calls, double* seconds) {
  return guarded([&] {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i)
      gemmule::cuda::execute(**static_cast<const PlanPointer*>(plan), operands_of(*o), workspace,
                             static_cast<std::size_t>(bytes), {});
    *seconds = std::chrono::duration<double>(Clock::now() - begin).count() / calls;
  });
}
}
