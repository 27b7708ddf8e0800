// The disk cache of kernels: hits, misses, damaged and foreign files, read-only and full disks, sixteen cold processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/cache.hpp"
#include "backends/cuda/compiler_stamp.hpp"
#include "backends/cuda/sha256.hpp"

namespace gemmule::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* compiler = "nvrtc13.0";

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    std::string pattern = testing::TempDir() + "gemmule_cache_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~DiskCacheTest() override {
    fs::permissions(directory_, fs::perms::owner_all);
    fs::remove_all(directory_);
  }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(directory_))
      if (file.path().extension() == ".cubin") found.push_back(file.path());
    return found;
  }
  fs::path only_entry() const {
    EXPECT_EQ(entries().size(), 1u);
    return entries().at(0);
  }
  static std::string never() { throw std::logic_error("make was called"); }

  fs::path directory_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// Runs `body` in `count` processes that start at the same moment; returns how many failed.
template <class Body>
int in_processes(int count, const Body& body) {
  int gate[2];
  if (::pipe(gate) != 0) return count;
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char byte;
      const ssize_t n = ::read(gate[0], &byte, 1);  // returns when the parent closes the other end
      bool good = false;
      try {
        good = n == 0 && body(i);
      } catch (...) {
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  ::close(gate[1]);
  int failed = 0;
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  ::close(gate[0]);
  return failed;
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(DiskCacheTest, KeepsAndFinds) {
  const DiskCache cache(directory_ / "made" / "on demand");
  const auto first = cache.get("source", compiler, [] { return std::string("cubin\0bytes", 11); });
  EXPECT_FALSE(first.from_disk);
  EXPECT_EQ(first.store_error, "");
  const auto second = cache.get("source", compiler, never);
  EXPECT_TRUE(second.from_disk);
  EXPECT_EQ(second.cubin, std::string("cubin\0bytes", 11));
}

TEST_F(DiskCacheTest, EveryPartOfTheKeyCounts) {
  const DiskCache cache(directory_);
  ASSERT_EQ(cache.store("source", compiler, "cubin"), "");
  std::string cubin;
  EXPECT_TRUE(cache.load("source", compiler, cubin));
  EXPECT_FALSE(cache.load("source ", compiler, cubin));
  EXPECT_FALSE(cache.load("source", "nvrtc13.1", cubin));
  EXPECT_TRUE(cache.load("source", "", cubin)) << "without a compiler any entry serves";
  EXPECT_FALSE(cache.load("other source", "", cubin));
}

TEST_F(DiskCacheTest, EveryTruncationIsRebuilt) {
  const DiskCache cache(directory_);
  ASSERT_EQ(cache.store("source", compiler, "a cubin of some length"), "");
  const fs::path path = only_entry();
  const std::string whole = read(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(path, whole.substr(0, size));
    std::string cubin;
    ASSERT_FALSE(cache.load("source", compiler, cubin)) << size << " of " << whole.size() << " bytes";
  }
  EXPECT_EQ(cache.get("source", compiler, [] { return std::string("new"); }).cubin, "new");
  EXPECT_EQ(cache.get("source", compiler, never).cubin, "new");
}

TEST_F(DiskCacheTest, EveryFlippedByteIsNoticed) {
  const DiskCache cache(directory_);
  ASSERT_EQ(cache.store("source", compiler, "a cubin of some length"), "");
  const fs::path path = only_entry();
  const std::string whole = read(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    write(path, damaged);
    std::string cubin;
    ASSERT_FALSE(cache.load("source", compiler, cubin)) << "byte " << i;
  }
  write(path, whole);
  std::string cubin;
  EXPECT_TRUE(cache.load("source", compiler, cubin));
}

TEST_F(DiskCacheTest, ForeignFilesAreNotOurs) {
  const DiskCache cache(directory_);
  ASSERT_EQ(cache.store("source", compiler, "cubin"), "");
  ASSERT_EQ(cache.store("other", compiler, "other cubin"), "");
  // A valid entry under another's name: the stored identity gives it away.
  const std::string own = hex(sha256("source")).substr(0, 32), other = hex(sha256("other")).substr(0, 32);
  fs::copy_file(directory_ / (other + "-" + compiler + ".cubin"),
                directory_ / (own + "-" + compiler + ".cubin"), fs::copy_options::overwrite_existing);
  std::string cubin;
  EXPECT_FALSE(cache.load("source", compiler, cubin));
  // Somebody else's file, and a directory, under the entry's name.
  write(directory_ / (own + "-" + compiler + ".cubin"),
        "\x7f"
        "ELF something else entirely, and long enough for a header");
  EXPECT_FALSE(cache.load("source", compiler, cubin));
  fs::remove(directory_ / (own + "-" + compiler + ".cubin"));
  fs::create_directory(directory_ / (own + "-" + compiler + ".cubin"));
  const auto entry = cache.get("source", compiler, [] { return std::string("made"); });
  EXPECT_EQ(entry.cubin, "made");
  EXPECT_NE(entry.store_error, "");
}

TEST_F(DiskCacheTest, HugeSizesInTheHeaderAreRefused) {
  const DiskCache cache(directory_);
  ASSERT_EQ(cache.store("source", compiler, "cubin"), "");
  std::string content = read(only_entry());
  for (int field = 0; field < 3; ++field)
    for (int byte = 0; byte < 8; ++byte) {
      std::string damaged = content;
      damaged[static_cast<std::size_t>(8 + 8 * field + byte)] = '\xff';
      write(only_entry(), damaged);
      std::string cubin;
      EXPECT_FALSE(cache.load("source", compiler, cubin)) << "field " << field << " byte " << byte;
    }
}

TEST_F(DiskCacheTest, ReadOnlyDirectoryServesWhatItHasAndNothingFails) {
  ASSERT_EQ(DiskCache(directory_).store("source", compiler, "cubin"), "");
  using enum fs::perms;
  fs::permissions(only_entry(), owner_read | group_read | others_read);
  fs::permissions(directory_, owner_read | owner_exec | group_read | group_exec | others_read | others_exec);
  const int failed = in_processes(1, [&](int) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) return false;  // root may write anywhere
    const DiskCache cache(directory_);
    std::string cubin;
    const auto entry = cache.get("another", compiler, [] { return std::string("made"); });
    return cache.load("source", compiler, cubin) && entry.cubin == "made" && !entry.store_error.empty();
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(DiskCacheTest, FullDiskLeavesNothingBehind) {
  const int failed = in_processes(1, [&](int) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};  // a write beyond 1000 bytes fails, as on a full disk
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const auto entry = DiskCache(directory_).get("source", compiler, [] { return std::string(5000, 'x'); });
    return entry.cubin == std::string(5000, 'x') &&
           entry.store_error.find("cannot write") != std::string::npos;
  });
  EXPECT_EQ(failed, 0);
  for (const auto& file : fs::directory_iterator(directory_)) EXPECT_EQ(file.path().filename(), "lock");
}

TEST_F(DiskCacheTest, NoDirectoryMeansNoDisk) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  const DiskCache cache{fs::path()};
  EXPECT_EQ(cache.get("source", compiler, [] { return std::string("made"); }).cubin, "made");
  EXPECT_NE(cache.store("source", compiler, "made"), "");
  EXPECT_TRUE(fs::is_empty(directory_));
  fs::current_path(before);
}

