// Block-scaled test problems that the tests of the host model and of a device share.
#pragma once

#include <cstdint>

#include "support/problems.hpp"

namespace gemmule::test {

/// The block-scaled formats in turn.
Format scaled_format(std::uint64_t seed);

/// BF16 D without scales, with amax.
void plain_bf16(Problem& p);

/// The environment variable's number, or `otherwise`.
std::uint64_t problem_count(const char* variable, std::uint64_t otherwise);

/// An exact-valued problem whose prob holds every kind of float32: all exponents, subnormals, the neighbours of powers of
/// two where scale codes change, infinity and NaN. Its products are small integers, so every backend quantizes the same
/// values.
TestProblem every_magnitude(const Problem& p, std::int64_t rows, std::uint64_t seed);

/// Plants NaN and, where the format has it, infinity in A, B and their scales, in a few rows and columns.
TestProblem with_specials(TestProblem t);

/// An exact-valued problem of FP8 in which some rows of A, or columns of B, have scale code `code` throughout. All other codes of
/// the operand lie close together in the first expert's tile, and too far apart for FP16 in the second's.
TestProblem with_code(Problem p, bool in_b, std::uint8_t code, std::uint64_t seed);
inline constexpr std::int64_t coded_rows[] = {3, 70, 91};  ///< of an expert's 256 rows, or of its 96 columns
/// Such a problem's rows of A, or columns of B, as zeros.
TestProblem with_zeros_in_coded_rows(TestProblem t, bool in_b);
/// And, of e5m2, with infinities in them.
TestProblem with_infinities_in_coded_rows(TestProblem t, bool in_b);

/// Many experts of one tile, a few of them empty.
TestProblem many_small_experts(Problem p, int experts, std::uint64_t seed, Data data = Data::random);

}  // namespace gemmule::test
