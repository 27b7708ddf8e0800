#include "model/dglu_on_model.hpp"

#include <stdexcept>
#include <vector>

#include "backends/cuda/tensor_map.hpp"
#include "engine/tma.hpp"
#include "model/dglu_kernels.hpp"
#include "model/kernel_run.hpp"
#include "sm90/bf16_dglu_layout.hpp"

namespace gemmule::test {

namespace {

using kernels::DgluOptions;
using kernels::DgluParams;
using model::Access;

const DgluInstance& instance(DgluTile tile) {
  switch (tile) {
    case DgluTile::n128_cluster1:
      return dglu_n128_cluster1;
    case DgluTile::n128_cluster2:
      return dglu_n128_cluster2;
    case DgluTile::n192_cluster2:
      return dglu_n192_cluster2;
    case DgluTile::n64_cluster1:
      return dglu_n64_cluster1;
  }
  throw std::logic_error("no such tile");
}

kernels::Format format_of(DType type) {
  return type == DType::float32   ? kernels::Format::f32
         : type == DType::float16 ? kernels::Format::fp16
                                  : kernels::Format::bf16;
}

cuda::Element element_of(DType type) {
  return type == DType::float32   ? cuda::Element::f32
         : type == DType::float16 ? cuda::Element::f16
                                  : cuda::Element::bf16;
}

std::uint64_t address(const void* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

/// A map of rows x columns values, or slabs of them, with boxes of 128 bytes by `box_rows`.
cuda::TensorMap matrix_map(const void* base, DType type, std::int64_t columns, std::int64_t rows,
                           std::int64_t slabs, int box_rows) {
  cuda::TensorMap map;
  map.element = element_of(type);
  const std::uint64_t bytes = static_cast<std::uint64_t>(cuda::element_bits(map.element)) / 8;
  map.base = address(base);
  map.rank = slabs > 0 ? 3 : 2;
  map.extent[0] = static_cast<std::uint64_t>(columns);
  map.extent[1] = static_cast<std::uint64_t>(rows);
  map.stride[0] = map.extent[0] * bytes;
  map.box[0] = static_cast<std::uint32_t>(128 / bytes);
  map.box[1] = static_cast<std::uint32_t>(box_rows);
  if (slabs > 0) {
    map.extent[2] = static_cast<std::uint64_t>(slabs);
    map.stride[1] = map.stride[0] * map.extent[1];
    map.box[2] = 1;
  }
  map.swizzle = cuda::Swizzle::b128;
  return map;
}

DgluOptions options_of(const Problem& p, bool dynamic) {
  DgluOptions o;
  o.c = format_of(p.c);
  o.d = format_of(p.d);
  o.activation = p.act == ActFunc::dgeglu ? kernels::Activation::dgeglu : kernels::Activation::dswiglu;
  o.geglu = {p.linear_offset, p.geglu_alpha, p.glu_clamp_max, p.glu_clamp_min, p.geglu_value_filter};
  o.discrete = p.discrete;
  o.b_n_major = p.b_n_major;
  o.has_dprob = p.has_dprob;
  o.has_dbias = p.has_dbias;
  o.deterministic = p.deterministic;
  o.dynamic = dynamic;
  return o;
}

/// Scratch and parameters of one call.
struct Call {
  Call(const TestProblem& problem, const Outputs& out, const ModelSettings& settings)
      : t(problem),
        operands(t.operands(out)),
        shape(instance(settings.tile)),
        options(options_of(t.problem, settings.dynamic)) {
    const Problem& p = t.problem;
    column_tiles = (p.n + shape.tile_n - 1) / shape.tile_n;
    if (p.has_dbias) column_sums = Buffer(operands.m / 128 * 2 * p.n * 4);
    if (p.has_dprob && p.deterministic) dprob_tiles = Buffer(column_tiles * operands.m * 4);
    if (p.discrete) b_maps = Buffer(static_cast<std::int64_t>(t.padded_offsets.size()) * 128);
    fill_params();
    register_memory(out);
  }

  void fill_params() {
    const Problem& p = t.problem;
    const auto place = [](const cuda::TensorMap& map, ptx::TensorMap& to) {
      model::place_tensor_map(map, &to);
    };
    place(matrix_map(operands.a, DType::bfloat16, p.k, operands.m, 0, 128), params.a);
    place(matrix_map(operands.c_in, p.c, 2 * p.n, operands.m, 0, 128), params.c);
    place(matrix_map(operands.d, p.d, 2 * p.n, operands.m, 0, 128), params.d);
    const std::int64_t slabs = p.discrete ? 1 : p.experts;
    const void* b = p.discrete ? t.b[0].data() : operands.b;
    const cuda::TensorMap b_map =
        p.b_n_major ? matrix_map(b, DType::bfloat16, p.n, p.k, slabs, 64 / shape.cluster)
                    : matrix_map(b, DType::bfloat16, p.k, p.n, slabs, shape.tile_n / shape.cluster);
    if (p.discrete) {
      place(b_map, prepare.pattern);
      params.b_maps = prepare.b_maps = b_maps.as<ptx::TensorMap>();
      prepare.b_ptrs = operands.b_ptrs;
    } else {
      place(b_map, params.b);
    }
    prepare.experts = params.experts = finish.experts = static_cast<std::uint32_t>(p.experts);
    if (options.dynamic) params.next_tile = prepare.next_tile = &next_tile;
    params.offsets = finish.offsets = operands.padded_offsets;
    params.alpha = operands.alpha;
    params.beta = operands.beta;
    params.prob = operands.prob;
    params.prob_stride = operands.prob_stride;
    params.m = finish.m = operands.m;
    params.n = static_cast<std::uint32_t>(p.n);
    params.k = static_cast<std::uint32_t>(p.k);
    params.dprob = p.deterministic ? dprob_tiles.as<float>() : operands.dprob;
    params.column_sums = column_sums.as<float>();
    if (p.has_dprob && p.deterministic) {
      finish.dprob_tiles = dprob_tiles.as<float>();
      finish.dprob = operands.dprob;
    }
    if (p.has_dbias) {
      finish.column_sums = column_sums.as<float>();
      finish.dbias = operands.dbias;
    }
    finish.column_tiles = static_cast<std::uint32_t>(column_tiles);
    finish.columns = static_cast<std::uint32_t>(2 * p.n);
  }

  void register_memory(const Outputs& out) {
    const auto input = [&](const Buffer& b, const char* name) {
      if (b.size() > 0) memory.add(b.data(), static_cast<std::size_t>(b.size()), name, Access::read_only);
    };
    const auto scratch = [&](const Buffer& b, const char* name) {
      if (b.size() > 0)
        memory.add(b.data(), static_cast<std::size_t>(b.size()), name, Access::read_write, false);
    };
    input(t.a, "a");
    input(t.c_in, "c");
    input(t.alpha, "alpha");
    input(t.beta, "beta");
    input(t.prob, "prob");
    for (const Buffer& b : t.b) input(b, "b");
    memory.add(t.padded_offsets.data(), t.padded_offsets.size() * 4, "padded_offsets", Access::read_only);
    if (!t.b_ptrs.empty()) memory.add(t.b_ptrs.data(), t.b_ptrs.size() * 8, "b_ptrs", Access::read_only);
    memory.add(out.d.data(), static_cast<std::size_t>(out.d.size()), "d", Access::write_once);
    if (out.dprob.size() > 0)
      memory.add(out.dprob.data(), static_cast<std::size_t>(out.dprob.size()), "dprob", Access::read_write);
    if (out.dbias.size() > 0)
      memory.add(out.dbias.data(), static_cast<std::size_t>(out.dbias.size()), "dbias", Access::read_write);
    scratch(column_sums, "column sums");
    scratch(dprob_tiles, "dprob tiles");
    scratch(b_maps, "b maps");
    memory.add(&next_tile, 4, "next tile", Access::read_write, false);
  }

  const TestProblem& t;
  Operands operands;
  const DgluInstance& shape;
  DgluOptions options;
  std::int64_t column_tiles = 0;
  Buffer column_sums, dprob_tiles, b_maps;
  std::uint32_t next_tile = 0xdeadbeef;
  DgluParams params{};
  kernels::DgluPrepareParams prepare{};
  kernels::DgluFinishParams finish{};
  model::GlobalMemory memory;
};

}  // namespace

DgluReports run_dglu_on_model(const TestProblem& t, const Outputs& out, const ModelSettings& settings) {
  Call call(t, out, settings);
  DgluReports reports;
  model::LaunchOptions launch = launch_options(settings);
  if (t.problem.discrete || settings.dynamic) {
    launch.threads = 32;
    launch.grid = (t.problem.experts + 31) / 32;
    reports.prepare = model::launch(launch, call.memory, [&] { kernels::dglu_prepare(call.prepare); });
  }
  launch.threads = 384;
  launch.grid = settings.multiprocessors;
  launch.cluster = call.shape.cluster;
  launch.shared_bytes = kernels::dglu_layout(call.options, static_cast<std::uint32_t>(call.shape.tile_n),
                                             static_cast<std::uint32_t>(call.shape.stages))
                            .bytes;
  launch.drop = settings.drop;
  reports.main = model::launch(launch, call.memory, [&] { call.shape.run(call.options, call.params); });
  if (call.finish.dprob_tiles || call.finish.column_sums) {
    reports.finish = run_finish(launch, call.memory, call.finish);
  }
  return reports;
}

}  // namespace gemmule::test
