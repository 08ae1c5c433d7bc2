// generate.cpp - x, dy and their golden gradient, from a seed; or a dy with other signs.
#include "generate/generate.hpp"

#include <unistd.h>

#include <filesystem>

#include "base/clock.hpp"
#include "base/integers.hpp"
#include "check/reference_sum.hpp"
#include "commands.hpp"
#include "convgrad/gradient_file.hpp"
#include "files/array.hpp"
#include "files/tensor_source.hpp"
#include "generate/signs.hpp"
#include "job/job.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"
#include "report/report.hpp"
#include "report/values.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPartElements = std::int64_t{1} << 20;
constexpr std::int64_t kTaskElements = std::int64_t{1} << 14;

// Makes the folder of the three files if it must, and those above it; removes them again if nothing
// gets into them.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    for (fs::path each = fs::absolute(path); !fs::exists(each, error) && !error;
         each = each.parent_path()) {
      made_.push_back(each);
    }
    fs::create_directories(path, error);
    if (error && !fs::is_directory(path)) {
      const std::string what = error.message();
      remove_empty();
      bad_input("--output: cannot make the folder ", path, ": ", what,
                Hint("name one that can be written"));
    }
  }
  ~Folder() { remove_empty(); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Throws Error(input) if the disk has no room for so many bytes.
  void check_room(std::int64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(path_, error);
    if (error || space.available / 2 > static_cast<std::uintmax_t>(bytes) / 2) return;
    bad_input("--output: ", path_, " has ", format_bytes(static_cast<double>(space.available)),
              " free, but the files take ", format_bytes(static_cast<double>(bytes)),
              Hint("make a smaller problem; --dry-run says the bytes"));
  }

 private:
  void remove_empty() {
    std::error_code ignored;
    for (const fs::path& folder : made_) fs::remove(folder, ignored);  // only while it is empty
  }

  std::string path_;
  std::vector<fs::path> made_;  // the innermost first
};

WgradProblem problem_of(const GenerateOptions& options) {
  const auto dtype_or = [&](DType other) {
    return options.dtype.empty() ? other : parse_dtype("--dtype", options.dtype);
  };
  if (!options.problem.line.empty()) {
    refuse_flag(options, "--shape", "--problem, which sets it");
    const WgradProblem problem = problem_of_line(options);
    return with_dtype(problem, dtype_or(problem.dtype));
  }
  return made_problem("--shape", options, options, dtype_or(DType::f32));
}

void check_is_free(const std::string& path, const char* what, const GenerateOptions& options) {
  try {
    check_array_output(path, {!options.clobber});
  } catch (const Error& error) {
    if (options.clobber || !is_regular(array_target(path).file)) throw;
    throw Error(error.kind(), path, ": exists already",
                Hint("name another ", what, ", or replace it with --clobber"));
  }
}