TEST_F(DiskCacheTest, OldestEntriesGoWhenItIsFull) {
  const DiskCache cache(directory_, 10000);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(cache.store("source " + std::to_string(i), compiler, std::string(2200, 'x')), "");
    const auto age = std::chrono::hours(10 - i);
    fs::last_write_time(
        directory_ / (hex(sha256("source " + std::to_string(i))).substr(0, 32) + "-" + compiler + ".cubin"),
        fs::file_time_type::clock::now() - age);
  }
  std::string cubin;
  ASSERT_TRUE(cache.load("source 0", compiler, cubin));  // used: now the youngest
  ASSERT_EQ(cache.store("source 4", compiler, std::string(2200, 'x')), "");
  EXPECT_TRUE(cache.load("source 0", compiler, cubin));
  EXPECT_FALSE(cache.load("source 1", compiler, cubin));
  EXPECT_TRUE(cache.load("source 2", compiler, cubin));
  EXPECT_TRUE(cache.load("source 3", compiler, cubin));
  EXPECT_TRUE(cache.load("source 4", compiler, cubin));
}

TEST_F(DiskCacheTest, OnlyOurOwnFilesAreRemoved) {
  const std::string digits(32, 'a');
  const std::vector<std::string> foreign = {"mine.cubin", "notes.tmp", digits + ".cubin",
                                            "z" + digits + "-x.cubin"};
  const std::vector<std::string> ours = {digits + "-nvrtc13.0.cubin", digits + "-nvrtc13.0.cubin.tmp7.8.9",
                                         "compiler.tmp1.2.3"};
  for (const auto* names : {&foreign, &ours})
    for (const std::string& name : *names) {
      write(directory_ / name, std::string(500, 'x'));
      fs::last_write_time(directory_ / name, fs::file_time_type::clock::now() - std::chrono::hours(5));
    }
  ASSERT_EQ(DiskCache(directory_, 100).store("source", compiler, "cubin"), "");
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(directory_ / name)) << name;
  for (const std::string& name : ours) EXPECT_FALSE(fs::exists(directory_ / name)) << name;
}

