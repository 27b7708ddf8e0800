// gemmule bench: the operators beside the straightforward pipeline and the matrix products alone, in one run.
#include "bench/bench.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include "backend_option.hpp"
#include "backends/cpu/cpu.hpp"
#include "backends/cuda/cuda.hpp"
#include "backends/cuda/device.hpp"
#include "bench_report.hpp"
#include "commands.hpp"
#include "gemmule/gemmule.hpp"
#include "io/atomic_file.hpp"
#include "models.hpp"
#include "text.hpp"

namespace gemmule::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> ops{"srelu", "dglu"}, models, formats{"bf16", "mxfp8", "nvfp4"};
  std::string backend = "auto", json, csv, html;
  int experts = 0, repeats = 5, threads = 0;
  std::optional<int> device;
  std::int64_t rows = 0, n = 0, k = 0;  ///< 0: not given
  bool bf16_d = false, no_baseline = false, cpu_time = false;
};

struct Shape {
  std::string name;
  int experts;
  std::int64_t rows_per_expert, n, k;
};

std::string shape_text(int experts, std::int64_t rows, std::int64_t n, std::int64_t k) {
  return std::to_string(experts) + "x" + std::to_string(rows) + " N" + std::to_string(n) + " K" +
         std::to_string(k);
}

/// Rows of all experts together, on a device: enough for a GPU.
constexpr std::int64_t device_rows = 32768;

std::vector<Shape> shapes(const BenchArguments& given, bool on_device) {
  const auto rows = [&](int experts) {
    return given.rows  ? given.rows
           : on_device ? std::max<std::int64_t>(device_rows / experts / 256, 1) * 256
                       : 512;
  };
  std::vector<Shape> out;
  const auto add_model = [&](const Model& model) {
    out.push_back({model.name, model.experts, rows(model.experts), model.n, model.k});
  };
  for (const std::string& name : given.models) add_model(model_from_name(name));
  if (!out.empty()) return out;
  const auto add = [&](int experts, std::int64_t n, std::int64_t k) {
    out.push_back({shape_text(experts, rows(experts), n, k), experts, rows(experts), n, k});
  };
  const int experts = given.experts ? given.experts : on_device ? 8 : 4;
  if (given.n || given.k) {
    add(experts, given.n ? given.n : 2048, given.k ? given.k : 2048);
  } else if (on_device) {
    if (!given.experts)
      for (const Model& model : models()) add_model(model);
    add(experts, 4096, 4096);
  } else {
    add(experts, 2048, 2048);
    add(experts, 2048, 256);
  }
  return out;
}

struct PlannedCase {
  Shape shape;
  std::string op, format;
  bench::Case run;
};

/// --bf16-d. True where there is a choice: dglu quantizes what it makes of FP8 operands, the rest is BF16 in any case.
bool write_bf16(Problem& problem) {
  if (problem.op != Op::srelu || !problem.quantize) return false;
  problem.d = DType::bfloat16;
  problem.quantize = problem.has_d_col = false;
  problem.has_amax = true;
  return true;
}

std::vector<PlannedCase> plan(const BenchArguments& given, bool on_device) {
  std::vector<PlannedCase> cases;
  bool has_bf16_d = false;
  for (const Shape& shape : shapes(given, on_device))
    for (const std::string& op : given.ops)
      for (const std::string& format : given.formats) {
        if (op == "srelu" && format == "bf16") continue;  // the operator is block-scaled only
        if (op == "dglu" && shape.n % 32)
          throw InvalidArgument("--n " + std::to_string(shape.n) + ": dglu needs a multiple of 32");
        bench::Case run;
        run.problem = bench::make_problem(op == "srelu" ? Op::srelu : Op::dglu, format, shape.experts,
                                          shape.n, shape.k);
        const bool bf16_d = given.bf16_d && write_bf16(run.problem);
        has_bf16_d = has_bf16_d || bf16_d;
        const std::string shown = bf16_d ? format + "->bf16" : format;
        run.label = op;
        run.label.append(" ").append(shown).append(" ").append(shape.name);
        run.problem.m_aligned = shape.rows_per_expert % 256 == 0 ? 256 : 128;
        run.rows.assign(static_cast<std::size_t>(shape.experts), shape.rows_per_expert);
        cases.push_back({shape, op, shown, std::move(run)});
      }
  if (cases.empty()) throw InvalidArgument("nothing to measure: srelu has no bf16 form");
  if (given.bf16_d && !has_bf16_d)
    throw InvalidArgument("--bf16-d: of no effect without srelu in mxfp8 or mxfp8_e5m2 (--op, --formats)");
  return cases;
}

