// generate.cpp - x, dy and their golden gradient, from a seed.
#include "generate/generate.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/clock.hpp"
#include "check/reference_sum.hpp"
#include "commands.hpp"
#include "convgrad/gradient_file.hpp"
#include "files/array.hpp"
#include "job/attributes.hpp"
#include "job/job_files.hpp"
#include "job/job_plan.hpp"
#include "options/arguments.hpp"
#include "options/made_problem.hpp"
#include "options/refuse.hpp"
#include "report/progress.hpp"
#include "report/tensor_hash.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPartElements = std::int64_t{1} << 20;
constexpr std::int64_t kTaskElements = std::int64_t{1} << 14;

// The three files, in a folder that is made if it must be and goes again if nothing gets into it.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directory(path, error);
    if (error && !fs::is_directory(path)) {
      bad_input("--output: cannot make the folder ", path, ": ", error.message(),
                "; name one in a folder that exists");
    }
  }
  ~Folder() {
    std::error_code ignored;
    if (made_) fs::remove(path_, ignored);  // only while it is empty
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const char* name) const { return (fs::path(path_) / name).string(); }

 private:
  std::string path_;
  bool made_ = false;
};

struct Paths {
  std::string x, dy, dw;
};

MadeRequest request_of(const GenerateOptions& options) {
  MadeRequest request;
  if (!options.line.empty()) {
    refuse_flag(options, "--shape", "--problem, which sets it");
    request = request_of_line(options, options);
  } else {
    check_op(options.problem);
    request.attributes = attributes_of(options.problem);
    request.input_shape = parse_numbers("--shape", options.input_shape);
    if (request.input_shape.empty()) {
      misuse("--shape is missing, expected the input's, e.g. 2,8,8,3");
    }
    request.K = made_channels(options, options, request.attributes, request.input_shape);
  }
  if (!options.dtype.empty()) request.dtype = parse_dtype("--dtype", options.dtype);
  return request;
}

void check_paths(const GenerateOptions& options, const Paths& paths) {
  for (const std::string* path : {&paths.x, &paths.dy, &paths.dw}) {
    check_is_not_read("--output", *path, options);
    if (same_file(options.json, *path, STDOUT_FILENO)) {
      misuse("--json=", options.json, " is a file that generate writes; name another file");
    }
    try {
      check_output(*path, {!options.clobber});
    } catch (const Error& error) {
      if (options.clobber || !fs::is_regular_file(*path)) throw;
      throw Error(error.kind(), cat(*path,
                                    ": exists already; name another folder, or replace "
                                    "it with --clobber"));
    }
  }
}

// Writes a tensor to a file that does not appear before commit(); returns its hash.
std::string write_tensor(const TensorMaker& maker, DType dtype, OutputFile& file, TaskPool& pool) {
  const std::string header = npy_header_text(dtype, maker.shape());
  file.write(header.data(), header.size());
  const std::int64_t item = dtype_bytes(dtype);
  const Buffer buffer(kPartElements * item, "a part of a tensor");
  TensorHash hash;
  for_each_part(maker.shape(), kPartElements, [&](const ArrayPart& part) {
    pool.run((part.count + kTaskElements - 1) / kTaskElements, [&](std::int64_t task, int) {
      const std::int64_t at = task * kTaskElements;
      maker.fill(part.first + at, std::min(kTaskElements, part.count - at),
                 buffer.data() + at * item);
    });
    const auto bytes = static_cast<std::size_t>(part.count * item);
    hash.add(buffer.data(), bytes);
    file.write(buffer.data(), bytes);
  });
  return hash.text();
}

void sum_gradient(const Plan& plan, MadeSource& source, ReferenceSum& reference, Timing& timing) {
  Progress progress("gradient");
  const double blocks = static_cast<double>(plan.schedule.blocks.count);
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        const auto start = Clock::now();
        reference.add(block, index, [&](std::int64_t done, std::int64_t total) {
          const double part = static_cast<double>(done) / static_cast<double>(total);
          progress.show((static_cast<double>(index) + part) / blocks);
        });
        timing.reference_s += seconds_since(start);
      },
      timing);
  reference.finish();
}

Json made_json(const std::string& path, const std::string& hash) {
  Json json = tensor_json(path, NpyReader(path).header());
  json["hash"] = hash;
  return json;
}