TEST_F(DiskCacheTest, AnEntryLargerThanTheLimitIsKeptAlone) {
  const DiskCache cache(directory_, 100);
  ASSERT_EQ(cache.store("a", compiler, std::string(500, 'x')), "");
  ASSERT_EQ(cache.store("b", compiler, std::string(500, 'y')), "");
  EXPECT_EQ(entries().size(), 1u);
  std::string cubin;
  EXPECT_TRUE(cache.load("b", compiler, cubin));
}

TEST_F(DiskCacheTest, SixteenColdProcessesMakeItOnce) {
  const int log = ::open((directory_ / "makes").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_GE(log, 0);
  const std::string expected(100000, 'c');
  const int failed = in_processes(16, [&](int) {
    const auto entry = DiskCache(directory_).get("source", compiler, [&] {
      if (::write(log, "x", 1) != 1) throw std::runtime_error("log");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return expected;
    });
    return entry.cubin == expected && entry.store_error.empty();
  });
  ::close(log);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(read(directory_ / "makes").size(), 1u);
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(DiskCacheTest, ThreadsOfOneProcessMakeItOnceToo) {
  std::atomic<int> makes{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const auto entry = DiskCache(directory_).get("source", compiler, [&] {
        ++makes;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return std::string("cubin");
      });
      wrong += entry.cubin != "cubin";
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(makes, 1);
  EXPECT_EQ(wrong, 0);
}

TEST_F(DiskCacheTest, AProcessKilledWhileCompilingBlocksNobody) {
  const int failed = in_processes(1, [&](int) -> bool {
    DiskCache(directory_).get("source", compiler, []() -> std::string { ::_exit(1); });
    return true;
  });
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(DiskCache(directory_).get("source", compiler, [] { return std::string("made"); }).cubin, "made");
}

TEST_F(DiskCacheTest, AFailedCompilationIsNotKept) {
  const DiskCache cache(directory_);
  EXPECT_THROW(cache.get("source", compiler, never), std::logic_error);
  EXPECT_TRUE(entries().empty());
  EXPECT_EQ(cache.get("source", compiler, [] { return std::string("made"); }).cubin, "made");
}

TEST_F(DiskCacheTest, TheCompilerIsRememberedUntilSomethingChanges) {
  const fs::path library = directory_ / "libnvrtc.so";
  write(library, "first");
  Nvrtc n;
  n.major = 13, n.minor = 1, n.path = library.string();
  EXPECT_EQ(stamped_compiler_version(directory_), "");
  stamp_compiler(directory_, n);
  EXPECT_EQ(stamped_compiler_version(directory_), "13.1");
  const int failed = in_processes(1, [&](int) {
    ::setenv("CUDA_HOME", "/another/toolkit", 1);
    return stamped_compiler_version(directory_).empty();
  });
  EXPECT_EQ(failed, 0) << "another environment";
  EXPECT_EQ(stamped_compiler_version(directory_), "13.1");
  write(library, "another size");
  EXPECT_EQ(stamped_compiler_version(directory_), "") << "another file in its place";
  stamp_compiler(directory_, n);
  EXPECT_EQ(stamped_compiler_version(directory_), "13.1");
  fs::remove(library);
  EXPECT_EQ(stamped_compiler_version(directory_), "") << "gone";
  write(directory_ / "compiler", "13.1\n");
  EXPECT_EQ(stamped_compiler_version(directory_), "") << "a damaged note";
  stamp_compiler("/nowhere/at/all", n);
}

TEST_F(DiskCacheTest, EnvironmentNamesTheDirectory) {
  const int failed = in_processes(1, [&](int) {
    ::setenv("HOME", "/somebody", 1);
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("GEMMULE_CACHE_DIR");
    bool good = DiskCache::from_environment().directory() == "/somebody/.cache/gemmule";
    ::setenv("XDG_CACHE_HOME", "/caches", 1);
    good = good && DiskCache::from_environment().directory() == "/caches/gemmule";
    ::setenv("GEMMULE_CACHE_DIR", "/mine", 1);
    good = good && DiskCache::from_environment().directory() == "/mine";
    ::unsetenv("GEMMULE_CACHE_DIR");
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("HOME");
    return good && DiskCache::from_environment().directory().empty();
  });
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace gemmule::cuda
