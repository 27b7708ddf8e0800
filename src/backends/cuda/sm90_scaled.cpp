#include "backends/cuda/sm90_scaled.hpp"

#include "layout/offsets.hpp"

namespace gemmule::cuda::sm90 {
namespace {

using kernels::Format;
namespace geometry = kernels::scaled;

TensorMap row_map(const void* base, DType type, const Problem& p, std::int64_t m) {
  const Format format = host::format_of(type);
  return host::matrix_map(base, format, m, p.width(), geometry::box_rows, geometry::box_columns,
                          format == Format::f32 ? Swizzle::b128 : Swizzle::none);
}

TensorMap weight_map(const void* base, const Problem& p, std::int64_t experts) {
  const Format format = host::format_of(p.ab);
  if (p.b_n_major)
    return host::matrix_map(base, format, p.k, p.n, geometry::tile_k, geometry::tile_n, Swizzle::b128,
                            experts);
  return host::matrix_map(base, format, p.n, p.k, geometry::tile_n, geometry::raw_tile_k(format),
                          host::swizzle_of(geometry::raw_row_bytes), experts);
}

}  // namespace

std::int64_t scaled_column_tiles(const Problem& p) {
  return layout::ceil_div(p.n, geometry::tile_n);
}

std::int64_t scaled_tiles(const Problem& p, std::int64_t m) {
  // Every expert may end with half a tile.
  const std::int64_t rows = p.m_aligned % geometry::tile_rows == 0 ? geometry::tile_rows : geometry::box_rows;
  return layout::ceil_div(m, rows) * scaled_column_tiles(p);
}

host::Scratch scaled_scratch(const Problem& p, std::int64_t m) {
  return host::scratch(p, m, scaled_column_tiles(p));
}

ScaledMaps scaled_maps(const Problem& p, const Operands& o) {
  const Format ab = host::format_of(p.ab);
  ScaledMaps maps;
  maps.a = host::matrix_map(o.a, ab, o.m, p.k, geometry::box_rows, geometry::raw_tile_k(ab),
                            host::swizzle_of(geometry::raw_row_bytes));
  // Discrete: any valid address will do.
  maps.b = weight_map(p.discrete ? o.a : o.b, p, p.discrete ? 1 : p.experts);
  maps.c = row_map(p.op == Op::srelu ? o.c_out : o.c_in, p.c, p, o.m);
  maps.d = row_map(o.d, p.d, p, o.m);
  maps.d_col = row_map(p.has_d_col ? o.d_col : o.d, p.d, p, o.m);
  return maps;
}

kernels::ScaledSreluParams scaled_srelu_params(const Problem& p, const Operands& o, std::byte* workspace) {
  return {host::common_params(p, o, workspace, scaled_scratch(p, o.m)), o.bias};
}

kernels::ScaledDgluParams scaled_dglu_params(const Problem& p, const Operands& o, std::byte* workspace) {
  const host::Scratch s = scaled_scratch(p, o.m);
  kernels::ScaledDgluParams params;
  params.common = host::common_params(p, o, workspace, s);
  params.beta = o.beta;
  params.dprob = host::sums_dprob(p) ? reinterpret_cast<float*>(workspace + s.dprob_tiles) : o.dprob;
  params.column_sums = host::block_at<float>(workspace, p.has_dbias, s.column_sums);
  return params;
}

void launch_scaled(const Launch& launch, const void* params, kernels::ScaledParams& common) {
  const Problem& p = launch.problem;
  const Operands& o = launch.operands;
  const ScaledMaps maps = scaled_maps(p, o);
  common.a = host::encoded(maps.a);
  common.b = host::encoded(maps.b);
  common.c = host::encoded(maps.c);
  common.d = host::encoded(maps.d);
  common.d_col = host::encoded(maps.d_col);

  std::size_t entry = 1;
  const host::Scratch s = scaled_scratch(p, o.m);
  const bool prepare = host::needs_prepare(p);
  if (prepare) {
    kernels::DgluPrepareParams before = host::prepare_params(p, o, launch.workspace, s);
    before.pattern = common.b;
    launch.run(entry++, host::prepare_ctas(before.experts), &before, p.programmatic_launch);
  }
  launch.run(0, host::grid_ctas(launch, scaled_tiles(p, o.m)), params, prepare || p.programmatic_launch);
  if (host::needs_finish(p)) {
    const kernels::DgluFinishParams after =
        host::finish_params(p, o, launch.workspace, s, scaled_column_tiles(p));
    launch.run(entry, static_cast<unsigned>(kernels::finish_ctas(after)), &after, true);
  }
}

}  // namespace gemmule::cuda::sm90
