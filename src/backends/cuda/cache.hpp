// The disk cache of compiled kernels. Any number of processes may use one directory at once; what cannot be read,
// written or trusted is treated as absent.
//
// An entry is one file, <first 32 hex digits of sha256(identity)>-<compiler>.cubin: a header with sizes and a SHA-256
// of the rest, the whole identity and compiler strings (compared on every load), the cubin. Entries are written to a
// temporary name and renamed. A byte-range lock on the file "lock", one byte per entry, lets the first of many cold
// processes compile while the others wait for its result. The oldest entries (by last use) go when the cache is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace gemmule::cuda {

/// Writes a file under a temporary name and renames it. Why that failed, empty on success.
std::string write_atomically(const std::filesystem::path& target, const std::string& content);

class DiskCache {
 public:
  static constexpr std::uint64_t default_limit = std::uint64_t{512} << 20;

  /// No directory (an empty path): nothing is found and nothing is kept. The directory is made when first written to.
  explicit DiskCache(std::filesystem::path directory, std::uint64_t limit_bytes = default_limit);

  /// GEMMULE_CACHE_DIR, else $XDG_CACHE_HOME/gemmule, else $HOME/.cache/gemmule, else none.
  static DiskCache from_environment();

  struct Entry {
    std::string cubin;
    bool from_disk = false;
    std::string store_error;  ///< why it was not kept, empty if it was
  };
  /// The entry; `make` is called when there is none, as a rule in one process only. `compiler` "" (there is no
  /// compiler) accepts an entry of any compiler.
  Entry get(const std::string& identity, const std::string& compiler,
            const std::function<std::string()>& make) const;

  /// False when there is no valid entry.
  bool load(const std::string& identity, const std::string& compiler, std::string& cubin) const;
  /// Why the entry could not be kept; empty on success.
  std::string store(const std::string& identity, const std::string& compiler, const std::string& cubin) const;

  /// "<directory>, 12 kernels, 3.4 MB" or why there is none.
  std::string describe() const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path entry_path(const std::string& identity, const std::string& compiler) const;
  void prune(const std::filesystem::path& keep) const;

  std::filesystem::path directory_;
  std::uint64_t limit_bytes_;
};

}  // namespace gemmule::cuda