std::string progress_bar(double fraction, const std::string& what) {
  constexpr std::size_t width = 30;
  const auto filled = static_cast<std::size_t>(fraction * static_cast<double>(width));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] " +
         std::to_string(static_cast<int>(fraction * 100)) + " %  " + what;
}

/// The cases that the device takes; `refused` says which it does not, and why.
std::vector<PlannedCase> planned_on_device(const BenchArguments& given, std::vector<std::string>& refused) {
  std::vector<PlannedCase> cases = plan(given, true);
  std::erase_if(cases, [&](const PlannedCase& planned) {
    const std::string why = cuda::refusal(planned.run.problem, given.device.value_or(0));
    if (!why.empty()) refused.push_back(planned.run.label + ": " + why);
    return !why.empty();
  });
  return cases;
}

/// auto: the device when it takes every case and nothing is asked of the processor, otherwise the processor. cuda: what the
/// device takes, and a line about what it does not; throws when that is everything.
std::vector<PlannedCase> choose_cases(const BenchArguments& given, const Terminal& terminal,
                                      bool& on_device) {
  on_device = false;
  const std::string backend = backend_with_device(given.backend, given.device.has_value());
  const bool wants_cpu = given.threads != 0 || given.cpu_time;
  if (backend == "cuda" && wants_cpu)
    throw InvalidArgument(
        "--threads, --cpu-time: not with --backend cuda or --device, a device is timed by its own events");
  if (backend == "cpu" || wants_cpu) return plan(given, false);
  std::vector<std::string> refused;
  std::vector<PlannedCase> cases = planned_on_device(given, refused);
  if (backend == "auto" && !refused.empty()) return plan(given, false);
  if (cases.empty()) {
    for (const PlannedCase& planned : plan(given, true))
      cuda::check_available(planned.run.problem, given.device.value_or(0));
  }
  for (const std::string& line : refused) terminal.err << "gemmule: not measured: " << line << "\n";
  on_device = true;
  return cases;
}

Measurement measure(const PlannedCase& planned, const bench::Options& options, std::optional<int> device) {
  const bench::Result result = device ? bench::run_case_on_device(planned.run, options, *device)
                                      : bench::run_case(planned.run, options);
  Measurement row;
  row.op = planned.op;
  row.format = planned.format;
  row.shape = planned.shape.name;
  row.experts = planned.shape.experts;
  row.rows = planned.shape.experts * planned.shape.rows_per_expert;
  row.n = planned.shape.n;
  row.k = planned.shape.k;
  // A device slows down when it gets warm: there the best round says little.
  row.seconds = device ? result.ours.median : result.ours.best;
  row.median = result.ours.median;
  row.baseline_seconds = result.pipeline.best;
  row.limit_seconds = device ? result.products.median : result.products.best;
  row.flops = result.flops;
  row.bytes = result.bytes;
  return row;
}

void print_table(const BenchReport& report, const Terminal& terminal) {
  terminal.out << report.device << "; baseline: " << report.baseline << "\n";
  Table table({"op", "format", "shape", "ms", "TFLOP/s", "GB/s", "of limit", "baseline ms", "speed-up"});
  for (const Measurement& m : report.rows)
    table.add({m.op, m.format, m.shape, number(m.seconds * 1e3, 4), number(m.tflops()), number(m.bandwidth()),
               m.limit_seconds > 0 ? number(100 * m.share_of_limit()) + " %" : "-",
               m.baseline_seconds > 0 ? number(m.baseline_seconds * 1e3, 4) : "-",
               m.baseline_seconds > 0 ? number(m.speedup()) + "x" : "-"});
  table.print(terminal, 3);
  terminal.out << "limit: " << report.limit << "\n";
}

void describe_processor(const BenchArguments& given, BenchReport& report) {
  report.threads = num_threads();
  report.device = std::string("cpu ") + cpu::target() + ", " + std::to_string(report.threads) + " threads";
  report.baseline = given.no_baseline ? "not measured" : bench::baseline_description();
  report.statistic = "best";
  report.limit = given.no_baseline || !bench::has_baseline()
                     ? "not measured"
                     : "the same products by sgemm on values that are already float32, on the same threads";
}

void describe_device(const BenchArguments& given, BenchReport& report) {
  report.device = cuda::gpu(given.device.value_or(0)).describe();
  report.baseline = "not measured here; bench/gpu/ times PyTorch's pipelines beside this library";
  report.statistic = "median";
  report.limit = given.no_baseline ? "not measured"
                                   : "the same products in BF16 by " +
                                         bench::device_limit_description(given.device.value_or(0)) +
                                         ", one by one or grouped, whichever is faster";
}

