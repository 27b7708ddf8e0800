#include "model/sm100_on_model.hpp"

#include <stdexcept>

#include "backends/cpu_support.hpp"
#include "engine/tma.hpp"
#include "model/kernel_run.hpp"
#include "model/sm100_kernels.hpp"

namespace gemmule::test {

namespace sm100 = cuda::sm100;

extern const Sm100Instance sm100_n128_stages2_ctas1, sm100_n192_stages2_ctas2, sm100_n256_stages2_ctas2,
    sm100_n192_stages3_ctas1, sm100_n256_stages4_ctas2, sm100_n128_stages3_ctas2, sm100_n256_stages3_ctas1,
    sm100_n128_stages5_ctas1, sm100_n192_stages6_ctas2;

std::span<const Sm100Instance> sm100_instances() {
  static const Sm100Instance all[] = {
      sm100_n128_stages2_ctas1, sm100_n192_stages2_ctas2, sm100_n256_stages2_ctas2,
      sm100_n192_stages3_ctas1, sm100_n256_stages4_ctas2, sm100_n128_stages3_ctas2,
      sm100_n256_stages3_ctas1, sm100_n128_stages5_ctas1, sm100_n192_stages6_ctas2};
  return all;
}

namespace {

bool has_operator(const Sm100Instance& one, Op op) {
  return op == Op::dglu ? one.dglu != nullptr : one.srelu != nullptr;
}

const Sm100Instance& instance(Op op, sm100::TileConfig tile) {
  tile.width = 1;
  for (const Sm100Instance& one : sm100_instances())
    if (one.tile == tile && has_operator(one, op)) return one;
  throw std::logic_error("no such tile shape");
}

/// Tensor maps as the model reads them.
void place_maps(kernels::ScaledParams& common, kernels::ScaleMaps& scales, const sm100::Maps& maps) {
  model::place_tensor_map(maps.a, &common.a);
  model::place_tensor_map(maps.b, &common.b);
  model::place_tensor_map(maps.c, &common.c);
  model::place_tensor_map(maps.d, &common.d);
  model::place_tensor_map(maps.d_col, &common.d_col);
  model::place_tensor_map(maps.sfa, &scales.sfa);
  model::place_tensor_map(maps.sfb, &scales.sfb);
}

}  // namespace

std::vector<sm100::TileConfig> sm100_tiles(Op op) {
  std::vector<sm100::TileConfig> tiles;
  for (const Sm100Instance& one : sm100_instances())
    if (has_operator(one, op)) tiles.push_back(one.tile);
  return tiles;
}

Sm100Reports run_sm100_on_model(const TestProblem& t, const Outputs& out, const Sm100Settings& settings) {
  const Problem& p = t.problem;
  const Operands o = t.operands(out);
  const sm100::TileConfig& tile = settings.tile;
  const Buffer buffer(static_cast<std::int64_t>(sm100::scratch(p, o.m, tile).bytes));
  std::byte* workspace = buffer.as<std::byte>();
  const sm100::Maps maps = sm100::maps(p, o, tile);
  model::GlobalMemory memory;
  register_memory(memory, t, out, buffer, model::Access::read_write);

  Sm100Reports reports;
  model::LaunchOptions launch = launch_options(settings);
  launch.threads = 32;
  launch.grid = (p.experts + 31) / 32;
  const cuda::TensorMap patterns[] = {maps.b, maps.sfb};
  model::Report* const prepared[] = {&reports.prepare, &reports.prepare_scales};
  const auto before = sm100::prepare_params(p, o, workspace, tile);
  for (std::size_t i = 0; i < before.size(); ++i) {
    kernels::DgluPrepareParams params = before[i];
    model::place_tensor_map(patterns[i], &params.pattern);
    *prepared[i] = model::launch(launch, memory, [&] { kernels::dglu_prepare(params); });
  }

  const Sm100Instance& kernel = instance(p.op, tile);
  launch.threads = static_cast<int>(kernels::sm100::threads);
  launch.grid = settings.multiprocessors;
  launch.cluster = static_cast<int>(tile.ctas * tile.width);
  launch.shared_bytes = sm100::shared_bytes(p, tile);
  launch.drop = settings.drop;
  if (p.op == Op::srelu) {
    const kernels::ScaledSreluOptions options = cuda::host::scaled_srelu_options(p);
    kernels::Sm100SreluParams params = sm100::srelu_params(p, o, workspace, tile);
    place_maps(params.op.common, params.scales, maps);
    reports.main = model::launch(launch, memory, [&] { kernel.srelu(options, tile.width, params); });
  } else {
    const kernels::ScaledDgluOptions options = cuda::host::scaled_dglu_options(p);
    kernels::Sm100DgluParams params = sm100::dglu_params(p, o, workspace, tile);
    place_maps(params.op.common, params.scales, maps);
    reports.main = model::launch(launch, memory, [&] { kernel.dglu(options, tile.width, params); });
  }

  if (cuda::host::needs_finish(p)) {
    const kernels::DgluFinishParams finish = sm100::finish_params(p, o, workspace, tile);
    reports.finish = run_finish(launch, memory, finish);
  }
  return reports;
}

std::string difference_from_cpu(const TestProblem& t, const Sm100Settings& settings) {
  const Outputs got = t.outputs();
  const std::string hazards = run_sm100_on_model(t, got, settings).text();
  if (!hazards.empty()) return hazards;
  return first_difference(t, got, run_cpu(t));
}

}  // namespace gemmule::test
