// The CUDA backend's block-scaled operators behind C functions, so that scaled_torch.py can time them and PyTorch in one
// process. bench_error, bench_free, bench_workspace are those of dglu_c.cpp.
#include <cstdint>
#include <memory>

#include "backends/cuda/cuda.hpp"
#include "bench_c.hpp"

using gemmule::DType;

namespace {

using PlanPointer = std::shared_ptr<const gemmule::cuda::Plan>;

DType type_of(int code) {
  constexpr DType types[] = {DType::bfloat16,      DType::float16,     DType::float32,
                             DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn_x2};
  return types[code];
}

}  // namespace

extern "C" {

struct ScaledBenchOptions {
  std::int64_t n, k;
  int experts, dglu;
  int ab, c, d;  ///< as in type_of()
  int scale_e4m3, vec;
  int act;  ///< dglu: 0 dswiglu, 1 dgeglu, 2 dsituglu
  int discrete, n_major, dbias, deterministic, dynamic, discrete_col_sfd, m_aligned, sm_limit;
  float clamp;  ///< srelu: tanh_clamp_scale, 0 for none
};

struct ScaledBenchOperands {
  std::int64_t m;
  const void *a, *b, *sfa, *sfb;
  const std::int64_t *b_ptrs, *sfb_ptrs;
  const std::int32_t* offsets;
  const float *alpha, *beta, *prob, *norm_const;
  void *c, *d, *d_col;
  std::uint8_t *sfd_row, *sfd_col;
  float *amax, *dprob;
  std::uint16_t* dbias;
};

int scaled_plan(const ScaledBenchOptions* o, void** plan) {
  return guarded([&] {
    gemmule::Problem p;
    p.op = o->dglu != 0 ? gemmule::Op::dglu : gemmule::Op::srelu;
    p.n = o->n;
    p.k = o->k;
    p.experts = o->experts;
    p.ab = type_of(o->ab);
    p.scale = o->scale_e4m3 != 0 ? DType::float8_e4m3fn : DType::float8_e8m0fnu;
    p.vec = o->vec;
    p.c = type_of(o->c);
    p.d = type_of(o->d);
    p.quantize = p.has_d_col = o->d >= 3;
    p.has_amax = o->d < 2;
    p.discrete_col_sfd = p.quantize && o->discrete_col_sfd != 0;
    p.has_prob = true;
    p.has_dprob = o->dglu != 0;
    p.discrete = o->discrete != 0;
    p.b_n_major = o->n_major != 0;
    p.has_dbias = o->dbias != 0;
    p.deterministic = o->deterministic != 0;
    p.use_dynamic_sched = o->dynamic != 0;
    p.m_aligned = o->m_aligned;
    p.sm_limit = o->sm_limit;
    p.tanh_clamp_scale = o->clamp;
    p.act = static_cast<gemmule::ActFunc>(o->act);
    if (p.act == gemmule::ActFunc::dgeglu) {
      p.linear_offset = 1;
      p.geglu_alpha = 1.702f;
      p.glu_clamp_max = 7;
      p.glu_clamp_min = -7;
    }
    p.situ_beta1 = 4;
    p.situ_beta2 = 25;
    *plan = new PlanPointer(gemmule::cuda::compile(p, 0));
  });
}

int scaled_execute(const void* plan, const ScaledBenchOperands* o, void* workspace, std::int64_t bytes,
                   void* stream) {
  return guarded([&] {
    gemmule::Operands x;
    x.m = o->m;
    x.a = o->a;
    x.b = o->b;
    x.sfa = o->sfa;
    x.sfb = o->sfb;
    x.b_ptrs = o->b_ptrs;
    x.sfb_ptrs = o->sfb_ptrs;
    x.padded_offsets = o->offsets;
    x.alpha = o->alpha;
    x.beta = o->beta;
    x.prob = o->prob;
    x.norm_const = o->norm_const;
    x.c_in = x.c_out = o->c;
    x.d = o->d;
    x.d_col = o->d_col;
    x.sfd_row = o->sfd_row;
    x.sfd_col = o->sfd_col;
    x.amax = o->amax;
    x.dprob = o->dprob;
    x.dbias = o->dbias;
    gemmule::cuda::execute(**static_cast<const PlanPointer*>(plan), x, workspace,
                           static_cast<std::size_t>(bytes), gemmule::Stream{stream});
  });
}
}
