// bench_cases.cpp - what is to be measured: every problem of a suite or of the flags, in every
// dtype, by every algorithm, on every number of threads that was asked for.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "bench/bench.hpp"
#include "files/byte_source.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kMostConvolutions = 1'000'000'000'000;  // of a line: their sum is printed

// Returns the problem of [NAME [COUNT]] LINE.
BenchProblem problem_of(Words words) {
  BenchProblem problem;
  std::string name;
  if (!is_foreign(words) && !op_from_name(words[0])) {
    name = words[0];
    words.erase(words.begin());
    if (is_digit(words[0][0])) {
      problem.count = parse_whole(words[0]).value_or(0);
      if (problem.count < 1 || problem.count > kMostConvolutions) {
        bad_input("count: ", words[0], ", expected from 1 to ", kMostConvolutions);
      }
      words.erase(words.begin());
    }
  }
  static_cast<NamedProblem&>(problem) = read_problem(joined(words));
  if (!name.empty()) problem.name = name;
  if (problem.name.empty()) problem.name = describe(problem.problem);
  return problem;
}

Words words_of(const std::string& line) {
  std::size_t end = line.find('#');
  // MIOpenDriver has a flag "-#", which begins no comment.
  while (end != std::string::npos && end > 0 && line[end - 1] == '-') end = line.find('#', end + 1);
  return words_of_line(line.substr(0, end));
}

// Returns the first comment that is not the names of columns.
std::string about(const std::string& text) {
  TextReader lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("# ") && !line.starts_with("# name")) return line.substr(2);
  }
  return "";
}

// A suite has a problem a line, behind its name and how often it occurs.
std::vector<BenchProblem> read_suite(const std::string& suite) {
  const std::string path = suite_path(suite);
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    bad_input("--suite: cannot open ", path, ": No such file or directory",
              Hint("--list-suites names the suites that are installed",
                   did_you_mean(suite, suite_names())));
  }
  TextReader file(read_text(path, "--suite: ", "a file"));
  std::vector<BenchProblem> problems;
  std::set<std::string> names;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    const Words words = words_of(line);
    if (words.empty()) continue;
    const std::string origin = cat("--suite: ", path, ", line ", number, ": ");
    try {
      problems.push_back(problem_of(words));
    } catch (const Error& error) {
      bad_input(origin, error);
    }
    problems.back().origin = origin;
    const std::string& name = problems.back().name;
    if (!names.insert(name).second) {
      bad_input(origin, "the name ", name, " is there twice, expected another");
    }
  }
  if (problems.empty()) bad_input("--suite: ", path, " has no problem, expected one a line");
  return problems;
}

// Keeps the layers of a network, which are called FAMILY/NETWORK/NUMBER. Either of the first two
// may be left out of its name where one network alone is called so.
void keep_network(const std::string& name, std::vector<BenchProblem>& problems) {
  std::set<std::string> networks, known;
  for (const BenchProblem& problem : problems) {
    const std::string network = problem.name.substr(0, problem.name.rfind('/'));
    known.insert(network.substr(network.find('/') + 1));
    if (network == name || network.ends_with("/" + name)) networks.insert(network);
  }
  if (networks.size() != 1) {
    const Words found(networks.begin(), networks.end());
    bad_input("--network: '", name, "' is ", found.empty() ? "none of those" : "more than one",
              " in bench/layers/networks.tsv", found.empty() ? "" : ", expected " + join_or(found),
              did_you_mean(name, Words(known.begin(), known.end())));
  }
  std::erase_if(problems, [&](const BenchProblem& problem) {
    return !problem.name.starts_with(*networks.begin() + "/");
  });
}

// Returns {"a", "b"} for "a,b".
Words split(const std::string& flag, const std::string& text) {
  Words words = pieces_of(text, ',');
  for (std::string& word : words) {
    const std::size_t begin = word.find_first_not_of(" []"), end = word.find_last_not_of(" []");
    if (begin == std::string::npos) misuse(flag, ": '", text, "' has an empty element");
    word = word.substr(begin, end - begin + 1);
  }
  return words;
}

