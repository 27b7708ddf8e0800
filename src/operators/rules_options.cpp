// Rules about options.
#include <cmath>

#include "operators/rules.hpp"

namespace gemmule::operators {
namespace {

std::string pair(int m, int n) {
  std::string out = "(";
  return out.append(std::to_string(m)).append(", ").append(std::to_string(n)).append(")");
}

bool power_of_two(int x) {
  return x > 0 && (x & (x - 1)) == 0;
}

}  // namespace

void check_acc_dtype(DType acc) {
  if (acc != DType::float32) reject("acc_dtype", gemmule::name(acc), "float32");
}

void check_cd_major(char cd_major) {
  if (cd_major != 'n') reject("cd_major", std::string(1, cd_major), "n");
}

bool check_b_major(const CommonOptions& o, bool n_allowed, const char* context) {
  if (o.b_major == Major::k) return false;
  if (o.b_major != Major::n) reject("b_major", std::to_string(static_cast<int>(o.b_major)), "k or n");
  if (!n_allowed) reject("b_major", "n", std::string("k with ") + context);
  return true;
}

ClusterShape check_tile_and_cluster(Op op, bool block_scaled, const CommonOptions& o) {
  const TileShape tile = o.mma_tiler_mn;
  if (tile.m != 128 && tile.m != 256) reject("mma_tiler_mn", pair(tile.m, tile.n), "TILE_M 128 or 256");
  if (!block_scaled) {
    if (tile.n < 32 || tile.n > 256 || tile.n % 32 != 0)
      reject("mma_tiler_mn", pair(tile.m, tile.n), "TILE_N a multiple of 32 from 32 to 256");
  } else if (op == Op::srelu ? tile.n != 128 && tile.n != 256 : tile.n != 256) {
    reject("mma_tiler_mn", pair(tile.m, tile.n), op == Op::srelu ? "TILE_N 128 or 256" : "TILE_N 256");
  }

  const ClusterShape cluster = o.cluster_shape_mn.value_or(ClusterShape{tile.m == 256 ? 2 : 1, 1});
  const bool m_legal = cluster.m == 2 || (cluster.m == 1 && tile.m == 128);
  const int max_n = block_scaled ? 4 : (cluster.m == 2 ? 8 : 16);  // BF16: at most 16 blocks in a cluster
  if (!m_legal || !power_of_two(cluster.n) || cluster.n > max_n)
    reject("cluster_shape_mn", pair(cluster.m, cluster.n),
           std::string(tile.m == 256 ? "(2, n) with TILE_M 256" : "(1, n) or (2, n) with TILE_M 128") +
               ", n a power of two up to " +
               (block_scaled    ? "4"
                : tile.m == 256 ? "8 (at most 16 blocks with BF16)"
                                : "16, or 8 in (2, n) (at most 16 blocks with BF16)"));
  return cluster;
}

void check_m_aligned(int m_aligned) {
  if (m_aligned != 256 && m_aligned != 128)
    reject("m_aligned", std::to_string(m_aligned), "256 (or 128, which halves the padding)");
}

void check_sm_limit(int sm_limit) {
  if (sm_limit < 0) reject("sm_limit", std::to_string(sm_limit), "at least 0");
}

void check_num_experts(const Arguments& args, const CommonOptions& o, std::int64_t experts) {
  if (o.num_experts && *o.num_experts != experts)
    reject(args.name(Role::padded_offsets), "length " + std::to_string(experts),
           std::to_string(*o.num_experts) + " as num_experts");
}

void check_expert_count(const Arguments& args, std::int64_t experts) {
  if (experts < 1 || experts > 1024)
    reject(args.name(Role::padded_offsets), std::to_string(experts) + " experts", "1 to 1024");
}

void check_finite(const char* argument, double value, bool positive) {
  const auto single = static_cast<float>(value);
  const bool good = std::isfinite(single) && (!positive || (single > 0 && std::isfinite(1.0f / single)));
  if (!good)
    reject(argument, number_text(value),
           positive ? "a finite float32 value > 0 with a finite reciprocal" : "a finite float32 value");
}

}  // namespace gemmule::operators
