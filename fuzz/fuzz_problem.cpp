// Any bytes as a problem file: loading and the operators' checks answer or throw.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemmule/error.hpp"
#include "io/problem_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmule;
  try {
    const io::SafetensorsReader reader("input", std::vector<char>(data, data + size));
    const io::LoadedProblem problem = io::load_problem(reader);
    io::check_problem(problem);
  } catch (const Error&) {
  }
  return 0;
}
