#include "model/scaled_on_model.hpp"

#include "backends/cpu_support.hpp"
#include "backends/cuda/sm90_scaled.hpp"
#include "engine/tma.hpp"
#include "model/kernel_run.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::test {
namespace {

namespace host = cuda::host;
namespace sm90 = cuda::sm90;

/// Tensor maps as the model reads them.
void place_maps(kernels::ScaledParams& params, const Problem& p, const Operands& o) {
  const sm90::ScaledMaps maps = sm90::scaled_maps(p, o);
  model::place_tensor_map(maps.a, &params.a);
  model::place_tensor_map(maps.b, &params.b);
  model::place_tensor_map(maps.c, &params.c);
  model::place_tensor_map(maps.d, &params.d);
  model::place_tensor_map(maps.d_col, &params.d_col);
}

}  // namespace

ScaledReports run_scaled_on_model(const TestProblem& t, const Outputs& out, const ScaledSettings& settings) {
  const Problem& p = t.problem;
  const Operands o = t.operands(out);
  const host::Scratch scratch = sm90::scaled_scratch(p, o.m);
  const Buffer buffer(static_cast<std::int64_t>(scratch.bytes));
  std::byte* workspace = buffer.as<std::byte>();
  model::GlobalMemory memory;
  register_memory(memory, t, out, buffer);

  ScaledReports reports;
  model::LaunchOptions launch = launch_options(settings);
  launch.granule = 1;  // scale codes are stored byte by byte
  if (host::needs_prepare(p)) {
    kernels::DgluPrepareParams prepare = host::prepare_params(p, o, workspace, scratch);
    model::place_tensor_map(sm90::scaled_maps(p, o).b, &prepare.pattern);
    launch.threads = 32;
    launch.grid = (p.experts + 31) / 32;
    reports.prepare = model::launch(launch, memory, [&] { kernels::dglu_prepare(prepare); });
  }

  launch.threads = static_cast<int>(kernels::scaled::threads);
  launch.grid = settings.multiprocessors;
  launch.drop = settings.drop;
  if (p.op == Op::srelu) {
    const kernels::ScaledSreluOptions options = host::scaled_srelu_options(p);
    kernels::ScaledSreluParams params = sm90::scaled_srelu_params(p, o, workspace);
    place_maps(params.common, p, o);
    launch.shared_bytes = kernels::scaled_layout(options.common).bytes;
    reports.main = model::launch(launch, memory, [&] { run_scaled_srelu(options, params); });
  } else {
    const kernels::ScaledDgluOptions options = host::scaled_dglu_options(p);
    kernels::ScaledDgluParams params = sm90::scaled_dglu_params(p, o, workspace);
    place_maps(params.common, p, o);
    launch.shared_bytes = kernels::scaled_dglu_layout(options).bytes;
    reports.main = model::launch(launch, memory, [&] { run_scaled_dglu(options, params); });
  }

  if (host::needs_finish(p)) {
    const kernels::DgluFinishParams finish =
        host::finish_params(p, o, workspace, scratch, sm90::scaled_column_tiles(p));
    reports.finish = run_finish(launch, memory, finish);
  }
  return reports;
}

std::string difference_from_cpu(const TestProblem& t, const ScaledSettings& settings) {
  const Outputs got = t.outputs();
  const std::string hazards = run_scaled_on_model(t, got, settings).text();
  if (!hazards.empty()) return hazards;
  return first_difference(t, got, run_cpu(t));
}

}  // namespace gemmule::test
