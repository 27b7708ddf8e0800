// Host part of kernels/sm90/bf16_dglu.hpp: which problems it takes, how it is specialized and launched.
#include <string>

#include "backends/cuda/host.hpp"
#include "backends/cuda/kernel.hpp"
#include "sm90/bf16_dglu_layout.hpp"
#include "sm90/bf16_dglu_params.hpp"

namespace gemmule::cuda {
namespace {

using host::block_at;
using host::encoded;
using host::format_of;
using host::literal;
using kernels::DgluFinishParams;
using kernels::DgluOptions;
using kernels::DgluParams;
using kernels::DgluPrepareParams;
using kernels::Format;

constexpr std::uint32_t tile_rows = 128;
constexpr std::uint32_t tile_k = 64;

/// Tile shape of a specialization: the template parameters of the kernel.
struct TileConfig {
  std::uint32_t tile_n, stages, cluster;
};

DgluOptions options_of(const Problem& p) {
  DgluOptions o;
  o.c = format_of(p.c);
  o.d = format_of(p.d);
  if (p.act == ActFunc::dgeglu) {
    o.activation = kernels::Activation::dgeglu;
    o.geglu = {p.linear_offset, p.geglu_alpha, p.glu_clamp_max, p.glu_clamp_min, p.geglu_value_filter};
  }
  o.discrete = p.discrete;
  o.b_n_major = p.b_n_major;
  o.has_dprob = p.has_dprob;
  o.has_dbias = p.has_dbias;
  o.deterministic = p.has_dprob && p.deterministic;
  o.dynamic = p.use_dynamic_sched;
  return o;
}

/// 192 columns where 16-bit C and D share their buffers; with f32 the staging buffers leave room for 128 only. Two CTAs
/// share B when every expert has an even number of row tiles.
TileConfig tile_config(const Problem& p) {
  const DgluOptions o = options_of(p);
  const bool narrow = o.c == Format::f32 || o.d == Format::f32;
  return {narrow ? 128u : 192u, 4, p.m_aligned % 256 == 0 ? 2u : 1u};
}

std::string refuse(const Problem& p) {
  const auto is_output = [](DType type) {
    return type == DType::bfloat16 || type == DType::float16 || type == DType::float32;
  };
  if (p.op != Op::dglu) return "operator: only grouped_gemm_dglu is supported";
  if (p.ab != DType::bfloat16)
    return std::string("A and B of ") + name(p.ab) + ": only bfloat16 is supported";
  if (p.act == ActFunc::dsituglu) return "act_func 'dsituglu': BF16 supports dswiglu and dgeglu";
  if (p.epilogue_op != EpilogueOp::none) return "epilogue_op: BF16 supports none";
  if (!is_output(p.c))
    return std::string("C of ") + name(p.c) + ": bfloat16, float16 and float32 are supported";
  if (!is_output(p.d))
    return std::string("D of ") + name(p.d) + ": bfloat16, float16 and float32 are supported";
  if (p.quantize || p.has_amax || p.has_d_col) return "d_col, amax and scale outputs: BF16 has none";
  if (p.single_group_runtime_offsets)
    return "use_single_group_runtime_offsets: supported only by the block-scaled kernel";
  if (p.m_aligned % 128 != 0) return "m_aligned " + std::to_string(p.m_aligned) + ": must be 128 or 256";
  return {};
}

std::string literal(const DgluOptions& o) {
  std::string geglu = "{}";
  std::string activation = "Activation::dswiglu";
  if (o.activation == kernels::Activation::dgeglu) {
    activation = "Activation::dgeglu";
    geglu = "{" + literal(o.geglu.linear_offset) + ", " + literal(o.geglu.alpha) + ", " +
            literal(o.geglu.clamp_max) + ", " + literal(o.geglu.clamp_min) + ", " +
            literal(o.geglu.value_filter) + "}";
  }
  return "{.c = " + literal(o.c) + ", .d = " + literal(o.d) + ", .activation = " + activation +
         ", .geglu = " + geglu + ", .discrete = " + literal(o.discrete) +
         ", .b_n_major = " + literal(o.b_n_major) + ", .has_dprob = " + literal(o.has_dprob) +
         ", .has_dbias = " + literal(o.has_dbias) + ", .deterministic = " + literal(o.deterministic) +
         ", .dynamic = " + literal(o.dynamic) + "}";
}

Specialization specialize(const Problem& p, Arch) {
  const DgluOptions options = options_of(p);
  const TileConfig tile = tile_config(p);
  const std::string shape =
      std::to_string(tile.tile_n) + ", " + std::to_string(tile.stages) + ", " + std::to_string(tile.cluster);
  Specialization s;
  s.source =
      "#include \"sm90/bf16_dglu.hpp\"\n"
      "#include \"sm90/dglu_side.hpp\"\n"
      "using namespace gemmule::kernels;\n"
      "extern \"C\" __global__ void __launch_bounds__(384, 1)\n"
      "sm90_bf16_dglu(const __grid_constant__ DgluParams params) {\n"
      "  constexpr DgluOptions options = " +
      literal(options) +
      ";\n"
      "  Bf16Dglu<" +
      shape +
      ">::run(options, params);\n"
      "}\n";
  s.entries.push_back(
      {"sm90_bf16_dglu", 384, kernels::dglu_layout(options, tile.tile_n, tile.stages).bytes, tile.cluster});
  if (host::needs_prepare(p)) host::add_prepare(s);
  if (host::needs_finish(p)) host::add_finish(s);
  return s;
}

std::int64_t column_tiles(const Problem& p) {
  const std::int64_t tile_n = tile_config(p).tile_n;
  return (p.n + tile_n - 1) / tile_n;
}

std::size_t workspace_size(const Problem& p, const DeviceLimits&, std::int64_t m) {
  return host::scratch(p, m, column_tiles(p)).bytes;
}

/// C or D: boxes of 128 bytes.
ptx::TensorMap row_map(const void* base, Format format, std::int64_t rows, std::int64_t columns) {
  return encoded(host::matrix_map(base, format, rows, columns, tile_rows, 1024 / kernels::bits_of(format),
                                  Swizzle::b128));
}

ptx::TensorMap weight_map(const void* base, const Problem& p, std::int64_t experts) {
  const TileConfig tile = tile_config(p);
  const std::int64_t rows = p.b_n_major ? p.k : p.n, columns = p.b_n_major ? p.n : p.k;
  const std::uint32_t box_rows = (p.b_n_major ? tile_k : tile.tile_n) / tile.cluster;
  return encoded(
      host::matrix_map(base, Format::bf16, rows, columns, box_rows, tile_k, Swizzle::b128, experts));
}

void run(const Launch& launch) {
  const Problem& p = launch.problem;
  const Operands& o = launch.operands;
  const TileConfig tile = tile_config(p);
  const host::Scratch s = host::scratch(p, o.m, column_tiles(p));
  std::byte* workspace = launch.workspace;

  DgluParams params;
  params.a = row_map(o.a, Format::bf16, o.m, p.k);
  // Discrete: a pattern whose address the prepare kernel replaces; any valid one will do.
  params.b = weight_map(p.discrete ? o.a : o.b, p, p.discrete ? 1 : p.experts);
  params.c = row_map(o.c_in, format_of(p.c), o.m, p.width());
  params.d = row_map(o.d, format_of(p.d), o.m, p.width());
  params.b_maps = block_at<const ptx::TensorMap>(workspace, p.discrete, s.maps);
  params.offsets = o.padded_offsets;
  params.alpha = o.alpha;
  params.beta = o.beta;
  params.prob = p.has_prob ? o.prob : nullptr;
  params.prob_stride = o.prob_stride;
  params.dprob = host::sums_dprob(p) ? reinterpret_cast<float*>(workspace + s.dprob_tiles) : o.dprob;
  params.column_sums = block_at<float>(workspace, p.has_dbias, s.column_sums);
  params.next_tile = block_at<std::uint32_t>(workspace, p.use_dynamic_sched, s.next_tile);
  params.m = o.m;
  params.n = static_cast<std::uint32_t>(p.n);
  params.k = static_cast<std::uint32_t>(p.k);
  params.experts = static_cast<std::uint32_t>(p.experts);

  std::size_t entry = 1;
  const bool prepare = host::needs_prepare(p);
  if (prepare) {
    DgluPrepareParams before = host::prepare_params(p, o, workspace, s);
    before.pattern = params.b;
    launch.run(entry++, host::prepare_ctas(before.experts), &before, p.programmatic_launch);
  }
  const std::int64_t unit = std::int64_t{tile_rows} * tile.cluster;
  launch.run(0, host::grid_ctas(launch, (o.m + unit - 1) / unit * column_tiles(p) * tile.cluster), &params,
             prepare || p.programmatic_launch);
  if (host::needs_finish(p)) {
    const DgluFinishParams after = host::finish_params(p, o, workspace, s, column_tiles(p));
    launch.run(entry, static_cast<unsigned>(kernels::finish_ctas(after)), &after, true);
  }
}

/// BF16 C and D: both activations, every weight layout, with and without dbias; deterministic sums; then f32 D with the
/// dynamic scheduler.
std::vector<Problem> common_problems() {
  std::vector<Problem> all;
  for (const ActFunc act : {ActFunc::dswiglu, ActFunc::dgeglu}) {
    Problem p;
    p.op = Op::dglu;
    p.n = p.k = 1024;
    p.experts = 8;
    p.ab = p.c = p.d = DType::bfloat16;
    p.has_prob = p.has_dprob = true;
    p.act = act;
    if (act == ActFunc::dgeglu) {
      p.geglu_value_filter = true;
      p.linear_offset = 1;
      p.geglu_alpha = 1.702f;
      p.glu_clamp_max = 7;
      p.glu_clamp_min = -7;
    }
    for (const bool dbias : {false, true}) {
      p.has_dbias = dbias;
      for (const int weights : {0, 1, 2}) {
        p.discrete = weights != 0;
        p.b_n_major = weights == 2;
        all.push_back(p);
      }
      p.discrete = p.b_n_major = false;
    }
    p.deterministic = true;
    all.push_back(p);
    p.deterministic = p.has_dbias = false;
    p.d = DType::float32;
    p.use_dynamic_sched = true;
    all.push_back(p);
  }
  return all;
}

}  // namespace

extern const Kernel sm90_bf16_dglu;
const Kernel sm90_bf16_dglu = {
    "sm90_bf16_dglu",
    "grouped_gemm_dglu with BF16 operands (dswiglu, dgeglu), compute capability 9.0",
    host::on_hopper,
    refuse,
    specialize,
    workspace_size,
    run,
    common_problems,
};

}  // namespace gemmule::cuda
