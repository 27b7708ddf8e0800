#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "gemmule/error.hpp"
#include "io/host_tensor.hpp"

namespace gemmule::io {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void cannot_write(const std::string& path, const std::string& reason) {
  throw InvalidArgument("cannot write " + quote(path) + ": " + reason);
}

/// The file that will be replaced: a symbolic link is followed, so that the link itself survives.
std::string resolve(const std::string& path) {
  if (path.empty()) cannot_write(path, "the name is empty");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    cannot_write(path, "not a regular file, which could be replaced as a whole");
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    const fs::path target = fs::canonical(path, error);
    if (error) cannot_write(path, error.message());
    return target.string();
  }
  return path;
}

std::string directory_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(resolve(path)) {
  static std::atomic<unsigned> counter{0};
  temporary_ = path_ + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) cannot_write(path, std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  cannot_write(path_, std::string(what) + ": " + std::strerror(errno));
}

void AtomicFile::write(const void* data, std::size_t size) {
  // One call transfers at most 2^31-4096 bytes on Linux.
  constexpr std::size_t chunk = std::size_t{1} << 30;
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, size < chunk ? size : chunk);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("fsync");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  temporary_.clear();
  // The rename itself is made durable; a file system that cannot sync a directory has still renamed.
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

void write_file(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents.data(), contents.size());
  file.commit();
}

void check_writable(const std::string& path, const std::vector<std::string>& others) {
  if (path == "-")
    cannot_write(path, "standard output cannot be replaced as a whole (a file of that name is ./-)");
  for (const std::string& other : others) {
    std::error_code missing;
    if (!other.empty() && (resolve(path) == resolve(other) || fs::equivalent(path, other, missing)))
      cannot_write(path, "it is " + quote(other) + ", which this command also names");
  }
  const std::string directory = directory_of(resolve(path));
  if (::access(directory.c_str(), W_OK | X_OK) != 0) cannot_write(path, std::strerror(errno));
}

}  // namespace gemmule::io
