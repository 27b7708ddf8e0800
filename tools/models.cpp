#include "models.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "gemmule/error.hpp"
#include "io/host_tensor.hpp"
#include "random.hpp"

namespace gemmule::cli {
namespace {

constexpr Model table[] = {
    {"deepseek-v3", 8, 2048, 7168},   {"qwen3-235b", 16, 1536, 4096},      {"gpt-oss-120b", 16, 2880, 2880},
    {"mixtral-8x7b", 8, 14336, 4096}, {"nemotron-3-nano", 16, 1856, 2688},
};

std::string folded(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::span<const Model> models() {
  return table;
}

const Model& model_from_name(const std::string& name) {
  std::string names;
  for (const Model& model : table) {
    if (folded(model.name) == folded(name)) return model;
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  throw InvalidArgument("model " + io::quote(name) + ": expected one of " + names);
}

std::vector<std::int64_t> route(std::uint64_t seed, int experts, std::int64_t tokens) {
  const Random random(seed, 0x726f757465);  // a stream of its own
  std::vector<int> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return random.bits(static_cast<std::uint64_t>(a)) < random.bits(static_cast<std::uint64_t>(b));
  });
  const int empty = experts < 4 ? 0 : std::max(1, experts / 8);
  const int used = experts - empty;

  // Popularity falls as 1/(rank + 2), which gives the hottest expert of eight about a quarter of the rows.
  double total = 0;
  for (int rank = 0; rank < used; ++rank) total += 1.0 / (rank + 2);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts), 0);
  std::int64_t left = tokens;
  for (int rank = used - 1; rank >= 0; --rank) {
    const double share = 1.0 / (rank + 2) / total;
    const std::int64_t count =
        rank == 0 ? left : std::min(left, static_cast<std::int64_t>(share * static_cast<double>(tokens)));
    counts[static_cast<std::size_t>(order[static_cast<std::size_t>(rank)])] = count;
    left -= count;
  }
  return counts;
}

}  // namespace gemmule::cli
