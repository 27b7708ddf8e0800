#include "backends/cuda/cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/cuda/sha256.hpp"

namespace gemmule::cuda {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto lock_timeout =
    60s;  // a compilation takes seconds; after this, compile beside the other process
constexpr auto stale_temporary = 1h;  // left by a process that died while writing
constexpr const char* suffix = ".cubin";
constexpr const char* temporary_mark = ".tmp";

struct Header {
  char magic[8];  // the last byte is the version of this format
  std::uint64_t identity_size, compiler_size, cubin_size;
  std::uint8_t digest[32];  // SHA-256 of everything after the header
};
constexpr char magic[8] = {'g', 'e', 'm', 'm', 'u', 'l', 'e', 1};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string failure(const char* what, const fs::path& path) {
  return std::string(what) + " " + path.string() + ": " + std::strerror(errno);
}

/// The whole file, or false.
bool read_file(const fs::path& path, std::string& content) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  content.resize(static_cast<std::size_t>(info.st_size));
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

/// Writes a new file; on failure removes it and says why.
std::string write_file(const fs::path& path, const std::string& content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return failure("cannot create", path);
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::write(file.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      std::string error = failure("cannot write", path);
      ::unlink(path.c_str());
      return error;
    }
    done += static_cast<std::size_t>(n);
  }
  return {};
}

/// The cubin inside a valid entry for this identity (and this compiler, unless it is empty).
bool unpack(const std::string& content, const std::string& identity, const std::string& compiler,
            std::string& cubin) {
  Header header;
  if (content.size() < sizeof header) return false;
  std::memcpy(&header, content.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) return false;
  std::string_view body(content);
  body.remove_prefix(sizeof header);
  const std::uint64_t size = body.size();
  if (header.identity_size > size || header.compiler_size > size || header.cubin_size > size ||
      header.identity_size + header.compiler_size + header.cubin_size != size)
    return false;
  const Digest digest = sha256(body);
  if (std::memcmp(digest.data(), header.digest, sizeof header.digest) != 0) return false;
  if (body.substr(0, header.identity_size) != identity) return false;
  if (!compiler.empty() && body.substr(header.identity_size, header.compiler_size) != compiler) return false;
  cubin = body.substr(header.identity_size + header.compiler_size);
  return true;
}

std::string pack(const std::string& identity, const std::string& compiler, const std::string& cubin) {
  const std::string body = identity + compiler + cubin;
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.identity_size = identity.size();
  header.compiler_size = compiler.size();
  header.cubin_size = cubin.size();
  const Digest digest = sha256(body);
  std::memcpy(header.digest, digest.data(), sizeof header.digest);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

std::string stem(const std::string& identity) {
  return hex(sha256(identity)).substr(0, 32);
}

/// Waits for the lock of one entry: an open-file-description lock, so that threads exclude each other too, dropped by
/// the kernel when the process dies. Invalid when the directory cannot be written or the wait took too long.
class EntryLock {
 public:
  EntryLock(const fs::path& directory, const std::string& entry)
      : file_(::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (!file_) return;
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(std::stoull(entry.substr(0, 8), nullptr, 16));
    range.l_len = 1;
    const auto deadline = std::chrono::steady_clock::now() + lock_timeout;
    while (::fcntl(file_.get(), F_OFD_SETLK, &range) != 0) {
      const bool busy = errno == EAGAIN || errno == EACCES || errno == EINTR;
      if (!busy || std::chrono::steady_clock::now() > deadline) return;
      std::this_thread::sleep_for(5ms);
    }
  }

 private:
  Descriptor file_;  // closing it drops the lock
};

struct File {
  fs::path path;
  std::uint64_t size;
  fs::file_time_type time;
};

std::vector<File> files_in(const fs::path& directory) {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const File file{it->path(), it->file_size(ignored), it->last_write_time(ignored)};
    if (!ignored) files.push_back(file);
  }
  return files;
}

/// Whether a file's name is one that we give: other people's files in the directory are none of our business.
bool is_ours(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("compiler.tmp") || (name.find_first_not_of("0123456789abcdef") == 32 &&
                                              name[32] == '-' && name.find(suffix) != name.npos);
}
bool is_entry(const fs::path& path) {
  return is_ours(path) && path.extension() == suffix;
}
bool is_temporary(const fs::path& path) {
  return is_ours(path) && path.filename().string().find(temporary_mark) != std::string::npos;
}

}  // namespace

