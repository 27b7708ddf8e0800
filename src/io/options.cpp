#include "io/options.hpp"

#include <charconv>
#include <cmath>
#include <functional>

#include "gemmule/error.hpp"

namespace gemmule::io {
namespace {

[[noreturn]] void bad(std::string_view key, const std::string& value, const char* expected) {
  throw InvalidArgument(std::string(key) + "=" + printable(value) + ": expected " + expected);
}

template <class T>
T parse_whole(std::string_view key, std::string_view text, const std::string& value, const char* expected) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) bad(key, value, expected);
  return number;
}

std::pair<int, int> parse_pair(std::string_view key, const std::string& value) {
  const std::size_t comma = value.find(',');
  constexpr const char* expected = "two integers such as 256,256";
  if (comma == value.npos) bad(key, value, expected);
  const std::string_view text = value;
  return {parse_whole<int>(key, text.substr(0, comma), value, expected),
          parse_whole<int>(key, text.substr(comma + 1), value, expected)};
}

float parse_positive(std::string_view key, const std::string& value) {
  const auto number = static_cast<float>(parse_number(key, value));
  if (!(number > 0 && std::isfinite(number) && std::isfinite(1 / number)))
    bad(key, value, "a number above 0, finite in float32 like its reciprocal");
  return number;
}

/// Infinity means no clamp.
float parse_clamp(std::string_view key, const std::string& value) {
  const auto number = static_cast<float>(parse_number(key, value));
  if (std::isnan(number)) bad(key, value, "a number, or an infinity for no clamp");
  return number;
}

bool is_none(const std::string& value) {
  return value == "none" || value == "None";
}

/// One option: its name, the form of its value for help texts, and what setting it does.
template <class Arguments>
struct OptionRow {
  const char* name;
  const char* form;
  std::function<void(Arguments&, const std::string&)> set;
};

template <class Arguments>
std::vector<OptionRow<Arguments>> common_rows() {
  using A = Arguments;
  const auto flag = [](const char* key, bool CommonOptions::*member) {
    return OptionRow<A>{key, "true|false",
                        [=](A& a, const std::string& v) { a.options.*member = parse_bool(key, v); }};
  };
  const auto integer = [](const char* key, int CommonOptions::*member) {
    return OptionRow<A>{key, "integer",
                        [=](A& a, const std::string& v) { a.options.*member = parse_int(key, v); }};
  };
  const auto dtype = [](const char* key, auto set) {
    return OptionRow<A>{key, "dtype", [=](A& a, const std::string& v) { set(a) = parse_dtype(key, v); }};
  };
  return {
      dtype("acc_dtype", [](A& a) -> DType& { return a.options.acc_dtype; }),
      dtype("d_dtype", [](A& a) -> DType& { return a.call.d_dtype; }),
      {"cd_major", "n",
       [](A& a, const std::string& v) {
         if (v.size() != 1) bad("cd_major", v, "n");
         a.call.cd_major = v[0];
       }},
      {"mma_tiler_mn", "M,N",
       [](A& a, const std::string& v) {
         const auto [m, n] = parse_pair("mma_tiler_mn", v);
         a.options.mma_tiler_mn = {m, n};
       }},
      {"cluster_shape_mn", "M,N|none",
       [](A& a, const std::string& v) {
         a.options.cluster_shape_mn.reset();
         if (is_none(v)) return;
         const auto [m, n] = parse_pair("cluster_shape_mn", v);
         a.options.cluster_shape_mn = ClusterShape{m, n};
       }},
      integer("sf_vec_size", &CommonOptions::sf_vec_size),
      flag("vector_f32", &CommonOptions::vector_f32),
      integer("m_aligned", &CommonOptions::m_aligned),
      flag("discrete_col_sfd", &CommonOptions::discrete_col_sfd),
      flag("use_dynamic_sched", &CommonOptions::use_dynamic_sched),
      flag("deterministic", &CommonOptions::deterministic),
      integer("sm_limit", &CommonOptions::sm_limit),
      flag("programmatic_launch", &CommonOptions::programmatic_launch),
  };
}

const std::vector<OptionRow<SreluArguments>>& rows(const SreluArguments*) {
  using A = SreluArguments;
  static const auto table = [] {
    auto all = common_rows<A>();
    all.push_back(
        {"c_dtype", "dtype", [](A& a, const std::string& v) { a.call.c_dtype = parse_dtype("c_dtype", v); }});
    all.push_back({"tanh_clamp_scale", "number|none", [](A& a, const std::string& v) {
                     a.options.tanh_clamp_scale.reset();
                     if (!is_none(v)) a.options.tanh_clamp_scale = parse_number("tanh_clamp_scale", v);
                   }});
    return all;
  }();
  return table;
}

