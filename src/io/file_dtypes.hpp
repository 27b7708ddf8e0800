// Names of element types in a safetensors header.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "gemmule/tensor.hpp"

namespace gemmule::io {

inline constexpr std::array<std::pair<std::string_view, DType>, 9> file_dtypes{{
    {"F32", DType::float32},
    {"F16", DType::float16},
    {"BF16", DType::bfloat16},
    {"F8_E4M3", DType::float8_e4m3fn},
    {"F8_E5M2", DType::float8_e5m2},
    {"F8_E8M0", DType::float8_e8m0fnu},
    {"U8", DType::uint8},
    {"I32", DType::int32},
    {"I64", DType::int64},
}};

/// DType::none for a name that is not in the table.
inline DType dtype_from_file(std::string_view text) {
  for (const auto& [name, dtype] : file_dtypes)
    if (name == text) return dtype;
  return DType::none;
}

/// Packed FP4 is stored as U8. Empty for a type that a file cannot hold.
inline std::string_view dtype_to_file(DType dtype) {
  if (dtype == DType::float4_e2m1fn_x2) dtype = DType::uint8;
  for (const auto& [name, type] : file_dtypes)
    if (type == dtype) return name;
  return {};
}

inline std::string file_dtype_names() {
  std::string text;
  for (const auto& [name, dtype] : file_dtypes) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace gemmule::io
