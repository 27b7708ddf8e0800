// GEMMULE_CHECK=1: what can only be checked by reading device memory.
#pragma once

#include "backends/cuda/abi.hpp"
#include "operators/problem.hpp"

namespace gemmule::cuda {

/// GEMMULE_CHECK is set to something else than "" and "0". Read once.
bool checks_requested() noexcept;

/// Copies the offsets, pointer tables and norm_const to the host (this synchronises the stream) and throws
/// InvalidArgument for the first rule they break. Does nothing while the stream is being captured, when device memory
/// cannot be read, except to say so once on stderr.
void check_device_values(const Problem& problem, const Operands& operands, StreamHandle stream);

/// The rules for values that are on the host already.
void check_offsets(const std::int32_t* offsets, int experts, int m_aligned, std::int64_t m);
void check_pointers(const char* argument, const std::int64_t* pointers, int experts);

}  // namespace gemmule::cuda
