// MoE layers of public models, as one GPU of an expert-parallel group sees them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gemmule::cli {

struct Model {
  const char* name;
  int experts;     ///< on one device
  std::int64_t n;  ///< intermediate size of an expert
  std::int64_t k;  ///< hidden size
};

/// From the published model configurations.
std::span<const Model> models();
/// Capitals and punctuation do not matter: "DeepSeek-V3" is "deepseek-v3". Throws InvalidArgument.
const Model& model_from_name(const std::string& name);

/// Draws how many of `tokens` rows each expert gets: a few experts are popular, and one in eight (at least one when there
/// are four or more) gets none.
std::vector<std::int64_t> route(std::uint64_t seed, int experts, std::int64_t tokens);

}  // namespace gemmule::cli
