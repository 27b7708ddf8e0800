// A file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gemmule::io {

/// Bytes go to a temporary name in the same directory; commit() flushes them to the disk and renames. Without commit()
/// the temporary file is removed. A path that exists and is not a regular file (/dev/null, a directory) is refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view contents);

/// Throws InvalidArgument if AtomicFile(path) could not work, if `path` is "-", which the user takes for standard output, or if
/// it is one of `others` (what the command reads or writes besides; empty names are skipped), without creating anything: called
/// before long work.
void check_writable(const std::string& path, const std::vector<std::string>& others = {});

}  // namespace gemmule::io
