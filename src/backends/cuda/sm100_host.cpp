#include "backends/cuda/sm100_host.hpp"

#include <algorithm>

#include "layout/offsets.hpp"

namespace gemmule::cuda::sm100 {
namespace {

using host::block_at;
using host::common_params;
using host::format_of;
using host::literal;
using host::Scratch;
using host::sums_dprob;
using kernels::EpilogueBytes;
using kernels::Format;
using kernels::OperandOptions;

constexpr std::uint32_t tile_rows = kernels::sm100::tile_rows;
constexpr std::uint32_t most_stages = 6;

EpilogueBytes epilogue_bytes(const Problem& p) {
  const kernels::ScaledOptions o = host::scaled_options(p);
  return p.op == Op::dglu ? kernels::dglu_epilogue_bytes(o) : kernels::srelu_epilogue_bytes(o);
}

/// Panels of C, D or D_col.
TensorMap panel_map(const void* base, DType type, const Problem& p, std::int64_t m) {
  const Format format = format_of(type);
  const std::uint32_t span = kernels::panel::row_bytes(format);
  return host::matrix_map(base, format, m, p.width(), kernels::panel::rows, kernels::panel::columns,
                          span == 16 ? Swizzle::none : host::swizzle_of(span));
}

/// Scales of `rows` atoms of 128 rows, whose bytes lie in pairs. `box_rows` x `box_atoms` atoms are copied at once, or 1 /
/// `slices` of those of each row.
TensorMap scale_map(const void* base, std::int64_t rows, std::int64_t atoms, std::uint32_t box_rows,
                    std::uint32_t box_atoms, std::uint32_t slices = 1) {
  constexpr std::uint32_t pairs = layout::atom_bytes / 2;
  TensorMap map;
  map.base = reinterpret_cast<std::uint64_t>(base);
  map.element = Element::u16;
  map.rank = 3;
  map.extent[0] = pairs;
  map.extent[1] = static_cast<std::uint64_t>(atoms);
  map.extent[2] = static_cast<std::uint64_t>(rows);
  map.stride[0] = layout::atom_bytes;
  map.stride[1] = map.stride[0] * map.extent[1];
  map.box[0] = std::min(pairs, box_atoms * pairs / slices);
  map.box[1] = std::max(1u, box_atoms / slices);
  map.box[2] = box_rows;
  return map;
}

bool has_scale_maps(const Problem& p) {
  return p.discrete && p.block_scaled();
}

/// Sums per row that deterministic dprob is made of.
std::int64_t dprob_tiles(const Problem& p, const TileConfig& tile) {
  return kernels::sm100::epilogue_groups * column_tiles(p, tile);
}

std::string options_text(const Problem& p) {
  return p.op == Op::srelu ? literal(host::scaled_srelu_options(p)) : literal(host::scaled_dglu_options(p));
}

void encode_maps(kernels::ScaledParams& common, kernels::ScaleMaps& scales, const Maps& m) {
  common.a = host::encoded(m.a);
  common.b = host::encoded(m.b);
  common.c = host::encoded(m.c);
  common.d = host::encoded(m.d);
  common.d_col = host::encoded(m.d_col);
  scales.sfa = host::encoded(m.sfa);
  scales.sfb = host::encoded(m.sfb);
}

}  // namespace

OperandOptions operand_options(const Problem& p) {
  return kernels::operand_options(host::scaled_options(p));
}

/// A pair of CTAs where every expert is a multiple of 256 rows, unless a tile of 128 in clusters of one row of CTAs was asked
/// for: two CTAs of 128 rows that share B are a pair. Two accumulators of
/// 256 columns are all of tensor memory, so block-scaled tiles have 192. The rows of 8-bit n-major B come in spans of 128
/// columns, which a pair cannot halve, those of BF16 in spans of 64, which half a tile of 192 would cut. A narrower tile where C
/// and D leave room for fewer than three stages. The second extent of the cluster is its width whether or not there are pairs.
TileConfig tile_config(const Problem& p) {
  const auto width = static_cast<std::uint32_t>(p.cluster.n);
  const OperandOptions operands = operand_options(p);
  const EpilogueBytes epilogue = epilogue_bytes(p);
  if (p.b_n_major && p.block_scaled())
    return {128, kernels::sm100_stages(operands, epilogue, 128, 1, most_stages), 1, width};
  const std::uint32_t ctas = p.m_aligned % 256 == 0 && (p.tile.m != 128 || p.cluster.m == 2) ? 2 : 1;
  TileConfig tile;
  for (const std::uint32_t tile_n : {256u, 192u, 128u}) {
    if (tile_n == 256 && p.block_scaled()) continue;
    if (p.b_n_major && tile_n / ctas % operands.span_columns() != 0) continue;
    tile = {tile_n, kernels::sm100_stages(operands, epilogue, tile_n, ctas, most_stages), ctas, width};
    if (tile.stages >= 3) break;
  }
  return tile;
}

std::uint32_t shared_bytes(const Problem& p, const TileConfig& tile) {
  return kernels::sm100_layout(operand_options(p), epilogue_bytes(p), tile.tile_n, tile.stages, tile.ctas)
      .bytes;
}

std::int64_t column_tiles(const Problem& p, const TileConfig& tile) {
  return layout::ceil_div(p.n, tile.tile_n);
}

std::int64_t work_ctas(const Problem& p, std::int64_t m, const TileConfig& tile) {
  const std::int64_t rows = std::int64_t{tile_rows} * tile.ctas;
  const std::int64_t columns = layout::ceil_div(column_tiles(p, tile), tile.width);
  return layout::ceil_div(m, rows) * columns * tile.width * tile.ctas;
}

Scratch scratch(const Problem& p, std::int64_t m, const TileConfig& tile) {
  return host::scratch(p, m, dprob_tiles(p, tile), has_scale_maps(p));
}

Maps maps(const Problem& p, const Operands& o, const TileConfig& tile) {
  const OperandOptions operands = operand_options(p);
  const std::uint32_t stage_k = operands.stage_k();
  const std::int64_t slabs = p.discrete ? 1 : p.experts;
  const void* b = p.discrete ? o.a : o.b;  // discrete: any valid address will do
  Maps m;
  m.a =
      host::matrix_map(o.a, operands.ab, o.m, p.k, kernels::a_slice_rows(tile.width), stage_k, Swizzle::b128);
  m.b = p.b_n_major ? host::matrix_map(b, operands.ab, p.k, p.n, stage_k, operands.span_columns(),
                                       Swizzle::b128, slabs)
                    : host::matrix_map(b, operands.ab, p.n, p.k, tile.tile_n / tile.ctas, stage_k,
                                       Swizzle::b128, slabs);
  m.c = panel_map(p.op == Op::srelu ? o.c_out : o.c_in, p.c, p, o.m);
  m.d = panel_map(o.d, p.d, p, o.m);
  m.d_col = panel_map(p.has_d_col ? o.d_col : o.d, p.d, p, o.m);
  m.sfa = m.sfb = m.a;
  if (p.block_scaled()) {
    const std::int64_t atoms = layout::block_atoms(p.k, p.vec);
    m.sfa = scale_map(o.sfa, layout::ceil_div(o.m, layout::atom_rows), atoms, 1, operands.stage_atoms(),
                      tile.width);
    m.sfb = scale_map(p.discrete ? o.sfa : o.sfb, slabs * layout::ceil_div(p.n, layout::atom_rows), atoms,
                      kernels::b_scale_rows(tile.tile_n), operands.stage_atoms());
  }
  return m;
}

kernels::Sm100DgluParams dglu_params(const Problem& p, const Operands& o, std::byte* workspace,
                                     const TileConfig& tile) {
  const Scratch s = scratch(p, o.m, tile);
  kernels::Sm100DgluParams params;
  params.op.common = common_params(p, o, workspace, s);
  params.op.beta = o.beta;
  params.op.dprob = sums_dprob(p) ? reinterpret_cast<float*>(workspace + s.dprob_tiles) : o.dprob;
  params.op.column_sums = block_at<float>(workspace, p.has_dbias, s.column_sums);
  params.scales.sfb_maps = block_at<const ptx::TensorMap>(workspace, has_scale_maps(p), s.scale_maps);
  return params;
}

kernels::Sm100SreluParams srelu_params(const Problem& p, const Operands& o, std::byte* workspace,
                                       const TileConfig& tile) {
  const Scratch s = scratch(p, o.m, tile);
  kernels::Sm100SreluParams params;
  params.op.common = common_params(p, o, workspace, s);
  params.op.bias = o.bias;
  params.scales.sfb_maps = block_at<const ptx::TensorMap>(workspace, has_scale_maps(p), s.scale_maps);
  return params;
}

std::vector<kernels::DgluPrepareParams> prepare_params(const Problem& p, const Operands& o,
                                                       std::byte* workspace, const TileConfig& tile) {
  if (!host::needs_prepare(p)) return {};
  const Scratch s = scratch(p, o.m, tile);
  const kernels::DgluPrepareParams first = host::prepare_params(p, o, workspace, s);
  if (!has_scale_maps(p)) return {first};
  kernels::DgluPrepareParams second;
  second.experts = first.experts;
  second.b_maps = block_at<ptx::TensorMap>(workspace, true, s.scale_maps);
  second.b_ptrs = o.sfb_ptrs;
  return {first, second};
}

kernels::DgluFinishParams finish_params(const Problem& p, const Operands& o, std::byte* workspace,
                                        const TileConfig& tile) {
  return host::finish_params(p, o, workspace, scratch(p, o.m, tile), dprob_tiles(p, tile));
}

Specialization specialize(const Problem& p, const std::string& entry) {
  const TileConfig tile = tile_config(p);
  const std::string op = p.op == Op::dglu ? "Dglu" : "Srelu";
  Specialization s;
  s.source = std::string("#include \"sm100/") + (p.op == Op::dglu ? "dglu" : "srelu") +
             ".hpp\"\n"
             "#include \"sm90/dglu_side.hpp\"\n"
             "using namespace gemmule::kernels;\n"
             "extern \"C\" __global__ void __launch_bounds__(sm100::threads, 1)\n" +
             entry + "(const __grid_constant__ Sm100" + op + "Params params) {\n  constexpr Scaled" + op +
             "Options options = " + options_text(p) + ";\n  Sm100" + op + "<" + std::to_string(tile.tile_n) +
             ", " + std::to_string(tile.stages) + ", " + std::to_string(tile.ctas) + ">::run(options, " +
             std::to_string(tile.width) +
             ", params);\n"
             "}\n";
  s.entries.push_back({entry, kernels::sm100::threads, shared_bytes(p, tile), tile.ctas * tile.width});
  if (host::needs_prepare(p)) host::add_prepare(s);
  if (host::needs_finish(p)) host::add_finish(s);
  return s;
}

std::size_t workspace_size(const Problem& p, const DeviceLimits&, std::int64_t m) {
  return scratch(p, m, tile_config(p)).bytes;
}

void launch(const Launch& launch) {
  const Problem& p = launch.problem;
  const Operands& o = launch.operands;
  const TileConfig tile = tile_config(p);
  const Maps all = maps(p, o, tile);
  const ptx::TensorMap patterns[2] = {host::encoded(all.b), host::encoded(all.sfb)};

  std::size_t entry = 1;
  bool overlap = p.programmatic_launch;
  const auto before = prepare_params(p, o, launch.workspace, tile);
  for (std::size_t i = 0; i < before.size(); ++i) {
    kernels::DgluPrepareParams params = before[i];
    params.pattern = patterns[i];
    launch.run(entry, host::prepare_ctas(params.experts), &params, overlap);
    overlap = true;
  }
  if (!before.empty()) ++entry;

  const unsigned grid = host::grid_ctas(launch, work_ctas(p, o.m, tile));
  if (p.op == Op::dglu) {
    kernels::Sm100DgluParams params = dglu_params(p, o, launch.workspace, tile);
    encode_maps(params.op.common, params.scales, all);
    launch.run(0, grid, &params, overlap);
  } else {
    kernels::Sm100SreluParams params = srelu_params(p, o, launch.workspace, tile);
    encode_maps(params.op.common, params.scales, all);
    launch.run(0, grid, &params, overlap);
  }
  if (host::needs_finish(p)) {
    const kernels::DgluFinishParams after = finish_params(p, o, launch.workspace, tile);
    launch.run(entry, static_cast<unsigned>(kernels::finish_ctas(after)), &after, true);
  }
}

}  // namespace gemmule::cuda::sm100
