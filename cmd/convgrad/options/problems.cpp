#include "options/problems.hpp"

#include <algorithm>
#include <filesystem>

#include "convgrad/npy.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

// Returns K, or 0 where the filter's shape says it.
std::int64_t made_channels(const Options& options, const ShapeOptions& shape,
                           const WgradAttributes& attributes, const TensorInfo& x) {
  if (attributes.kernel.empty()) {
    const std::string why = "the filter's shape, which sets K";
    refuse_flag(options, "--out-channels", why);
    refuse_flag(options, "--multiplier", why);
    return 0;
  }
  const Op op = parse_op(attributes.op);
  if (op != Op::depthwise) {
    refuse_flag(options, "--multiplier", cat("--op ", attributes.op, ", expected --out-channels"));
    if (shape.out_channels == 0) {
      misuse("--out-channels is missing, expected K with --kernel (or use --filter-sizes)");
    }
  }
  if (shape.out_channels > 0 && shape.multiplier > 0) {
    misuse("--out-channels and --multiplier are both given, expected one of them");
  }
  if (shape.out_channels > 0) return shape.out_channels;
  const std::int64_t M = std::max<std::int64_t>(shape.multiplier, 1);
  const bool last = parse_data_format(op, attributes.data_format);
  // A shape of the wrong rank is refused where it is checked.
  const std::int64_t C = x.shape.size() < 2 ? 1 : last ? x.shape.back() : x.shape[1];
  return std::max<std::int64_t>(checked_mul(C, M, "C x multiplier"), 1);
}

void read_filter_sizes(const Words& words, WgradAttributes& attributes) {
  if (!is_file_name(words)) {
    attributes.filter_sizes = parse_numbers("--filter-sizes", words);
    return;
  }
  if (looks_like_a_flag(words[0])) {
    misuse("--filter-sizes: its value is missing, found '", words[0], "'");
  }
  attributes.filter_sizes = read_npy_integers(words[0]);
  attributes.filter_sizes_name = cat("--filter-sizes (", words[0], ")");
  if (attributes.filter_sizes.empty()) {
    bad_input(attributes.filter_sizes_name, ": empty, expected 4 or 5 ", "integers");
  }
}

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tsv";

// Looks from the program itself, so that an installation can be moved; beside it in a build tree.
fs::path folder() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path beside = program / "suites";
  return fs::is_directory(beside, ignored) ? beside : program / CONVGRAD_SUITES_FROM_PROGRAM;
}

}  // namespace

void refuse_flag(const Options& options, const std::string& flag, const std::string& why) {
  if (std::ranges::count(options.given, flag, &GivenFlag::name) == 0) return;
  misuse(flag, ": given with ", why);
}

void refuse_flags(const Options& options, About about, const std::string& why) {
  for (const GivenFlag& flag : options.given) {
    if (flag.about == about) refuse_flag(options, flag.name, why);
  }
}

NamedProblem read_problem(const std::string& line) {
  const Words words = words_of_line(line);
  if (is_foreign(words)) return read_foreign(words);
  return {"", make_problem(parse_problem(line))};
}

NamedProblem problem_of_line(const Options& options) {
  refuse_flags(options, About::operation, "--problem, which sets it");
  const ProblemOptions& o = options.problem;
  NamedProblem result;
  try {
    result = read_problem(o.line);
  } catch (const Error& error) {
    throw Error(error.kind(), "--problem: ", error);
  }
  WgradProblem& pb = result.problem;
  if (!o.data_format.empty()) pb.channels_last = parse_data_format(pb.op, o.data_format);
  if (!o.filter_format.empty()) pb.filter_format = parse_filter_format(pb.op, o.filter_format);
  if (!o.out_dtype.empty()) pb.out_dtype = parse_dtype("--out-dtype", o.out_dtype);
  return result;
}

WgradProblem with_dtype(WgradProblem problem, DType dtype) {
  if (problem.x_dtype != problem.dtype || problem.dy_dtype != problem.dtype) {
    misuse("tensors of ", input_dtypes(problem), " are not made, expected one dtype of 16 bits or ",
           "more for both");
  }
  if (problem.out_dtype == problem.dtype) problem.out_dtype = dtype;
  problem.dtype = problem.x_dtype = problem.dy_dtype = dtype;
  return problem;
}

WgradProblem made_problem(const std::string& name, const Options& options,
                          const ShapeOptions& shape, DType dtype) {
  check_op(options.problem);
  const WgradAttributes attributes = attributes_of(options.problem);
  const TensorInfo x = {name, dtype, parse_numbers(name, shape.input_shape)};
  if (x.shape.empty()) misuse(name, " is missing, expected the input's, e.g. 2,8,8,3");
  const std::int64_t K = made_channels(options, shape, attributes, x);
  const auto channels = K > 0 ? std::optional(K) : std::nullopt;
  return make_problem(x, {"out_backprop", dtype, out_backprop_shape(x, attributes, channels)},
                      attributes);
}

WgradAttributes attributes_of(const ProblemOptions& o) {
  WgradAttributes a;
  a.op = o.op;
  read_filter_sizes(o.filter_sizes, a);
  a.kernel = parse_numbers("--kernel", o.kernel);
  if (!o.filter_like.empty()) {
    NpyReader filter(o.filter_like);
    a.filter_like = filter.header().shape;
    filter.finish();  // its checksum, if it has one, speaks for the header too
    a.filter_like_name = cat(o.filter_like_flag, " (", o.filter_like, ")");
    if (a.filter_like.empty()) bad_input(a.filter_like_name, ": no axes, expected 4 or 5");
  }
  a.strides = parse_numbers("--strides", o.strides);
  a.dilations = parse_numbers("--dilations", o.dilations);
  a.explicit_paddings = parse_numbers("--explicit-paddings", o.explicit_paddings);
  read_padding("--padding", o.padding, a);
  a.data_format = o.data_format;
  a.filter_format = o.filter_format;
  const std::vector<std::int64_t> groups = parse_numbers("--groups", o.groups);
  if (groups.size() > 1) misuse("--groups: expected one whole number");
  if (!groups.empty()) a.groups = groups[0];
  a.out_dtype = o.out_dtype;
  return a;
}

void check_op(const ProblemOptions& o) {
  if (o.op.empty()) {
    misuse("--op is missing, expected conv2d, depthwise, conv3d or conv1d", Hint("see --help"));
  }
  parse_op(o.op);
}

void check_required(const ProblemOptions& o) {
  if (o.line.empty()) check_op(o);
  if (o.input.empty()) misuse("--input is missing, expected a .npy file or -");
  if (o.out_backprop.empty()) misuse("--out-backprop is missing, expected a .npy file or -");
}

Tolerance tolerance_of(const CriterionOptions& o) {
  const int given = int{o.rtol || o.atol} + int{o.max_ulp.has_value()} + int{o.bitwise};
  if (given > 1) {
    misuse("--rtol/--atol, --max-ulp and --bitwise exclude each other", Hint("give one of them"));
  }
  if (o.max_ulp) return {.criterion = Criterion::max_ulp, .max_ulp = *o.max_ulp};
  if (o.bitwise) return {.criterion = Criterion::bitwise};
  if (!o.rtol && !o.atol) return {};
  return {
      .criterion = Criterion::tolerance, .rtol = o.rtol.value_or(0), .atol = o.atol.value_or(0)};
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder(), missing)) {
    if (entry.path().extension() == kEnding) names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string suite_path(const std::string& suite) {
  const bool is_name = std::ranges::count(suite_names(), suite) > 0;
  return is_name ? (folder() / (suite + kEnding)).string() : suite;
}

}  // namespace convgrad::cli