void check_paths(const GenerateOptions& options, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    check_is_not_read("--output", tensor.file, options);
    if (same_file(options.json, tensor.file, STDOUT_FILENO)) {
      misuse("--json=", options.json, " is a file that generate writes", Hint("name another file"));
    }
    check_is_free(tensor.file, "folder", options);
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
    pool.run(ceil_div(part.count, kTaskElements), [&](std::int64_t task, int) {
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

class GenerateReport final : public Report {
 public:
  GenerateReport(const Plan& planned, const MadeData& made) : plan(planned), data(made) {}

  std::string text() const override {
    const WgradProblem& problem = plan.problem;
    TextWriter text;
    text << describe(problem) << "\n" << distribution_name(data.distribution);
    if (is_exact()) {
      text << " from -" << largest_integer(problem) << " to " << largest_integer(problem);
    }
    text << (data.nonfinite ? ", with NaN and infinities" : "") << ", seed " << data.seed << "\n";
    for (const auto& [name, tensor] : tensors) {
      text << tensor.file << ": " << tensor.json()["dtype"].get<std::string>() << " "
           << shape_text(tensor.header.shape) << ", "
           << (tensor.hash ? *tensor.hash
                           : format_bytes(static_cast<double>(tensor.header.payload_bytes)))
           << "\n";
    }
    for (const std::string& line : commands()) text << "  " << line << "\n";
    return text.str();
  }

  Json json() const override {
    Json json = problem_fields(plan.problem);
    json["execution"] = plan_json(plan);
    json["tensors"] = tensors_json(tensors);
    if (tensors[0].second.hash) {  // it is made
      json["timing_ms"] = timing.timing_json();
      json["perf"] = timing.perf_json();
    }
    json["generate"] = {{"dist", distribution_name(data.distribution)},
                        {"seed", data.seed},
                        {"nonfinite", data.nonfinite},
                        {"commands", commands()}};
    return json;
  }

  Plan plan;
  MadeData data;
  Tensors tensors;  // input, out_backprop, gradient
  JobTiming timing;

 private:
  bool is_exact() const { return data.distribution == Distribution::integers; }

  std::vector<std::string> commands() const {
    const auto file = [&](std::size_t i) { return shell_quoted(tensors[i].second.file); };
    const std::string job =
        cat("-i ", file(0), " -g ", file(1), " --problem ", shell_quoted(describe(plan.problem)));
    const std::string golden = file(2), bits = is_exact() ? " --bitwise" : "";
    std::vector<std::string> lines = {cat("convgrad ", job, " -o dw.npy"),
                                      cat("convgrad verify ", job, " --golden ", golden, bits)};
    if (is_exact()) lines.push_back(cat("convgrad compare dw.npy ", golden, bits));
    return lines;
  }
};

// Describes a file that is about to be made.
TensorReport planned_tensor(const std::string& path, DType dtype,
                            const std::vector<std::int64_t>& shape) {
  const std::string text = npy_header_text(dtype, shape);
  NpyHeader header = parse_npy_header(std::as_bytes(std::span(text)), path);
  return {path, std::move(header)};
}

class SignsReport final : public Report {
 public:
  std::string text() const override {
    if (tensor.file == "-") return "";
    return cat(tensor.file, ": ", tensor.json()["dtype"].get<std::string>(), " ",
               shape_text(tensor.header.shape), ", ", *tensor.hash, "\n");
  }
  Json json() const override {
    return {{"tensors", tensors_json({{"out_backprop", tensor}})}, {"generate", {{"signs", seed}}}};
  }

  TensorReport tensor;
  std::int64_t seed = 0;
};

// Throws Error(usage) unless --from and --signs are both there, and nothing that makes tensors is.
void check_signs(const GenerateOptions& options) {
  if (options.from.empty()) misuse("--from is missing, expected the file of dy with --signs");
  if (!options.signs) misuse("--signs is missing, expected a seed with --from");
  for (const GivenFlag& flag : options.given) {
    if (flag.about == About::operation && flag.name != "--op") {
      refuse_flag(options, flag.name, "--from, which makes no tensors");
    }
  }
  for (const char* flag : {"--shape", "--dist", "--seed", "--nonfinite"}) {
    refuse_flag(options, flag, "--from, which makes no tensors");
  }
  if (options.problem.output.empty()) misuse("--output is missing, expected a file for dy");
  check_outputs(options);
  if (options.problem.output != "-") check_is_free(options.problem.output, "file", options);
}

// Tells whether dy's channels are last: by its problem, or by the data format of as many axes.
bool are_channels_last(const GenerateOptions& options, const NpyReader& dy) {
  const std::vector<std::int64_t>& shape = dy.header().shape;
  if (!options.problem.line.empty()) {
    const WgradProblem problem = problem_of_line(options);
    if (shape == dy_shape(problem)) return problem.channels_last;
    bad_input("--from (", dy.name(), "): shape ", shape_text(shape), ", expected ",
              shape_text(dy_shape(problem)), ", as --problem says");
  }
  const std::string& name = options.problem.op;
  const Op op = !name.empty()       ? parse_op(name)
                : shape.size() == 5 ? Op::conv3d
                : shape.size() == 3 ? Op::conv1d
                                    : Op::conv2d;
  const auto axes = static_cast<std::size_t>(spatial_rank(op)) + 2;
  if (shape.size() != axes) {
    bad_input("--from (", dy.name(), "): ", shape.size(), " axes, expected ",
              name.empty() ? "3 to 5" : cat(axes));
  }
  return parse_data_format(op, options.problem.data_format);
}

ReportPointer put_signs(const GenerateOptions& options) {
  check_signs(options);
  NpyReader dy(options.from);
  if (!options.dtype.empty()) dy.take_for(parse_stored_dtype("--dtype", options.dtype), "--dtype");
  const DType dtype = float_dtype(dy.header(), dy.name(), "--dtype");
  const std::vector<std::int64_t>& shape = dy.header().shape;
  const PixelSigns signs(shape, are_channels_last(options, dy),
                         static_cast<std::uint64_t>(*options.signs));
  ArrayFile file(options.problem.output, dtype, shape, {!options.clobber});
  TensorHash hash;
  read_parts(dy, [&](std::byte* bytes, const ArrayPart& part) {
    const auto count = static_cast<std::size_t>(part.count * dtype_bytes(dtype));
    signs.apply(dtype, part.begin, part.end, bytes);
    hash.add(bytes, count);
    file.write(bytes, count);
  });
  file.commit();
  auto report = std::make_unique<SignsReport>();
  report->tensor = {options.problem.output, dy.header(), hash.text()};
  report->seed = *options.signs;
  return report;
}

}  // namespace

ReportPointer generate(const GenerateOptions& options) {
  if (options.signs || !options.from.empty()) return put_signs(options);
  const MadeData data = {parse_distribution(options.dist), static_cast<std::uint64_t>(options.seed),
                         options.nonfinite};
  const WgradProblem problem = problem_of(options);
  if (options.problem.output.empty()) misuse("--output is missing, expected a folder");
  if (options.problem.output == "-") misuse("--output: found -, expected a folder for three files");
  PlanOptions planned = plan_options(options);
  planned.backend = Backend::reference;
  const Plan plan = make_plan(problem, this_machine(), planned);

  const auto file = [&](const char* name) {
    return (fs::path(options.problem.output) / name).string();
  };
  const std::string x_path = file("input.npy"), dy_path = file("out_backprop.npy"),
                    dw_path = file("gradient.npy");
  auto report = std::make_unique<GenerateReport>(plan, data);
  report->tensors = {{"input", planned_tensor(x_path, problem.dtype, x_shape(problem))},
                     {"out_backprop", planned_tensor(dy_path, problem.dtype, dy_shape(problem))},
                     {"gradient", planned_tensor(dw_path, problem.out_dtype, dw_shape(problem))}};
  if (options.execution.dry_run) return report;
  const Folder folder(options.problem.output);
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : report->tensors) {
    bytes = checked_add(bytes, tensor.header.payload_bytes, "the files");
  }
  folder.check_room(bytes);
  check_paths(options, report->tensors);
  const OutputOptions output = {!options.clobber};
  const TensorMaker x(problem, Operand::x, data), dy(problem, Operand::dy, data);
  TaskPool pool(plan.threads);
  JobTiming job = {{}, 0, problem};
  const auto start = Clock::now();
  OutputFile x_file(x_path, output), dy_file(dy_path, output);
  const std::string x_hash = write_tensor(x, problem.dtype, x_file, pool);
  const std::string dy_hash = write_tensor(dy, problem.dtype, dy_file, pool);
  job.write_s = seconds_since(start);
  ReferenceSum reference(problem, pool);
  MadeSource source(x, dy);
  sum_gradient(plan, source, reference, job.timing);
  const auto write_start = Clock::now();
  // The gradient is first, because writing it can still fail for want of space.
  write_gradient(dw_path, problem, reference.expected().values.data(), nullptr, output);
  x_file.commit();
  dy_file.commit();
  job.write_s += seconds_since(write_start);
  job.timing.total_s = seconds_since(start) - job.write_s;

  report->tensors[0].second.hash = x_hash;
  report->tensors[1].second.hash = dy_hash;
  report->tensors[2].second.hash = hash_of_values(NpyReader(dw_path));
  report->timing = job;
  return report;
}

}  // namespace convgrad::cli
