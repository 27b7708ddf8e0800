#include "io/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "gemmule/error.hpp"
#include "io/atomic_file.hpp"
#include "io/test_files.hpp"

namespace gemmule::io {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<char> contents(const std::string& header, std::size_t data_bytes) {
  return safetensors_bytes(header, std::string(data_bytes, '\1'));
}

std::string message_of(std::vector<char> bytes) {
  try {
    SafetensorsReader reader("x.safetensors", std::move(bytes));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, ReadsWhatItWrote) {
  TemporaryDirectory dir;
  TensorMap tensors;
  std::mt19937 random(7);
  for (const DType dtype :
       {DType::float32, DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2,
        DType::float8_e8m0fnu, DType::uint8, DType::int32, DType::int64}) {
    HostTensor tensor(dtype, {3, 5, 1});
    for (std::byte& byte : tensor.as<std::byte>()) byte = static_cast<std::byte>(random());
    tensors.emplace(name(dtype), std::move(tensor));
  }
  tensors.emplace("empty", HostTensor(DType::float32, {0, 7}));
  tensors.emplace("scalar", HostTensor(DType::float32, {}));
  const Metadata metadata{{"op", "srelu"}, {"quote \" and \\", "line\nbreak \xc3\xa9"}};
  write_safetensors(dir / "t.safetensors", metadata, tensors);

  const SafetensorsReader reader(dir / "t.safetensors");
  EXPECT_EQ(reader.metadata(), metadata);
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const auto& [key, expected] : tensors) {
    const HostTensor got = reader.read(key);
    EXPECT_EQ(got.dtype, expected.dtype) << key;
    EXPECT_EQ(got.shape, expected.shape) << key;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.bytes.data()) % 256, 0u) << key;
    ASSERT_EQ(got.bytes.size(), expected.bytes.size()) << key;
    EXPECT_EQ(std::memcmp(got.bytes.data(), expected.bytes.data(), got.bytes.size()), 0) << key;
    EXPECT_EQ(reader.entry(key).begin % size_of(got.dtype), 0u) << key << " is not aligned to its element";
  }
  EXPECT_THROW(reader.read("missing"), InvalidArgument);
}

TEST(Safetensors, AcceptsTheSmallestFiles) {
  EXPECT_EQ(message_of(contents("{}", 0)), "accepted");
  EXPECT_EQ(message_of(contents("{\"__metadata__\":{}}   \n", 0)), "accepted");
  EXPECT_EQ(message_of(contents(R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", 8)),
            "accepted");
  // Zero-sized tensors may share an offset with another tensor.
  EXPECT_EQ(message_of(contents(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                                    "z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                4)),
            "accepted");
}

struct Hostile {
  const char* what;
  std::string header;
  std::size_t data_bytes;
  const char* message;
};

TEST(Safetensors, RefusesHostileHeaders) {
  const std::string f32 = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const Hostile table[] = {
      {"empty header", "", 0, "does not begin with '{'"},
      {"not an object", "[1]", 0, "does not begin with '{'"},
      {"leading space", " {}", 0, "does not begin with '{'"},
      {"cut off", "{\"a\":", 0, "not valid JSON at byte"},
      {"two documents", "{}{}", 0, "not valid JSON"},
      {"not UTF-8", "{\"\xff\xfe\":" + f32 + "}", 8, "not valid JSON"},
      {"overlong UTF-8", "{\"\xc0\xaf\":" + f32 + "}", 8, "not valid JSON"},
      {"lone surrogate", R"({"\ud800":)" + f32 + "}", 8, "not valid JSON"},
      {"control character", std::string("{\"a\nb\":") + f32 + "}", 8, "not valid JSON"},
      {"deep nesting", "{\"a\":" + std::string(200'000, '['), 0, "'a' is an array, expected an object"},
      {"deep objects", "{\"a\":{\"b\":{", 0, "tensor 'a': unknown field 'b'"},
      {"tensor is null", R"({"a":null})", 0, "'a' is null, expected an object"},
      {"tensor is a number", R"({"a":3})", 0, "'a' is a number, expected an object"},
      {"metadata is a string", R"({"__metadata__":"x"})", 0,
       "'__metadata__' is a string, expected an object"},
      {"metadata holds a number", R"({"__metadata__":{"k":1}})", 0,
       "metadata 'k' is a number, expected a string"},
      {"metadata holds an object", R"({"__metadata__":{"k":{}}})", 0,
       "metadata 'k' is an object, expected a string"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate '__metadata__'"},
      {"metadata key twice", R"({"__metadata__":{"k":"1","k":"2"}})", 0, "duplicate metadata key 'k'"},
      {"tensor twice", "{\"a\":" + f32 + ",\"a\":" + f32 + "}", 8, "duplicate tensor 'a'"},
      {"field twice", R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
       "duplicate field 'dtype'"},
      {"unknown field", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
       "unknown field 'x'"},
      {"no dtype", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no dtype"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "no shape"},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "no data_offsets"},
      {"empty entry", R"({"a":{}})", 0, "no dtype"},
      {"unknown dtype", R"({"a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", 8,
       "dtype 'F7', expected one of F32"},
      {"dtype is a number", R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8, "dtype is a number"},
      {"shape is a string", R"({"a":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})", 8,
       "shape is a string"},
      {"negative extent", R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
       "shape contains a negative number"},
      {"fractional extent", R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8,
       "shape contains a number"},
      {"nested shape", R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8,
       "shape contains an array"},
      {"extent above 2^63", R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8,
       "above 2^63-1"},
      {"extent above 2^64", R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}})", 8,
       "not a 64-bit integer"},
      {"product overflows to the right size",
       R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}})", 0,
       "exceeds 2^63-1 bytes"},
      {"product overflows, then zero",
       R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
       "exceeds 2^63-1 bytes"},
      {"too few bytes", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
       "needs 12 bytes, data_offsets give 8"},
      {"too many bytes", R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", 8, "needs 4 bytes"},
      {"one offset", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", 8,
       "data_offsets has 1 numbers"},
      {"three offsets", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8,
       "data_offsets has 3 numbers"},
      {"negative offset", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8,
       "data_offsets contains a negative number"},
      {"reversed offsets", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
       "outside the file's 8 data bytes"},
      {"beyond the end", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 8,
       "outside the file's 8 data bytes"},
      {"far beyond the end",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}})", 8,
       "outside"},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       8, "tensor 'b': begins at byte 4 inside another tensor"},
      {"same bytes twice",
       R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       8, "inside another tensor"},
      {"hole",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       8, "bytes [2, 4) belong to no tensor"},
      {"trailing bytes", "{\"a\":" + f32 + "}", 9, "1 bytes after the last tensor"},
      {"data without tensors", "{}", 5, "5 bytes after the last tensor"},
      {"truncated data", "{\"a\":" + f32 + "}", 7, "outside the file's 7 data bytes"},
  };
  for (const Hostile& hostile : table) {
    const std::string message = message_of(contents(hostile.header, hostile.data_bytes));
    EXPECT_THAT(message, HasSubstr(hostile.message)) << hostile.what;
    EXPECT_THAT(message, HasSubstr("x.safetensors: ")) << hostile.what;
    EXPECT_EQ(message.find('\n'), std::string::npos) << hostile.what << ": " << message;
    EXPECT_LT(message.size(), 500u) << hostile.what;
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::vector<char> whole = contents(R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", 8);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(message_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}), "accepted")
        << size;
}

TEST(Safetensors, RefusesHugeHeaderLengths) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::vector<char> bytes(10, '{');
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_THAT(message_of(bytes), HasSubstr("header length")) << length;
  }
}

