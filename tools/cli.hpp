// The gemmule command as a library: the executable and `python -m gemmule` both call main().
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace gemmule::cli {

/// Exit codes. bad_input: also a file or standard output that cannot be written; device_trouble: also out of memory.
inline constexpr int success = 0, verification_failed = 1, bad_input = 2, device_trouble = 3;

/// What the command may assume about where its output goes.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool colour = false;    ///< escape sequences on `out`
  bool progress = false;  ///< a progress bar on `err`
};

/// Runs the command on the process's own streams.
int main(int argc, char** argv);

/// The same with arguments after the program's name and any streams. Never throws.
int run(const std::vector<std::string>& arguments, const Terminal& terminal);

}  // namespace gemmule::cli