template <typename Value>
void add_once(std::vector<Value>& values, const Value& value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

// Returns the dtypes of the flag, or else the problem's own.
std::vector<DType> dtypes_of(const std::string& text, DType own) {
  if (text.empty()) return {own};
  std::vector<DType> dtypes;
  for (const std::string& word : split("--dtype", text)) {
    if (word == "all") return {DType::f16, DType::bf16, DType::f32, DType::f64};
    add_once(dtypes, parse_dtype("--dtype", word));
  }
  return dtypes;
}

std::vector<int> threads_of(const BenchOptions& options) {
  const std::string& text = options.threads;
  std::vector<int> threads;
  for (const std::string& word : split("--threads", text.empty() ? "0" : text)) {
    const std::optional<std::int64_t> value = parse_whole(word);
    if (!value || *value > kMostThreads) {
      misuse("--threads: '", word, "', expected whole numbers from 0 to ", kMostThreads);
    }
    add_once(threads, *value > 0 ? static_cast<int>(*value) : this_machine().threads);
  }
  return threads;
}

// Returns names of kernels, "auto" and "all".
Words algorithms_of(const BenchOptions& options) {
  const std::string& text = options.algorithm;
  Words algorithms;
  for (const std::string& word : split("--algorithm", text.empty() ? "auto" : text)) {
    if (word != "auto" && word != "all" && !is_device_kernel(word)) find_kernel(word);
    add_once(algorithms, word);
  }
  return algorithms;
}

Words algorithms_for(const WgradProblem& problem, const Words& asked,
                     const std::optional<Device>& device) {
  Words algorithms;
  const auto add_all = [&](const auto& all, const auto& where) {
    for (const auto& kernel : all) {
      if (kernel.why_not(with_channels(problem), where).empty()) {
        add_once(algorithms, std::string(kernel.name));
      }
    }
  };
  for (const std::string& word : asked) {
    if (word != "all") {
      add_once(algorithms, word);
    } else if (device) {
      add_all(device_kernels(), *device);
    } else {
      add_all(kernels(), this_machine());
    }
  }
  return algorithms;
}

std::vector<BenchProblem> problems_of(const BenchOptions& options) {
  const ProblemOptions& o = options.problem;
  if (!o.line.empty()) return {{problem_of_line(options)}};
  if (options.suite.empty() && options.network.empty()) {
    return {{{"", made_problem("--input-shape", options, options, DType::f32)}}};
  }
  refuse_flags(options, About::operation, "--suite, whose lines set it");
  refuse_flags(options, About::format, "--suite, whose lines set it");
  std::vector<BenchProblem> problems =
      read_suite(options.network.empty() ? options.suite : "networks");
  if (!options.network.empty()) keep_network(options.network, problems);
  for (BenchProblem& problem : problems) {
    if (!options.batch) break;
    problem.problem.N = *options.batch;
    problem.problem = read_problem(describe(problem.problem)).problem;  // which checks its sizes
  }
  std::erase_if(problems, [&](const BenchProblem& problem) {
    return problem.name.find(options.only) == std::string::npos;
  });
  if (problems.empty()) {
    bad_input("--only: no name in ", cat(options.suite, options.network), " holds '", options.only,
              "'");
  }
  return problems;
}

// Throws if the plan, both tensors and the rounded result together take more than the limit.
void check_memory(const BenchCase& c) {
  const WgradProblem& pb = c.problem;
  const std::string what = "the memory of the job";
  const std::int64_t item = dtype_bytes(pb.dtype);
  const std::int64_t tensors = checked_add(pb.x_count() * item, pb.dy_count() * item, what);
  const std::int64_t result = pb.dw_count() * dtype_bytes(pb.out_dtype);
  const std::int64_t need =
      checked_add(checked_add(tensors, result, what), c.plan.memory.total(), what);
  if (need <= c.plan.memory_limit_bytes) return;
  const bool limited = c.plan_options.memory_limit_bytes > 0;
  throw Error(ErrorKind::runtime, limited ? "--memory-limit is " : "the machine has ",
              format_bytes(c.plan.memory_limit_bytes), ", but ", c.name, " needs ",
              format_bytes(need), " (", format_bytes(tensors), " of tensors)",
              Hint(limited ? "raise the limit, or measure" : "measure", " a smaller batch"));
}

// Returns the options with the first algorithm of the list, which tells the backend of all.
ExecutionOptions backend_options(const BenchOptions& options) {
  ExecutionOptions execution = options.execution;
  execution.algorithm = algorithms_of(options).front();
  if (execution.algorithm == "all") execution.algorithm = "auto";
  return execution;
}

// Adds the cases of one problem: each algorithm on each number of threads.
void add_cases(const BenchOptions& options, BenchCase base, std::vector<BenchCase>& cases) {
  if (base.name.empty()) base.name = describe(base.problem);
  base.tensors = cases.empty() ? 0 : cases.back().tensors + 1;
  const std::int64_t source_bytes = base.plan_options.source_bytes;
  base.plan_options = plan_options(options);
  base.plan_options.source_bytes = source_bytes;
  base.plan_options.in_memory = true;
  std::optional<Device> device;  // none for the processor, which auto takes here too
  if (named_backend(backend_options(options)) == Backend::cuda) {
    device = cuda_device(options.execution.device.value_or(0));
    base.plan_options.backend = Backend::cuda;
    base.plan_options.device = *device;
  }
  for (const std::string& algorithm :
       algorithms_for(base.problem, algorithms_of(options), device)) {
    for (const int threads : threads_of(options)) {
      base.algorithm = base.plan_options.algorithm = algorithm;
      base.plan_options.threads = threads;
      base.plan = make_plan(base.problem, this_machine(), base.plan_options);
      check_memory(base);
      cases.push_back(base);
    }
  }
}

void check_sources(const BenchOptions& options) {
  const bool files = !options.problem.input.empty() || !options.problem.out_backprop.empty();
  // Beside files a line says the rest of the problem.
  const bool line = !files && !options.problem.line.empty();
  const auto sources =
      std::ranges::count(std::array{files, !options.input_shape.empty(), line,
                                    !options.suite.empty(), !options.network.empty()},
                         true);
  if (sources != 1) {
    misuse(sources == 0 ? "the problem is missing" : "the problem is given twice",
           ", expected one of --input-shape, --input and --out-backprop, --problem, --suite, and "
           "--network");
  }
  if (named_backend(backend_options(options)) == Backend::reference) {
    misuse("--backend: reference is given, but bench measures the algorithms of cpu and cuda");
  }
  for (const auto& [flag, given] : {std::pair("--only", !options.only.empty()),
                                    std::pair("--batch", options.batch.has_value())}) {
    if (given && options.suite.empty() && options.network.empty()) {
      misuse(flag, ": given without --suite or --network");
    }
  }
  if (files) {
    refuse_flag(options, "--dtype", "--input, whose dtype is measured");
    refuse_flag(options, "--out-channels", "--out-backprop, which sets K");
    refuse_flag(options, "--multiplier", "--out-backprop, which sets K");
  }
}

}  // namespace

