// The rules that both operators share, one function each. A function returns if its rule holds and throws
// InvalidArgument "<argument>: <value>, expected <rule>" otherwise. Tensors that are absent pass.
#pragma once

#include <initializer_list>
#include <string>

#include "operators/arguments.hpp"

namespace gemmule::operators {

/// The shortest text that reads back as the same number.
std::string number_text(float value);
std::string number_text(double value);

[[noreturn]] void reject(const std::string& argument, const std::string& value, const std::string& rule);

// Presence and weight mode.
void require(const Arguments& args, Role role, const char* why = "a tensor");
/// Dense (B given) or discrete (pointers, or num_experts at construction): exactly one of the two. True if discrete.
bool check_weight_mode(const Arguments& args, const CommonOptions& options);
/// SFB comes the way B does.
void check_scale_source(const Arguments& args, bool discrete);
/// sfd_row, sfd_col and norm_const: all or none. True if all.
bool check_all_scales_or_none(const Arguments& args);
/// What scale generation needs is there exactly if A and D ask for it.
void check_scale_outputs(const Arguments& args, bool given);
/// BF16 takes no scale controls: the first of `roles` that is given is named.
void check_no_scale_controls(const Arguments& args, std::initializer_list<Role> roles);
[[noreturn]] void reject_scale_control(const std::string& control, const std::string& value,
                                       const std::string& neutral);

// Extents and layout.
/// M, N, K and L from A, B or b_shape, and padded_offsets. K of a uint8 A: its second extent, or twice that, whichever
/// agrees with b_shape or with the scale factors' fifth extent; the first if both do.
Extents resolve_extents(const Arguments& args, const CommonOptions& options, bool discrete);
/// Largest M whose matrices keep every byte count within 64 bits.
std::int64_t max_rows(const Extents& extents);
void check_shape(const Arguments& args, Role role, const Extents& extents);
/// Exact, except along extents of 1 and in tensors without elements. srelu's prob may have any stride >= 0.
void check_strides(const Arguments& args, Role role, const Extents& extents);
/// Rank 1, int64, one pointer per expert, contiguous.
void check_pointer_array(const Arguments& args, Role role, std::int64_t experts);
/// Both, where they are given.
void check_pointer_arrays(const Arguments& args, std::int64_t experts);
/// `values` contiguous values of `dtype` fill whole 16-byte units.
void check_row_bytes(const std::string& argument, std::int64_t values, DType dtype);
void check_operand_row_bytes(const Arguments& args, const Extents& extents, bool discrete);

// Formats.
/// `context` ends the message. In the one-call form the outputs C and D are named by c_dtype and d_dtype.
void check_dtype(const Arguments& args, Role role, std::initializer_list<DType> allowed,
                 const char* context = "");
void check_same_dtype(const Arguments& args, Role role, Role as);
/// dtypes of A and B (or b_dtype) agree.
void check_b_dtype(const Arguments& args, const CommonOptions& options, bool discrete);
/// sf_vec_size 16 or 32; not 32 with e4m3 scales; not 16 with FP8 A.
void check_sf_vec_size(const Arguments& args, int sf_vec_size);

// Options.
void check_acc_dtype(DType acc_dtype);
void check_cd_major(char cd_major);
/// b_major k, or n where `n_allowed`. True if n.
bool check_b_major(const CommonOptions& options, bool n_allowed, const char* context);
/// Legal tile and cluster shapes; returns the cluster, its default resolved.
ClusterShape check_tile_and_cluster(Op op, bool block_scaled, const CommonOptions& options);
void check_m_aligned(int m_aligned);
void check_sm_limit(int sm_limit);
void check_num_experts(const Arguments& args, const CommonOptions& options, std::int64_t experts);
void check_expert_count(const Arguments& args, std::int64_t experts);
/// Finite, and where `positive`, > 0 with a finite reciprocal.
void check_finite(const char* argument, double value, bool positive);

// Memory.
void check_devices(const Arguments& args);
/// 16-byte aligned (pointer arrays 8). Null data of a tensor with elements is an error where it is needed.
enum class Needed : std::uint8_t { none, inputs, all };
void check_addresses(const Arguments& args, Needed needed);
/// No output shares memory with another tensor of the call, except d_col with d where both get the same values.
void check_overlap(const Arguments& args, const Extents& extents, bool quantize);

/// M is a multiple of m_aligned where the kernels rely on it: BF16, and offsets taken from A.
void check_rows(const Arguments& args, const Problem& problem, std::int64_t m);
/// The values of offsets, pointer arrays and norm_const, where they can be read: in host memory with data, and with
/// `device_reads` in device memory, after the work on that stream.
void check_values(const Arguments& args, const Problem& problem, std::int64_t m,
                  const Stream* device_reads = nullptr);
/// The tensor's device; all host memory counts as one.
Device memory_of(const Tensor& tensor);

/// The backend that serves tensors on A's device. Throws InvalidArgument for a contradiction.
Backend check_backend(const Arguments& args, Backend backend);

}  // namespace gemmule::operators
