#include "backends/cuda/host.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "gemmule/error.hpp"
#include "layout/offsets.hpp"

namespace gemmule::cuda::host {
namespace {

static_assert(sizeof(ptx::TensorMap) == sizeof(EncodedTensorMap) &&
              alignof(ptx::TensorMap) == alignof(EncodedTensorMap));

constexpr unsigned prepare_threads = 128;

}  // namespace

bool on_hopper(Arch arch) {
  return arch == Arch::sm_90a;
}

bool on_blackwell(Arch arch) {
  return arch != Arch::sm_90a;
}

kernels::Format format_of(DType type) {
  using enum DType;
  switch (type) {
    case bfloat16:
      return kernels::Format::bf16;
    case float16:
      return kernels::Format::fp16;
    case float32:
      return kernels::Format::f32;
    case float8_e4m3fn:
      return kernels::Format::e4m3;
    case float8_e5m2:
      return kernels::Format::e5m2;
    case float4_e2m1fn_x2:
      return kernels::Format::e2m1;
    default:
      throw InvalidArgument(std::string("dtype ") + name(type) + ": no kernel has a tensor of it");
  }
}

Element element_of(kernels::Format format) {
  switch (format) {
    case kernels::Format::bf16:
      return Element::bf16;
    case kernels::Format::fp16:
      return Element::f16;
    case kernels::Format::f32:
      return Element::f32;
    default:
      return Element::u8;
  }
}

TensorMap matrix_map(const void* base, kernels::Format format, std::int64_t rows, std::int64_t columns,
                     std::uint32_t box_rows, std::uint32_t box_columns, Swizzle swizzle, std::int64_t slabs) {
  const std::uint32_t values_per_element = format == kernels::Format::e2m1 ? 2 : 1;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(columns) * bits_of(format) / 8;
  TensorMap map;
  map.base = reinterpret_cast<std::uint64_t>(base);
  map.element = element_of(format);
  map.rank = slabs == 0 ? 2 : 3;
  map.extent[0] = static_cast<std::uint64_t>(columns) / values_per_element;
  map.extent[1] = static_cast<std::uint64_t>(rows);
  map.stride[0] = row_bytes;
  map.box[0] = box_columns / values_per_element;
  map.box[1] = box_rows;
  if (slabs != 0) {
    map.extent[2] = static_cast<std::uint64_t>(slabs);
    map.stride[1] = row_bytes * map.extent[1];
    map.box[2] = 1;
  }
  map.swizzle = swizzle;
  map.promotion = L2Promotion::b256;
  return map;
}

Swizzle swizzle_of(std::uint32_t span) {
  switch (span) {
    case 128:
      return Swizzle::b128;
    case 64:
      return Swizzle::b64;
    case 32:
      return Swizzle::b32;
    default:
      throw std::logic_error("no swizzle spans " + std::to_string(span) + " bytes");
  }
}

ptx::TensorMap encoded(const TensorMap& map) {
  return __builtin_bit_cast(ptx::TensorMap, encode(map));
}

std::string literal(float value) {
  if (std::isinf(value)) return value > 0 ? "__builtin_huge_valf()" : "-__builtin_huge_valf()";
  char text[40];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(value));
  return text;
}

std::string literal(bool value) {
  return value ? "true" : "false";
}

std::string literal(kernels::Format format) {
  static constexpr const char* names[] = {"bf16", "fp16", "f32", "e4m3", "e5m2", "e2m1"};
  return std::string("Format::") + names[static_cast<int>(format)];
}

Scratch scratch(const Problem& p, std::int64_t m, std::int64_t dprob_tiles, bool scale_maps) {
  constexpr std::int64_t map_bytes = sizeof(ptx::TensorMap);
  constexpr std::int64_t rows_of_a_sum = 128;
  Scratch s;
  const auto place = [&](bool needed, std::int64_t block_bytes) {
    const std::size_t at = s.bytes;
    if (needed) s.bytes += static_cast<std::size_t>(layout::round_up(block_bytes, 256));
    return at;
  };
  s.maps = place(p.discrete, map_bytes * p.experts);
  s.scale_maps = place(scale_maps, map_bytes * p.experts);
  s.next_tile = place(p.use_dynamic_sched, 4);
  s.offset = place(p.single_group_runtime_offsets, 4);
  s.dprob_tiles = place(sums_dprob(p), dprob_tiles * m * 4);
  s.column_sums = place(p.has_dbias, layout::ceil_div(m, rows_of_a_sum) * p.width() * 4);
  return s;
}

