// Options of the operators as text: KEY=VALUE in a problem file's metadata and on the command line.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/problem_file.hpp"

namespace gemmule::io {

/// Sets one option. False when the operator has no option of that name. Throws InvalidArgument for a bad value.
bool set_option(SreluArguments& arguments, std::string_view key, const std::string& value);
bool set_option(DgluArguments& arguments, std::string_view key, const std::string& value);

/// Every option name with the form of its value, for help texts and messages: {"m_aligned", "integer"}, ...
std::vector<std::pair<std::string, std::string>> option_names(Op op);

// Values. Each throws InvalidArgument that names `key`, the text and what was expected.
bool parse_bool(std::string_view key, const std::string& value);
int parse_int(std::string_view key, const std::string& value);
double parse_number(std::string_view key, const std::string& value);
/// A number that is finite in float32.
float parse_float(std::string_view key, const std::string& value);
DType parse_dtype(std::string_view key, const std::string& value);

}  // namespace gemmule::io