std::vector<BenchCase> plan_cases(const BenchOptions& options, std::optional<Job>& job) {
  check_sources(options);
  const ProblemOptions& o = options.problem;
  std::vector<BenchCase> cases;
  if (!o.input.empty() || !o.out_backprop.empty()) {
    job = open_job(options);
    BenchCase base;
    base.problem = job->problem;
    for (const NpyReader* reader : {job->x.get(), job->dy.get()}) {  // held besides the tensors
      if (reader->needs_whole_payload()) {
        base.plan_options.source_bytes += reader->header().payload_bytes;
      }
    }
    add_cases(options, base, cases);
    return cases;
  }
  for (const BenchProblem& problem : problems_of(options)) {
    try {
      for (const DType dtype : dtypes_of(options.dtype, problem.problem.dtype)) {
        BenchCase base;
        static_cast<BenchProblem&>(base) = problem;
        base.problem = with_dtype(problem.problem, dtype);
        if (!o.out_dtype.empty()) base.problem.out_dtype = parse_dtype("--out-dtype", o.out_dtype);
        add_cases(options, base, cases);
      }
    } catch (const Error& error) {
      if (problem.origin.empty()) throw;
      const bool spelled = error.kind() == ErrorKind::usage;  // by the file, not by the user
      throw Error(spelled ? ErrorKind::input : error.kind(), problem.origin, error);
    }
  }
  return cases;
}

ReportPointer list_suites() {
  std::string text;
  Json suites = Json::array();
  for (const std::string& name : suite_names()) {
    const std::string path = suite_path(name);
    const std::string what = about(read_text(path, "--list-suites: ", "a suite"));
    const std::size_t problems = read_suite(name).size();
    text += cat(padded(name, 16), padded(cat(problems), -3), " problems  ", what, "\n");
    suites.push_back({{"name", name}, {"problems", problems}, {"about", what}, {"file", path}});
  }
  if (suites.empty()) {
    throw Error(ErrorKind::unavailable, "--list-suites: none is installed with this convgrad",
                Hint("name a file with --suite"));
  }
  return std::make_unique<PlainReport>(std::move(text), Json{{"suites", suites}});
}

}  // namespace convgrad::cli