const std::vector<OptionRow<DgluArguments>>& rows(const DgluArguments*) {
  using A = DgluArguments;
  static const auto table = [] {
    auto all = common_rows<A>();
    const auto number = [&](const char* key, const char* form, float DgluOptions::*member, auto parse) {
      all.push_back({key, form, [=](A& a, const std::string& v) { a.options.*member = parse(key, v); }});
    };
    all.push_back({"act_func", "dswiglu|dgeglu|dsituglu",
                   [](A& a, const std::string& v) { a.options.act_func = act_func_from_name(v); }});
    all.push_back({"linear_offset", "number|none", [](A& a, const std::string& v) {
                     a.options.linear_offset.reset();
                     if (!is_none(v)) a.options.linear_offset = parse_float("linear_offset", v);
                   }});
    number("geglu_alpha", "number", &DgluOptions::geglu_alpha, parse_float);
    number("glu_clamp_max", "number|inf", &DgluOptions::glu_clamp_max, parse_clamp);
    number("glu_clamp_min", "number|-inf", &DgluOptions::glu_clamp_min, parse_clamp);
    all.push_back({"geglu_filter", "automatic|mask|value", [](A& a, const std::string& v) {
                     if (v == "automatic" || is_none(v))
                       a.options.geglu_filter = GegluFilter::automatic;
                     else if (v == "mask")
                       a.options.geglu_filter = GegluFilter::mask;
                     else if (v == "value")
                       a.options.geglu_filter = GegluFilter::value;
                     else
                       bad("geglu_filter", v, "automatic, mask or value");
                   }});
    number("situ_beta1", "number", &DgluOptions::situ_beta1, parse_positive);
    number("situ_beta2", "number", &DgluOptions::situ_beta2, parse_positive);
    all.push_back({"epilogue_op", "none|identity|relu|srelu", [](A& a, const std::string& v) {
                     a.options.epilogue_op = is_none(v) ? EpilogueOp::none : epilogue_op_from_name(v);
                   }});
    all.push_back({"generate_dbias", "true|false", [](A& a, const std::string& v) {
                     a.call.generate_dbias = parse_bool("generate_dbias", v);
                   }});
    all.push_back({"use_single_group_runtime_offsets", "true|false", [](A& a, const std::string& v) {
                     a.options.use_single_group_runtime_offsets =
                         parse_bool("use_single_group_runtime_offsets", v);
                   }});
    return all;
  }();
  return table;
}

template <class Arguments>
bool set_row(Arguments& arguments, std::string_view key, const std::string& value) {
  for (const auto& row : rows(&arguments)) {
    if (key != row.name) continue;
    row.set(arguments, value);
    return true;
  }
  return false;
}

template <class Arguments>
std::vector<std::pair<std::string, std::string>> names() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& row : rows(static_cast<const Arguments*>(nullptr))) out.emplace_back(row.name, row.form);
  return out;
}

}  // namespace

bool parse_bool(std::string_view key, const std::string& value) {
  if (value == "true") return true;
  if (value == "false") return false;
  bad(key, value, "true or false");
}

int parse_int(std::string_view key, const std::string& value) {
  return parse_whole<int>(key, value, value, "an integer");
}

double parse_number(std::string_view key, const std::string& value) {
  return parse_whole<double>(key, value, value, "a number");
}

float parse_float(std::string_view key, const std::string& value) {
  const auto number = static_cast<float>(parse_number(key, value));
  if (!std::isfinite(number)) bad(key, value, "a number that is finite in float32");
  return number;
}

DType parse_dtype(std::string_view key, const std::string& value) {
  try {
    return dtype_from_name(value);
  } catch (const InvalidArgument&) {
    bad(key, value,
        "one of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, float4_e2m1fn_x2, "
        "uint8");
  }
}

bool set_option(SreluArguments& arguments, std::string_view key, const std::string& value) {
  return set_row(arguments, key, value);
}
bool set_option(DgluArguments& arguments, std::string_view key, const std::string& value) {
  return set_row(arguments, key, value);
}

std::vector<std::pair<std::string, std::string>> option_names(Op op) {
  return op == Op::srelu ? names<SreluArguments>() : names<DgluArguments>();
}

}  // namespace gemmule::io