int bench_command(const BenchArguments& given, const Terminal& terminal) {
  bool on_device = false;
  const std::vector<PlannedCase> cases = choose_cases(given, terminal, on_device);
  const bool json_to_stdout = given.json == "-";
  if (!given.json.empty() && !json_to_stdout) io::check_writable(given.json, {given.csv, given.html});
  if (!given.csv.empty()) io::check_writable(given.csv, {given.html});
  if (!given.html.empty()) io::check_writable(given.html);
  if (given.threads) set_num_threads(given.threads);

  BenchReport report;
  report.version = version();
  report.repeats = given.repeats;
  if (on_device)
    describe_device(given, report);
  else
    describe_processor(given, report);
  {
    const StatusLine status(terminal);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      bench::Options options;
      options.repeats = given.repeats;
      options.baseline = !given.no_baseline;
      options.cpu_time = given.cpu_time;
      const auto show = [&](int round, int rounds) {
        status.show(progress_bar((static_cast<double>(i) + static_cast<double>(round) / rounds) /
                                     static_cast<double>(cases.size()),
                                 cases[i].run.label));
      };
      show(0, 1);
      options.progress = show;
      report.rows.push_back(
          measure(cases[i], options, on_device ? std::optional(given.device.value_or(0)) : std::nullopt));
    }
  }
  if (json_to_stdout)
    terminal.out << to_json(report);
  else
    print_table(report, terminal);
  if (!given.json.empty() && !json_to_stdout) io::write_file(given.json, to_json(report));
  if (!given.csv.empty()) io::write_file(given.csv, to_csv(report));
  if (!given.html.empty()) io::write_file(given.html, to_html(report));
  return success;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  const auto given = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand(
      "bench", "Time the operators beside the straightforward pipeline and the products alone");
  command->add_option("--op", given->ops, "Operators (default srelu,dglu)")
      ->delimiter(',')
      ->check(CLI::IsMember({"srelu", "dglu"}));
  CLI::Option* models =
      command
          ->add_option(
              "--models", given->models,
              "MoE layers of public models (see info); default: two square shapes, on a device all models")
          ->delimiter(',');
  command->add_option("--formats", given->formats, "Number formats (default bf16,mxfp8,nvfp4)")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}));
  command->add_option("--backend", given->backend, "auto (cuda if it takes every case), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--device", given->device, "CUDA device (default 0); auto is then cuda")
      ->transform(decimal)
      ->check(CLI::Range(0, 1023));
  command->add_option("--experts", given->experts, "Experts without --models (default 4, on a device 8)")
      ->excludes(models)
      ->transform(decimal)
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--rows", given->rows,
                   "Rows of each expert, a multiple of 128 (default 512, on a device 32768 in all)")
      ->transform(decimal)
      ->check([](const std::string& text) {
        const bool good = !text.empty() && text.size() < 9 &&
                          text.find_first_not_of("0123456789") == text.npos && std::stol(text) > 0 &&
                          std::stol(text) % 128 == 0;
        return good ? std::string() : "expected a positive multiple of 128";
      });
  command->add_option("--n", given->n, "N without --models (default 2048)")
      ->excludes(models)
      ->transform(decimal)
      ->check(CLI::Range(32, 1 << 20));
  command->add_option("--k", given->k, "K without --models (default 2048 and 256)")
      ->excludes(models)
      ->transform(decimal)
      ->check(CLI::Range(32, 1 << 20));
  command->add_option("--threads", given->threads, "Threads (default: all, or GEMMULE_NUM_THREADS)")
      ->transform(decimal)
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--repeats", given->repeats, "Rounds; the best counts, on a device the median (default 5)")
      ->transform(decimal)
      ->check(CLI::Range(1, 1000));
  command->add_flag(
      "--bf16-d", given->bf16_d,
      "srelu of FP8 operands: D in BF16 and its maxima, instead of D and D_col in FP8 with scales");
  command->add_flag("--no-baseline", given->no_baseline, "Time the operators only");
  command->add_flag("--cpu-time", given->cpu_time,
                    "Time the process's CPU time: for one thread on a busy machine");
  command->add_option("--json", given->json,
                      "Also write the results as JSON; to standard output, instead of the table, for -");
  command->add_option("--csv", given->csv, "Also write the results as CSV");
  command->add_option("--html", given->html, "Also write a self-contained page with charts");
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return bench_command(*given, terminal); };
  });
}

}  // namespace gemmule::cli
