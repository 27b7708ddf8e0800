// Options that both operators share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gemmule/tensor.hpp"

namespace gemmule {

/// Who does the work. automatic follows the tensors' device: host memory -> cpu, CUDA memory -> cuda.
/// reference is the float64 oracle (host memory only; slow).
enum class Backend : std::uint8_t { automatic, reference, cpu, cuda };
const char* name(Backend backend) noexcept;
Backend backend_from_name(const std::string& text);

/// Which extent of an expert's (N, K) weight matrix is contiguous in discrete mode.
enum class Major : std::uint8_t { k, n };

struct TileShape {
  int m = 256, n = 256;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};
struct ClusterShape {
  int m = 1, n = 1;
  friend bool operator==(const ClusterShape&, const ClusterShape&) = default;
};

/// Options common to both operators, named as in NVIDIA's documents.
struct CommonOptions {
  DType acc_dtype = DType::float32;              ///< only float32
  TileShape mma_tiler_mn{};                      ///< no numerical effect
  std::optional<ClusterShape> cluster_shape_mn;  ///< default (2,1) when mma_tiler_mn.m == 256, else (1,1)
  int sf_vec_size = 16;                          ///< values per scale factor along K: 16 or 32
  bool vector_f32 = false;                       ///< no numerical effect
  int m_aligned = 256;             ///< every group's row count is a multiple of this: 256, or 128
  bool discrete_col_sfd = false;   ///< SFD_col packed expert by expert instead of for all of M
  bool use_dynamic_sched = false;  ///< no numerical effect

  // Discrete weights: B and SFB are given as one pointer per expert.
  std::optional<int> num_experts;
  std::optional<std::array<std::int64_t, 2>>
      b_shape;  ///< (N, K) of every expert, in values; K may be 0: as in A
  DType b_dtype = DType::none;
  Major b_major = Major::k;  ///< n: FP8, and BF16 in grouped_gemm_dglu

  // Ours.
  bool deterministic = false;  ///< dprob, dbias and amax bitwise equal from run to run (always so on the CPU)
  int sm_limit = 0;            ///< CUDA: use at most this many multiprocessors; 0 = all
  /// CUDA: the launch may begin while the kernel before it in the stream drains (programmatic dependent launch). Nothing
  /// that kernel may still write is read before it has finished.
  bool programmatic_launch = false;
  Backend backend = Backend::automatic;

  friend bool operator==(const CommonOptions&, const CommonOptions&) = default;
};

/// Threads the cpu backend uses: the value set here, else GEMMULE_NUM_THREADS, else every core the process may use.
/// Results do not depend on it. Throws InvalidArgument unless 1 <= threads <= 1024.
void set_num_threads(int threads);
int num_threads() noexcept;

}  // namespace gemmule
