#include "backends/cuda/sm90_host.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "gemmule/error.hpp"

namespace gemmule::cuda::sm90 {
namespace {

static_assert(sizeof(ptx::TensorMap) == sizeof(EncodedTensorMap) &&
              alignof(ptx::TensorMap) == alignof(EncodedTensorMap));

constexpr unsigned prepare_threads = 128;

}  // namespace

bool runs_on(Arch arch) {
  return arch == Arch::sm_90a;
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
      throw InvalidArgument(std::string("dtype ") + name(type) + ": no Hopper kernel has a tensor of it");
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

std::size_t ScratchLayout::place(bool needed, std::int64_t block_bytes) {
  const std::size_t at = bytes;
  if (needed) bytes += static_cast<std::size_t>((block_bytes + 255) / 256 * 256);
  return at;
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

}  // namespace gemmule::cuda::sm90
