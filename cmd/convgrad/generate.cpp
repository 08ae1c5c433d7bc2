// generate.cpp - x, dy and their golden gradient, from a seed; or a dy with other signs.
#include "generate/generate.hpp"

#include <unistd.h>

#include <filesystem>

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
    bad_input("--output: ", path_, " has ", format_bytes(space.available),
              " free, but the files take ", format_bytes(bytes),
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
    const WgradProblem problem = problem_of_line(options).problem;
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
std::string write_tensor(const TensorMaker& maker, DType dtype, ArrayFile& file, TaskPool& pool) {
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

// Returns "made/input.npy: float32 (2, 8, 8, 3), sha256:...", or its bytes before it is made.
std::string tensor_line(const TensorReport& tensor) {
  return cat(tensor.file, ": ", tensor.json()["dtype"].get<std::string>(), " ",
             shape_text(tensor.header.shape), ", ",
             tensor.hash ? *tensor.hash : format_bytes(tensor.header.payload_bytes), "\n");
}

// Returns the commands that use the files: input, out_backprop and gradient.
std::vector<std::string> commands_for(const WgradProblem& problem, const Tensors& tensors,
                                      bool is_exact) {
  const auto file = [&](std::size_t i) { return shell_quoted(tensors[i].second.file); };
  const std::string job =
      cat("-i ", file(0), " -g ", file(1), " --problem ", shell_quoted(describe(problem)));
  const std::string golden = file(2), bits = is_exact ? " --bitwise" : "";
  std::vector<std::string> lines = {cat("convgrad ", job, " -o dw.npy"),
                                    cat("convgrad verify ", job, " --golden ", golden, bits)};
  if (is_exact) lines.push_back(cat("convgrad compare dw.npy ", golden, bits));
  return lines;
}

// Returns what is said of the files; `timing` is null before they are made.
ReportPointer report_of(const Plan& plan, const MadeData& data, const Tensors& tensors,
                        const JobTiming* timing) {
  const WgradProblem& problem = plan.problem;
  const bool is_exact = data.distribution == Distribution::integers;
  const std::int64_t most = largest_integer(problem);
  const std::vector<std::string> commands = commands_for(problem, tensors, is_exact);
  std::string text =
      cat(describe(problem), "\n", distribution_name(data.distribution),
          is_exact ? cat(" from -", most, " to ", most) : std::string(),
          data.nonfinite ? ", with NaN and infinities" : "", ", seed ", data.seed, "\n");
  for (const auto& [name, tensor] : tensors) text += tensor_line(tensor);
  for (const std::string& line : commands) text += cat("  ", line, "\n");
  Json json = problem_fields(problem);
  json["execution"] = plan_json(plan);
  json["tensors"] = tensors_json(tensors);
  if (timing != nullptr) json.update(timing->fields());
  json["generate"] = {{"dist", distribution_name(data.distribution)},
                      {"seed", data.seed},
                      {"nonfinite", data.nonfinite},
                      {"commands", commands}};
  return std::make_unique<PlainReport>(std::move(text), std::move(json));
}

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
    const WgradProblem problem = problem_of_line(options).problem;
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
  const TensorReport tensor = {options.problem.output, dy.header(), hash.text()};
  return std::make_unique<PlainReport>(tensor.file == "-" ? "" : tensor_line(tensor),
                                       Json{{"tensors", tensors_json({{"out_backprop", tensor}})},
                                            {"generate", {{"signs", *options.signs}}}});
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
  Tensors tensors = {{"input", made_tensor(x_path, problem.dtype, x_shape(problem))},
                     {"out_backprop", made_tensor(dy_path, problem.dtype, dy_shape(problem))},
                     {"gradient", made_tensor(dw_path, problem.out_dtype, dw_shape(problem))}};
  if (options.execution.dry_run) return report_of(plan, data, tensors, nullptr);
  const Folder folder(options.problem.output);
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    bytes = checked_add(bytes, tensor.header.payload_bytes, "the files");
  }
  folder.check_room(bytes);
  check_paths(options, tensors);
  const OutputOptions output = {!options.clobber};
  const TensorMaker x(problem, Operand::x, data), dy(problem, Operand::dy, data);
  TaskPool pool(plan.threads);
  JobTiming job = {{}, 0, problem};
  const auto start = Clock::now();
  ArrayFile x_file(x_path, problem.dtype, x.shape(), output);
  ArrayFile dy_file(dy_path, problem.dtype, dy.shape(), output);
  tensors[0].second.hash = write_tensor(x, problem.dtype, x_file, pool);
  tensors[1].second.hash = write_tensor(dy, problem.dtype, dy_file, pool);
  job.write_s = seconds_since(start);
  ReferenceSum reference(problem, pool);
  MadeSource source(x, dy);
  Progress progress("gradient");
  job.timing = run_blocks(plan, source, &reference, nullptr,
                          [&](double fraction) { progress.show(fraction); });
  reference.finish();
  const auto write_start = Clock::now();
  // The gradient is first, because writing it can still fail for want of space.
  write_gradient(dw_path, problem, reference.expected().values.data(), output);
  x_file.commit();
  dy_file.commit();
  job.write_s += seconds_since(write_start);
  job.timing.total_s = seconds_since(start) - job.write_s;
  tensors[2].second.hash = hash_of_values(NpyReader(dw_path));
  return report_of(plan, data, tensors, &job);
}

}  // namespace convgrad::cli
