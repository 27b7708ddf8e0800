// The JSON header: an event-driven parser, so that duplicate names are seen and nesting costs no stack.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gemmule/error.hpp"
#include "io/file_dtypes.hpp"
#include "io/safetensors.hpp"

namespace gemmule::io {
namespace {

using nlohmann::json;

[[noreturn]] void bad(const std::string& what) {
  throw InvalidArgument("safetensors header: " + what);
}

std::string tensor(const std::string& name) {
  return "tensor " + quote(name);
}

/// The header's grammar: { "__metadata__": {string: string, ...}, NAME: {"dtype": string, "shape": [integer, ...],
/// "data_offsets": [begin, end]}, ... }. Each event is legal in the states named here and nowhere else.
class HeaderSax : public json::json_sax_t {
 public:
  explicit HeaderSax(Header& header) : header_(header) {}

  bool null() override { return reject("null"); }
  bool boolean(bool) override { return reject("a boolean"); }
  bool number_float(double, const std::string&) override {
    return reject("a number that is not a 64-bit integer");
  }
  bool binary(json::binary_t&) override { return reject("binary data"); }
  bool number_integer(std::int64_t) override { return reject("a negative number"); }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ == State::offsets) {
      if (count_ < 2) (count_ == 0 ? entry_.begin : entry_.end) = value;
      ++count_;
    } else if (state_ == State::shape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX))
        bad(tensor(name_) + ": extent " + std::to_string(value) + " is above 2^63-1");
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      reject("a number");
    }
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == State::metadata && have_key_) {
      if (!header_.metadata.emplace(key_, text).second) bad("duplicate metadata key " + quote(key_));
      have_key_ = false;
    } else if (state_ == State::entry && key_ == "dtype") {
      entry_.dtype = dtype_from_file(text);
      if (entry_.dtype == DType::none)
        bad(tensor(name_) + ": dtype " + quote(text) + ", expected one of " + file_dtype_names());
    } else {
      reject("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::root;
    } else if (state_ == State::root && key_ == "__metadata__") {
      if (std::exchange(seen_metadata_, true)) bad("duplicate '__metadata__'");
      state_ = State::metadata;
    } else if (state_ == State::root) {
      name_ = key_;
      entry_ = {};
      seen_.fill(false);
      state_ = State::entry;
    } else {
      reject("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    key_ = text;
    have_key_ = true;
    if (state_ == State::entry) {
      const auto field = std::find(fields.begin(), fields.end(), text);
      if (field == fields.end()) bad(tensor(name_) + ": unknown field " + quote(text));
      if (std::exchange(seen_[static_cast<std::size_t>(field - fields.begin())], true))
        bad(tensor(name_) + ": duplicate field " + quote(text));
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::entry) {
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (!seen_[i]) bad(tensor(name_) + ": no " + std::string(fields[i]));
      if (!header_.tensors.emplace(name_, std::move(entry_)).second) bad("duplicate " + tensor(name_));
    }
    state_ = state_ == State::root ? State::done : State::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::entry && key_ == "shape") {
      state_ = State::shape;
    } else if (state_ == State::entry && key_ == "data_offsets") {
      state_ = State::offsets;
      count_ = 0;
    } else {
      reject("an array");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && count_ != 2)
      bad(tensor(name_) + ": data_offsets has " + std::to_string(count_) + " numbers, expected 2");
    state_ = State::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    if (const auto prefix = what.find("] "); prefix != what.npos) what.remove_prefix(prefix + 2);
    bad("not valid JSON at byte " + std::to_string(position) + " (" + printable(what) + ")");
  }

 private:
  enum class State { start, root, metadata, entry, shape, offsets, done };
  static constexpr std::array<std::string_view, 3> fields{"dtype", "shape", "data_offsets"};

  [[noreturn]] bool reject(const std::string& what) const {
    switch (state_) {
      case State::start:
        bad("is " + what + ", expected an object");
      case State::metadata:
        bad("metadata " + quote(key_) + " is " + what + ", expected a string");
      case State::entry:
        bad(tensor(name_) + ": " + key_ + " is " + what + ", expected " +
            (key_ == "dtype" ? "a string" : "an array of non-negative integers"));
      case State::shape:
        bad(tensor(name_) + ": shape contains " + what + ", expected non-negative integers");
      case State::offsets:
        bad(tensor(name_) + ": data_offsets contains " + what + ", expected non-negative integers");
      default:
        bad(quote(key_) + " is " + what + ", expected an object");
    }
  }

  Header& header_;
  State state_ = State::start;
  bool seen_metadata_ = false, have_key_ = false;
  std::string key_, name_;
  Entry entry_;
  std::array<bool, 3> seen_{};
  std::size_t count_ = 0;
};

void check_entry(const std::string& name, const Entry& entry, std::uint64_t data_bytes) {
  const std::string range = "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")";
  if (entry.begin > entry.end || entry.end > data_bytes)
    bad(tensor(name) + ": bytes " + range + " are outside the file's " + std::to_string(data_bytes) +
        " data bytes");
  std::int64_t bytes = 1;
  bool overflow = __builtin_mul_overflow(bytes, static_cast<std::int64_t>(size_of(entry.dtype)), &bytes);
  for (const std::int64_t extent : entry.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  // An overflow is an error whatever follows: a later zero extent would hide it.
  if (overflow) bad(tensor(name) + ": shape " + printable(to_string(entry.shape)) + " exceeds 2^63-1 bytes");
  if (static_cast<std::uint64_t>(bytes) != entry.end - entry.begin)
    bad(tensor(name) + ": shape " + printable(to_string(entry.shape)) + " of " + gemmule::name(entry.dtype) +
        " needs " + std::to_string(bytes) + " bytes, data_offsets give " +
        std::to_string(entry.end - entry.begin));
}

/// The tensors' byte ranges must tile the data: no hole, no overlap, nothing after the last one.
void check_coverage(const Header& header, std::uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const Entry*>> order;
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t next = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin < next)
      bad(tensor(*name) + ": begins at byte " + std::to_string(entry->begin) + " inside another tensor");
    if (entry->begin > next)
      bad("bytes [" + std::to_string(next) + ", " + std::to_string(entry->begin) + ") belong to no tensor");
    next = entry->end;
  }
  if (next != data_bytes)
    bad(std::to_string(data_bytes - next) + " bytes after the last tensor belong to no tensor");
}

}  // namespace

Header parse_header(std::string_view text, std::uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') bad("does not begin with '{'");
  Header header;
  HeaderSax sax(header);
  json::sax_parse(text.begin(), text.end(), &sax);
  for (const auto& [name, entry] : header.tensors) check_entry(name, entry, data_bytes);
  check_coverage(header, data_bytes);
  return header;
}

}  // namespace gemmule::io
