#include "model/scaled_on_model.hpp"

#include "backends/cpu_support.hpp"
#include "backends/cuda/sm90_scaled.hpp"
#include "engine/tma.hpp"
#include "sm90/dglu_side.hpp"
#include "sm90/scaled_dglu_layout.hpp"

namespace gemmule::test {
namespace {

using model::Access;
namespace sm90 = cuda::sm90;

void register_memory(model::GlobalMemory& memory, const TestProblem& t, const Outputs& out,
                     const Buffer& workspace) {
  const auto add = [&](const Buffer& b, const char* name, Access access, bool initialised = true) {
    if (b.size() > 0) memory.add(b.data(), static_cast<std::size_t>(b.size()), name, access, initialised);
  };
  const auto input = [&](const Buffer& b, const char* name) { add(b, name, Access::read_only); };
  input(t.a, "a");
  input(t.sfa, "sfa");
  for (const Buffer& b : t.b) input(b, "b");
  for (const Buffer& b : t.sfb) input(b, "sfb");
  input(t.c_in, "c");
  input(t.alpha, "alpha");
  input(t.beta, "beta");
  input(t.prob, "prob");
  input(t.norm_const, "norm_const");
  input(t.bias, "bias");
  memory.add(t.padded_offsets.data(), t.padded_offsets.size() * 4, "padded_offsets", Access::read_only);
  if (!t.b_ptrs.empty()) memory.add(t.b_ptrs.data(), t.b_ptrs.size() * 8, "b_ptrs", Access::read_only);
  if (!t.sfb_ptrs.empty())
    memory.add(t.sfb_ptrs.data(), t.sfb_ptrs.size() * 8, "sfb_ptrs", Access::read_only);
  add(out.c, "c", Access::write_once);
  add(out.d, "d", Access::write_once);
  add(out.d_col, "d_col", Access::write_once);
  add(out.sfd_row, "sfd_row", Access::read_write);
  add(out.sfd_col, "sfd_col", Access::read_write);
  add(out.amax, "amax", Access::read_write);
  add(out.dprob, "dprob", Access::read_write);
  add(out.dbias, "dbias", Access::read_write);
  add(workspace, "workspace", Access::read_write, false);
}

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
  const Buffer buffer(static_cast<std::int64_t>(sm90::scaled_scratch(p, o.m).bytes));
  std::byte* workspace = buffer.as<std::byte>();
  model::GlobalMemory memory;
  register_memory(memory, t, out, buffer);

  ScaledReports reports;
  model::LaunchOptions launch;
  launch.seed = settings.seed;
  launch.timing = settings.timing;
  launch.resident = settings.multiprocessors;
  launch.dependent = settings.dependent;
  launch.stop_at_hazard = settings.stop_at_hazard;
  launch.instruction_limit = settings.instruction_limit;
  launch.granule = 1;  // scale codes are stored byte by byte
  if (sm90::scaled_needs_prepare(p)) {
    kernels::DgluPrepareParams prepare = sm90::scaled_prepare_params(p, o, workspace);
    model::place_tensor_map(sm90::scaled_maps(p, o).b, &prepare.pattern);
    launch.threads = 32;
    launch.grid = (p.experts + 31) / 32;
    reports.prepare = model::launch(launch, memory, [&] { kernels::dglu_prepare(prepare); });
  }

  launch.threads = static_cast<int>(kernels::scaled::threads);
  launch.grid = settings.multiprocessors;
  launch.drop = settings.drop;
  if (p.op == Op::srelu) {
    const kernels::ScaledSreluOptions options = sm90::scaled_srelu_options(p);
    kernels::ScaledSreluParams params = sm90::scaled_srelu_params(p, o, workspace);
    place_maps(params.common, p, o);
    launch.shared_bytes = kernels::scaled_layout(options.common).bytes;
    reports.main = model::launch(launch, memory, [&] { run_scaled_srelu(options, params); });
  } else {
    const kernels::ScaledDgluOptions options = sm90::scaled_dglu_options(p);
    kernels::ScaledDgluParams params = sm90::scaled_dglu_params(p, o, workspace);
    place_maps(params.common, p, o);
    launch.shared_bytes = kernels::scaled_dglu_layout(options).bytes;
    reports.main = model::launch(launch, memory, [&] { run_scaled_dglu(options, params); });
  }
  launch.drop.reset();

  if (sm90::scaled_needs_finish(p)) {
    const kernels::DgluFinishParams finish = sm90::scaled_finish_params(p, o, workspace);
    launch.threads = static_cast<int>(kernels::finish_threads);
    launch.grid = static_cast<int>(kernels::finish_ctas(finish));
    launch.shared_bytes = 0;
    reports.finish = model::launch(launch, memory, [&] { kernels::dglu_finish(finish); });
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
