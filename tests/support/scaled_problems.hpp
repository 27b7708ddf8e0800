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

/// Many experts of one tile, a few of them empty.
TestProblem many_small_experts(Problem p, int experts, std::uint64_t seed, Data data = Data::random);

}  // namespace gemmule::test