TEST(Safetensors, NamesInMessagesStayOnOneLine) {
  const std::string message =
      message_of(contents(R"({"a\nb\u001b[31m":{"dtype":"F7","shape":[],"data_offsets":[0,0]}})", 0));
  EXPECT_THAT(message, HasSubstr("'a\\x0ab\\x1b[31m'"));
  EXPECT_LT(message_of(contents("{\"" + std::string(1'000'000, 'n') + "\":1}", 0)).size(), 300u);
}

TEST(Safetensors, RefusesWhatIsNotAFile) {
  TemporaryDirectory dir;
  EXPECT_THROW(SafetensorsReader(dir / "missing"), InvalidArgument);
  EXPECT_THROW(SafetensorsReader(dir.path()), InvalidArgument);
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsReader{pipe}, InvalidArgument) << "and must not wait for a writer";
}

TEST(Safetensors, FailedWritesLeaveNothing) {
  TemporaryDirectory dir;
  TensorMap tensors;
  tensors.emplace("a", HostTensor(DType::float32, {2}));
  const Metadata not_utf8{{"k", "\xff"}};
  EXPECT_ANY_THROW(write_safetensors(dir / "t", not_utf8, tensors));
  EXPECT_THROW(write_safetensors(dir / "no/such/directory", {}, tensors), InvalidArgument);
  EXPECT_THROW(write_safetensors(dir.path(), {}, tensors), InvalidArgument);
  EXPECT_THROW(write_safetensors("", {}, tensors), InvalidArgument);
  EXPECT_THROW(write_safetensors("/dev/null", {}, tensors), InvalidArgument);
  EXPECT_TRUE(fs::is_empty(dir.path()));
  {
    AtomicFile file(dir / "abandoned");
    file.write("x", 1);
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Safetensors, ReplacesAFileAndFollowsALink) {
  TemporaryDirectory dir;
  write_file(dir / "target", "old");
  fs::create_symlink("target", dir / "link");
  write_file(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(slurp(dir / "target"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2);
}

TEST(Safetensors, ReadsTheExampleCaptures) {
  for (const char* activation : {"srelu", "srelu_clamp", "swiglu", "geglu", "situglu"}) {
    const SafetensorsReader reader(std::string(GEMMULE_EXAMPLE_DATA) + "/" + activation + ".safetensors");
    EXPECT_EQ(reader.metadata().at("activation"), activation);
    EXPECT_EQ(reader.entry("prob").shape, (Shape{520}));
  }
}

}  // namespace
}  // namespace gemmule::io
