// gemmule bench: the operators beside the straightforward pipeline and the matrix products alone, in one run.
#include "bench/bench.hpp"

#include <algorithm>
#include <memory>
#include <ostream>

#include "backends/cpu/cpu.hpp"
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
  int experts = 4, repeats = 5, threads = 0;
  std::int64_t rows = 512, n = 0, k = 0;
  bool no_baseline = false, cpu_time = false;
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

std::vector<Shape> shapes(const BenchArguments& given) {
  std::vector<Shape> out;
  for (const std::string& name : given.models) {
    const Model& model = model_from_name(name);
    out.push_back({model.name, model.experts, given.rows, model.n, model.k});
  }
  if (!out.empty()) return out;
  const auto add = [&](std::int64_t n, std::int64_t k) {
    out.push_back({shape_text(given.experts, given.rows, n, k), given.experts, given.rows, n, k});
  };
  if (given.n || given.k) {
    add(given.n ? given.n : 2048, given.k ? given.k : 2048);
  } else {
    add(2048, 2048);
    add(2048, 256);
  }
  return out;
}

struct PlannedCase {
  Shape shape;
  std::string op, format;
  bench::Case run;
};

std::vector<PlannedCase> plan(const BenchArguments& given) {
  std::vector<PlannedCase> cases;
  for (const Shape& shape : shapes(given))
    for (const std::string& op : given.ops)
      for (const std::string& format : given.formats) {
        if (op == "srelu" && format == "bf16") continue;  // the operator is block-scaled only
        if (op == "dglu" && shape.n % 32)
          throw InvalidArgument("--n " + std::to_string(shape.n) + ": dglu needs a multiple of 32");
        bench::Case run;
        run.label = op;
        run.label.append(" ").append(format).append(" ").append(shape.name);
        run.problem = bench::make_problem(op == "srelu" ? Op::srelu : Op::dglu, format, shape.experts,
                                          shape.n, shape.k);
        run.rows.assign(static_cast<std::size_t>(shape.experts), shape.rows_per_expert);
        cases.push_back({shape, op, format, std::move(run)});
      }
  if (cases.empty()) throw InvalidArgument("nothing to measure: srelu has no bf16 form");
  return cases;
}

/// One line that is drawn over itself on a terminal, and nothing elsewhere.
class Progress {
 public:
  explicit Progress(const Terminal& terminal) : terminal_(terminal) {}
  ~Progress() { clear(); }

  void show(double fraction, const std::string& what) const {
    if (!terminal_.progress) return;
    constexpr int width = 30;
    const int filled = static_cast<int>(fraction * width);
    terminal_.err << "\r\x1b[K[" << std::string(static_cast<std::size_t>(filled), '#')
                  << std::string(static_cast<std::size_t>(width - filled), '.') << "] "
                  << static_cast<int>(fraction * 100) << " %  " << what << std::flush;
  }
  void clear() const {
    if (terminal_.progress) terminal_.err << "\r\x1b[K" << std::flush;
  }

 private:
  const Terminal& terminal_;
};

Measurement measure(const PlannedCase& planned, const bench::Options& options) {
  const bench::Result result = bench::run_case(planned.run, options);
  Measurement row;
  row.op = planned.op;
  row.format = planned.format;
  row.shape = planned.shape.name;
  row.experts = planned.shape.experts;
  row.rows = planned.shape.experts * planned.shape.rows_per_expert;
  row.n = planned.shape.n;
  row.k = planned.shape.k;
  row.seconds = result.ours.best;
  row.median = result.ours.median;
  row.baseline_seconds = result.pipeline.best;
  row.limit_seconds = result.sgemm.best;
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
  terminal.out
      << "limit: the same products by sgemm on values that are already float32, on the same threads\n";
}

int bench_command(const BenchArguments& given, const Terminal& terminal) {
  if (given.backend == "cuda") throw RuntimeFailure("bench --backend cuda: not available in this build");
  const std::vector<PlannedCase> cases = plan(given);
  if (!given.json.empty()) io::check_writable(given.json, {given.csv, given.html});
  if (!given.csv.empty()) io::check_writable(given.csv, {given.html});
  if (!given.html.empty()) io::check_writable(given.html);
  if (given.threads) set_num_threads(given.threads);

  BenchReport report;
  report.version = version();
  report.threads = num_threads();
  report.repeats = given.repeats;
  report.device = std::string("cpu ") + cpu::target() + ", " + std::to_string(report.threads) + " threads";
  report.baseline = given.no_baseline ? "not measured" : bench::baseline_description();
  {
    const Progress progress(terminal);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      bench::Options options;
      options.repeats = given.repeats;
      options.baseline = !given.no_baseline;
      options.cpu_time = given.cpu_time;
      const auto show = [&](int round, int rounds) {
        progress.show((static_cast<double>(i) + static_cast<double>(round) / rounds) /
                          static_cast<double>(cases.size()),
                      cases[i].run.label);
      };
      show(0, 1);
      options.progress = show;
      report.rows.push_back(measure(cases[i], options));
    }
  }
  print_table(report, terminal);
  if (!given.json.empty()) io::write_file(given.json, to_json(report));
  if (!given.csv.empty()) io::write_file(given.csv, to_csv(report));
  if (!given.html.empty()) io::write_file(given.html, to_html(report));
  return success;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  const auto given = std::make_shared<BenchArguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Time the operators beside the straightforward pipeline and sgemm");
  command->add_option("--op", given->ops, "Operators (default srelu,dglu)")
      ->delimiter(',')
      ->check(CLI::IsMember({"srelu", "dglu"}));
  CLI::Option* models = command
                            ->add_option("--models", given->models,
                                         "MoE layers of public models (see info); default: two square shapes")
                            ->delimiter(',');
  command->add_option("--formats", given->formats, "Number formats (default bf16,mxfp8,nvfp4)")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}));
  command->add_option("--backend", given->backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--experts", given->experts, "Experts without --models (default 4)")
      ->excludes(models)
      ->transform(decimal)
      ->check(CLI::Range(1, 1024));
  command->add_option("--rows", given->rows, "Rows of each expert, a multiple of 128 (default 512)")
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
  command->add_option("--repeats", given->repeats, "Rounds; the best counts (default 5)")
      ->transform(decimal)
      ->check(CLI::Range(1, 1000));
  command->add_flag("--no-baseline", given->no_baseline, "Time the operators only");
  command->add_flag("--cpu-time", given->cpu_time,
                    "Time the process's CPU time: for one thread on a busy machine");
  command->add_option("--json", given->json, "Also write the results as JSON");
  command->add_option("--csv", given->csv, "Also write the results as CSV");
  command->add_option("--html", given->html, "Also write a self-contained page with charts");
  command->callback([given, &action] {
    action = [given](const Terminal& terminal) { return bench_command(*given, terminal); };
  });
}

}  // namespace gemmule::cli