std::vector<std::string> commands(const WgradProblem& problem, const WgradAttributes& attributes,
                                  const Paths& paths, bool exact) {
  const bool explicit_pads = !attributes.explicit_paddings.empty();
  std::string job = cat("-i ", shell_quoted(paths.x), " -g ", shell_quoted(paths.dy), " ",
                        problem_flags(problem, explicit_pads ? "" : attributes.padding));
  if (problem.out_dtype != problem.dtype)
    job += cat(" --out-dtype ", dtype_name(problem.out_dtype));
  const std::string golden = shell_quoted(paths.dw);
  const std::string bits = exact ? " --bitwise" : "";
  std::vector<std::string> lines = {cat("convgrad ", job, " -o dw.npy"),
                                    cat("convgrad verify ", job, " --golden ", golden, bits)};
  if (exact) lines.push_back(cat("convgrad compare dw.npy ", golden, bits));
  return lines;
}

std::string text_of(const WgradProblem& problem, const Json& tensors,
                    const std::vector<std::string>& lines, const MadeData& data) {
  TextWriter text;
  text << describe(problem) << "\n" << distribution_name(data.distribution);
  if (data.distribution == Distribution::integers) {
    text << " from -" << largest_integer(problem) << " to " << largest_integer(problem);
  }
  text << (data.nonfinite ? ", with NaN and infinities" : "") << ", seed " << data.seed << "\n";
  for (const Json& tensor : tensors) {
    text << tensor["file"].get<std::string>() << ": " << tensor["dtype"].get<std::string>() << " "
         << shape_text(tensor["shape"].get<std::vector<std::int64_t>>()) << ", "
         << tensor["hash"].get<std::string>() << "\n";
  }
  for (const std::string& line : lines) text << "  " << line << "\n";
  return text.str();
}

}  // namespace

int generate(const GenerateOptions& options, Json& report) {
  const MadeData data = {parse_distribution(options.dist), static_cast<std::uint64_t>(options.seed),
                         options.nonfinite};
  const MadeRequest request = request_of(options);
  const WgradProblem problem = made_problem("--shape", request.attributes, request.input_shape,
                                            request.dtype.value_or(DType::f32), request.K);
  if (options.problem.output.empty()) misuse("--output is missing, expected a folder");
  if (options.problem.output == "-") misuse("--output: found -, expected a folder for three files");
  set_problem(report, problem);
  PlanOptions planned = plan_options(options);
  planned.backend = Backend::reference;
  const Plan plan = make_plan(problem, this_machine(), planned);
  report["execution"] = plan_json(plan);

  const Folder folder(options.problem.output);
  const Paths paths = {folder.file("input.npy"), folder.file("out_backprop.npy"),
                       folder.file("gradient.npy")};
  check_paths(options, paths);
  const OutputOptions output = {!options.clobber};
  const TensorMaker x(problem, Operand::x, data), dy(problem, Operand::dy, data);
  TaskPool pool(plan.threads);
  Timing timing;
  const auto start = Clock::now();
  OutputFile x_file(paths.x, output), dy_file(paths.dy, output);
  const std::string x_hash = write_tensor(x, problem.dtype, x_file, pool);
  const std::string dy_hash = write_tensor(dy, problem.dtype, dy_file, pool);
  double write_s = seconds_since(start);
  ReferenceSum reference(problem, pool);
  MadeSource source(x, dy);
  sum_gradient(plan, source, reference, timing);
  const auto write_start = Clock::now();
  // First what can still fail for want of space.
  write_gradient(paths.dw, problem, reference.expected().values.data(), nullptr, output);
  x_file.commit();
  dy_file.commit();
  write_s += seconds_since(write_start);
  timing.total_s = seconds_since(start) - write_s;

  report["tensors"] = {{"input", made_json(paths.x, x_hash)},
                       {"out_backprop", made_json(paths.dy, dy_hash)},
                       {"gradient", made_json(paths.dw, hash_of_values(paths.dw))}};
  report["timing_ms"] = timing_json(timing, write_s);
  report["perf"] = perf_json(problem, timing);
  const bool exact = data.distribution == Distribution::integers;
  const std::vector<std::string> lines = commands(problem, request.attributes, paths, exact);
  report["generate"] = {{"dist", distribution_name(data.distribution)},
                        {"seed", data.seed},
                        {"nonfinite", data.nonfinite},
                        {"commands", lines}};
  if (options.json != "-") {
    std::fputs(text_of(problem, report["tensors"], lines, data).c_str(), stdout);
  }
  return 0;
}

}  // namespace convgrad::cli