std::string write_atomically(const fs::path& target, const std::string& content) {
  // Processes on other machines or in other containers may have our number: the clock makes the name unique.
  static std::atomic<unsigned> serial{0};
  const fs::path temporary = target.string() + temporary_mark + std::to_string(::getpid()) + "." +
                             std::to_string(std::chrono::system_clock::now().time_since_epoch().count()) +
                             "." + std::to_string(serial.fetch_add(1));
  if (std::string reason = write_file(temporary, content); !reason.empty()) return reason;
  if (::rename(temporary.c_str(), target.c_str()) == 0) return {};
  std::string reason = failure("cannot rename to", target);
  ::unlink(temporary.c_str());
  return reason;
}

DiskCache::DiskCache(fs::path directory, std::uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

DiskCache DiskCache::from_environment() {
  const auto value = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text ? text : "";
  };
  if (const std::string own = value("GEMMULE_CACHE_DIR"); !own.empty()) return DiskCache(own);
  if (const std::string xdg = value("XDG_CACHE_HOME"); xdg.starts_with('/'))
    return DiskCache(fs::path(xdg) / "gemmule");
  if (const std::string home = value("HOME"); !home.empty())
    return DiskCache(fs::path(home) / ".cache" / "gemmule");
  return DiskCache({});
}

fs::path DiskCache::entry_path(const std::string& identity, const std::string& compiler) const {
  return directory_ / (stem(identity) + "-" + compiler + suffix);
}

bool DiskCache::load(const std::string& identity, const std::string& compiler, std::string& cubin) const {
  if (directory_.empty()) return false;
  std::vector<fs::path> candidates;
  if (!compiler.empty()) {
    candidates.push_back(entry_path(identity, compiler));
  } else {
    for (const File& file : files_in(directory_))
      if (is_entry(file.path) && file.path.filename().string().starts_with(stem(identity) + "-"))
        candidates.push_back(file.path);
    std::sort(candidates.rbegin(), candidates.rend());
  }
  for (const fs::path& path : candidates) {
    std::string content;
    if (!read_file(path, content) || !unpack(content, identity, compiler, cubin)) continue;
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // last use; a read-only cache keeps its order
    return true;
  }
  return false;
}

std::string DiskCache::store(const std::string& identity, const std::string& compiler,
                             const std::string& cubin) const {
  if (directory_.empty()) return "there is no cache directory: set GEMMULE_CACHE_DIR or HOME";
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return "cannot create " + directory_.string() + ": " + error.message();

  const fs::path target = entry_path(identity, compiler);
  if (std::string reason = write_atomically(target, pack(identity, compiler, cubin)); !reason.empty())
    return reason;
  prune(target);
  return {};
}

void DiskCache::prune(const fs::path& keep) const {
  std::vector<File> entries;
  std::uint64_t total = 0;
  for (File& file : files_in(directory_)) {
    if (is_temporary(file.path) && fs::file_time_type::clock::now() - file.time > stale_temporary)
      ::unlink(file.path.c_str());
    if (!is_entry(file.path)) continue;
    total += file.size;
    entries.push_back(std::move(file));
  }
  std::sort(entries.begin(), entries.end(), [](const File& a, const File& b) { return a.time < b.time; });
  for (const File& entry : entries) {
    if (total <= limit_bytes_) return;
    if (entry.path == keep) continue;
    ::unlink(entry.path.c_str());
    total -= entry.size;
  }
}

DiskCache::Entry DiskCache::get(const std::string& identity, const std::string& compiler,
                                const std::function<std::string()>& make) const {
  Entry entry;
  if (load(identity, compiler, entry.cubin)) {
    entry.from_disk = true;
    return entry;
  }
  if (directory_.empty()) {
    entry.cubin = make();
    entry.store_error = "there is no cache directory";
    return entry;
  }
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  const EntryLock lock(directory_, stem(identity));
  if (load(identity, compiler, entry.cubin)) {
    entry.from_disk = true;
    return entry;
  }
  entry.cubin = make();
  entry.store_error = store(identity, compiler, entry.cubin);
  return entry;
}

std::string DiskCache::describe() const {
  if (directory_.empty()) return "none: neither GEMMULE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (const File& file : files_in(directory_))
    if (is_entry(file.path)) {
      bytes += file.size;
      ++count;
    }
  return directory_.string() + ", " + std::to_string(count) + (count == 1 ? " kernel, " : " kernels, ") +
         std::to_string((bytes + 1023) / 1024) + " KiB";
}

}  // namespace gemmule::cuda
