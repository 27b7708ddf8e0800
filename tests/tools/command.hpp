// Runs the gemmule command inside the test process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "cli.hpp"
#include "io/safetensors.hpp"
#include "io/test_files.hpp"

namespace gemmule::cli {

using io::TemporaryDirectory;

struct Finished {
  int code = 0;
  std::string out, err;
};

inline Finished gemmule(const std::vector<std::string>& arguments, bool colour = false) {
  std::ostringstream out, err;
  Finished finished;
  finished.code = run(arguments, {out, err, colour, false});
  finished.out = out.str();
  finished.err = err.str();
  return finished;
}

/// The command must succeed.
inline Finished succeed(const std::vector<std::string>& arguments) {
  Finished finished = gemmule(arguments);
  std::string line;
  for (const std::string& argument : arguments) line += " " + argument;
  EXPECT_EQ(finished.code, success) << "gemmule" << line << "\n" << finished.err << finished.out;
  return finished;
}

/// One line on standard error that begins with the command's name, nothing on standard output.
inline void expect_one_line(const Finished& finished, const std::string& context) {
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << context << ": " << finished.err;
  EXPECT_TRUE(finished.err.starts_with("gemmule: ")) << context << ": " << finished.err;
  EXPECT_EQ(finished.out, "") << context;
}

inline std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string example(const std::string& activation) {
  return std::string(GEMMULE_EXAMPLE_DATA) + "/" + activation + ".safetensors";
}

/// A file's content, for tests that change it and write it back.
struct Contents {
  io::Metadata metadata;
  io::TensorMap tensors;

  explicit Contents(const std::string& path) {
    const io::SafetensorsReader reader(path);
    metadata = reader.metadata();
    for (const auto& [name, entry] : reader.tensors()) tensors.emplace(name, reader.read(name));
  }
  void write(const std::string& path) const { io::write_safetensors(path, metadata, tensors); }
};

}  // namespace gemmule::cli