bool sums_dprob(const Problem& p) {
  return p.has_dprob && p.deterministic;
}

bool needs_prepare(const Problem& p) {
  return p.discrete || p.use_dynamic_sched || p.single_group_runtime_offsets;
}

kernels::DgluPrepareParams prepare_params(const Problem& p, const Operands& o, std::byte* workspace,
                                          const Scratch& s) {
  kernels::DgluPrepareParams params;
  params.b_maps = block_at<ptx::TensorMap>(workspace, p.discrete, s.maps);
  params.b_ptrs = o.b_ptrs;
  params.next_tile = block_at<std::uint32_t>(workspace, p.use_dynamic_sched, s.next_tile);
  params.experts = static_cast<std::uint32_t>(p.experts);
  params.offset = block_at<std::uint32_t>(workspace, p.single_group_runtime_offsets, s.offset);
  params.end = static_cast<std::uint32_t>(o.m);
  return params;
}

const std::int32_t* offsets_of(const Problem& p, const Operands& o, std::byte* workspace, const Scratch& s) {
  return p.single_group_runtime_offsets ? reinterpret_cast<const std::int32_t*>(workspace + s.offset)
                                        : o.padded_offsets;
}

bool needs_finish(const Problem& p) {
  return p.op == Op::dglu && (p.has_dbias || sums_dprob(p));
}

kernels::DgluFinishParams finish_params(const Problem& p, const Operands& o, std::byte* workspace,
                                        const Scratch& s, std::int64_t dprob_tiles) {
  kernels::DgluFinishParams params;
  params.dprob_tiles = block_at<const float>(workspace, sums_dprob(p), s.dprob_tiles);
  params.dprob = o.dprob;
  params.column_sums = block_at<const float>(workspace, p.has_dbias, s.column_sums);
  params.dbias = o.dbias;
  params.offsets = offsets_of(p, o, workspace, s);
  params.m = o.m;
  params.column_tiles = static_cast<std::uint32_t>(dprob_tiles);
  params.columns = static_cast<std::uint32_t>(p.width());
  params.experts = static_cast<std::uint32_t>(p.experts);
  return params;
}

unsigned grid_ctas(const Launch& launch, std::int64_t work_ctas) {
  const std::int64_t cluster = launch.functions[0].entry.cluster;
  const std::int64_t margin = launch.problem.cluster_overlap_margin * cluster;
  const std::int64_t left = launch.functions[0].resident_ctas - margin;
  if (left <= 0)
    throw InvalidArgument("CUDNNFE_CLUSTER_OVERLAP_MARGIN " +
                          std::to_string(launch.problem.cluster_overlap_margin) +
                          " leaves no cluster, the device holds " +
                          std::to_string(launch.functions[0].resident_ctas / cluster));
  return static_cast<unsigned>(std::min<std::int64_t>(launch.persistent_ctas(0, work_ctas), left));
}

void add_prepare(Specialization& specialization) {
  specialization.source +=
      "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(prepare_threads) +
      ", 1)\n"
      "dglu_prepare_maps(const __grid_constant__ DgluPrepareParams params) { dglu_prepare(params); }\n";
  specialization.entries.push_back({"dglu_prepare_maps", prepare_threads, 0, 1});
}

unsigned prepare_ctas(std::uint32_t experts) {
  return (experts + prepare_threads - 1) / prepare_threads;
}

void add_finish(Specialization& specialization) {
  specialization.source +=
      "extern \"C\" __global__ void __launch_bounds__(finish_threads, 1)\n"
      "dglu_finish_sums(const __grid_constant__ DgluFinishParams params) { dglu_finish(params); }\n";
  specialization.entries.push_back({"dglu_finish_sums", kernels::finish_threads, 0, 1});
}

}  // namespace gemmule::cuda::host
