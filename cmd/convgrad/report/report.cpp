#include "report/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "files/tensor_source.hpp"
#include "options/arguments.hpp"
#include "report/values.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

Json dtype_json(const NpyHeader& header) {
  try {
    return dtype_name(float_dtype(header, ""));
  } catch (const Error&) {
    return {};
  }
}

bool is_readable_again(const std::string& path) {
  return path != "-" && is_regular(split_tensor_name(path).file);
}

constexpr const char* kRed = "\033[1;31m";
constexpr const char* kGreen = "\033[1;32m";
constexpr const char* kYellow = "\033[1;33m";
constexpr const char* kPlain = "\033[0m";

// Returns true if this stream (STDOUT_FILENO, STDERR_FILENO) may be coloured. always and never say
// it themselves. auto, the default, allows it on a terminal if TERM is not dumb and NO_COLOR
// (https://no-color.org) is not set, or empty.
bool is_colored(const Options& options, int stream) {
  if (options.color == "always") return true;
  const char* const no_color = std::getenv("NO_COLOR");
  if (options.color == "never" || (no_color != nullptr && *no_color != '\0')) return false;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::strcmp(terminal, "dumb") == 0;
  return !dumb && isatty(stream) == 1;
}

bool is_off = false;

// Returns "59 s", "12 min", "3 h 20 min": as exact as a guess deserves.
std::string time_text(double seconds) {
  const long long whole = std::llround(std::min(seconds, 1e9));
  if (whole < 120) return std::to_string(whole) + " s";
  if (whole < 7200) return std::to_string((whole + 30) / 60) + " min";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

// OpenBLAS's configuration begins with its name and version.
Json blas_json() {
  const BlasInfo blas = blas_info();
  const char* core_variable = std::getenv("OPENBLAS_CORETYPE");
  TextReader words(blas.config);
  std::string name, version;
  words >> name >> version;
  return {{"name", name},
          {"version", version},
          {"config", blas.config},
          {"core", blas.core},
          {"parallel", blas.parallel},
          {"OPENBLAS_CORETYPE", core_variable != nullptr ? Json(core_variable) : Json()}};
}

}  // namespace

double milliseconds(double seconds) { return std::round(seconds * 1e9) / 1e6; }

Json error_json(int status, const std::string& message, const std::string& hint) {
  return {{"code", status}, {"message", message}, {"hint", hint.empty() ? Json() : Json(hint)}};
}

Json problem_fields(const WgradProblem& problem) {
  return {
      {"op", op_name(problem.op)}, {"attrs", problem_json(problem)}, {"work", work_json(problem)}};
}

Json common_json(const std::string& command, const std::string& command_line,
                 const std::map<std::string, std::string>& tags) {
  Json json = {{"schema", "convgrad.report/1"},
               {"command", command},
               {"command_line", command_line},
               {"status", "ok"},
               {"exit_code", 0},
               {"tool",
                {{"name", "convgrad"},
                 {"version", kVersion},
                 {"git", kGitRevision},
                 {"compiler", kCompiler},
                 {"build_type", kBuildType},
                 {"blas", blas_is_loaded() ? blas_json() : Json()},
                 {"cuda_toolkit", *kCudaToolkit != '\0' ? Json(kCudaToolkit) : Json()}}}};
  if (!tags.empty()) json["tags"] = tags;
  return json;
}

Json problem_json(const WgradProblem& problem) {
  Json pads = Json::array();
  for (std::size_t a = static_cast<std::size_t>(3 - problem.spatial_rank()); a < 3; ++a) {
    pads.push_back({problem.axis[a].pad_before, problem.axis[a].pad_after});
  }
  return {{"op", op_name(problem.op)},
          {"tensorflow_op", tensorflow_op_name(problem.op)},
          {"dtype", dtype_name(problem.dtype)},
          {"input_dtype", dtype_name(problem.x_dtype)},
          {"out_backprop_dtype", dtype_name(problem.dy_dtype)},
          {"out_dtype", dtype_name(problem.out_dtype)},
          {"data_format", data_format_name(problem)},
          {"filter_format", filter_format_name(problem)},
          {"filter_shape", dw_shape(problem)},
          {"groups", problem.groups},
          {"strides", per_axis(problem, &SpatialAxis::stride)},
          {"dilations", per_axis(problem, &SpatialAxis::dilation)},
          {"pads", pads},
          {"line", describe(problem)}};
}

Json TensorReport::json() const {
  Json json = {{"file", file},
               {"shape", header.shape},
               {"dtype", dtype_json(header)},
               {"descr", header.descr},
               {"fortran_order", header.fortran_order},
               {"bytes", header.payload_bytes}};
  if (hash) json["hash"] = hash->empty() ? Json() : Json(*hash);
  return json;
}

Json tensors_json(const Tensors& tensors) {
  Json json = Json::object();
  for (const auto& [name, tensor] : tensors) json[name] = tensor.json();
  return json;
}

TensorReport tensor_report(const std::string& path, const NpyHeader& header, bool is_hashed,
                           const std::function<NpyReader()>& open) {
  TensorReport tensor = {path, header};
  if (!is_hashed) return tensor;
  tensor.hash = is_readable_again(path) ? hash_of_values(open ? open() : NpyReader(path)) : "";
  return tensor;
}

TensorReport made_tensor(const std::string& path, DType dtype,
                         const std::vector<std::int64_t>& shape) {
  const std::string text = npy_header_text(dtype, shape);
  return {path, parse_npy_header(std::as_bytes(std::span(text)), path)};
}

void add_tensor(const std::string& name, const std::string& path, Tensors& tensors) {
  if (!is_readable_again(path)) return;
  tensors.emplace_back(name, tensor_report(path, NpyReader(path).header(), true));
}

void add_gradient(const ArrayTarget& target, const WgradProblem& problem, Tensors& tensors) {
  const std::string name = target.readable_name();
  const NpyHeader header = made_tensor(name, problem.out_dtype, dw_shape(problem)).header;
  const bool is_raw = target.format == ArrayFormat::raw && is_readable_again(target.file);
  tensors.emplace_back("gradient", tensor_report(name, header, !is_raw));
  if (is_raw) tensors.back().second.hash = hash_of_file(target.file);  // its bytes are the values
}

Json plan_json(const Plan& plan) {
  Json json = {{"backend", backend_name(plan)},
               {"algorithm", algorithm_name(plan)},
               {"threads", plan.threads},
               {"slices", plan.schedule.slices.count()},
               {"tiles", plan.tiles()},
               {"chunks", plan.schedule.chunks.count},
               {"blocks", plan.schedule.blocks.count},
               {"memory_bytes", plan.memory.total()},
               {"memory_limit_bytes", plan.memory_limit_bytes}};
  if (plan.cuda()) {
    json["device"] = {{"number", plan.cuda()->device.number},
                      {"name", plan.cuda()->device.name},
                      {"memory_bytes", plan.cuda()->memory.total()},
                      {"memory_limit_bytes", plan.cuda()->memory.limit}};
  }
  return json;
}

Json part_json(const PartialHeader& header, std::size_t nodes) {
  return {{"images", {header.images.begin, header.images.end}},
          {"of_images", header.problem.N},
          {"slices", {header.slices.begin, header.slices.end}},
          {"of_slices", header.of_slices},
          {"nodes", nodes}};
}

Json work_json(const WgradProblem& problem) {
  const auto bytes = [](DType dtype, std::int64_t count) {
    return static_cast<double>(dtype_bytes(dtype)) * static_cast<double>(count);
  };
  const double tensors =
      bytes(problem.x_dtype, problem.x_count()) + bytes(problem.dy_dtype, problem.dy_count());
  return {{"flops", flop_count(problem)},
          {"bytes", tensors + bytes(problem.out_dtype, problem.dw_count())}};
}

Json JobTiming::fields() const {
  const double seconds = gradient_s();
  const auto rate = [&](const Json& amount) {
    return seconds > 0 ? Json(amount.get<double>() / seconds * 1e-9) : Json();
  };
  const Json work = work_json(computed);
  return {{"timing_ms",
           {{"read", milliseconds(timing.read_s)},
            {"convert", milliseconds(timing.convert_s)},
            {"kernel", milliseconds(timing.kernel_s)},
            {"reference", milliseconds(timing.reference_s)},
            {"write", milliseconds(write_s)},
            {"total", milliseconds(timing.total_s + write_s)}}},
          {"perf", {{"gflops", rate(work["flops"])}, {"gbytes_per_s", rate(work["bytes"])}}}};
}

Json machine_json(const Machine& machine) {
  return {{"processor", machine.processor},
          {"threads", machine.threads},
          {"memory_bytes", machine.memory_bytes},
          {"instruction_sets", machine.instruction_sets}};
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json peaks_json(const Peaks& peaks) {
  return {
      {"threads", peaks.threads},
      {"instruction_set", peaks.instruction_set},
      {"fma_gflops", {{"float32", or_null(peaks.fma_f32)}, {"float64", or_null(peaks.fma_f64)}}},
      {"avx512_bf16_gflops", or_null(peaks.avx512_bf16)},
      {"amx_bf16_gflops", or_null(peaks.amx_bf16)},
      {"read_gbytes_per_s", or_null(peaks.read_gbytes_per_s)},
      {"read_bytes", peaks.read_bytes}};
}

std::string peaks_line(const Peaks& peaks) {
  std::string text = cat("peaks on ", counted(peaks.threads, "thread"), ":");
  const auto add = [&](const char* what, const std::optional<double>& value, const char* unit) {
    if (value) text += cat(text.back() == ':' ? " " : ", ", what, " ", fixed(*value, 1), unit);
  };
  add("float32 multiply-adds", peaks.fma_f32, " GFLOP/s");
  add("float64 multiply-adds", peaks.fma_f64, " GFLOP/s");
  add("AVX512-BF16", peaks.avx512_bf16, "");
  add("AMX", peaks.amx_bf16, "");
  add("reads", peaks.read_gbytes_per_s, " GB/s");
  return text;
}

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json number(long double value, bool integer) {
  if (!integer) return number(static_cast<double>(value));
  if (value < 0) return static_cast<std::int64_t>(value);
  return static_cast<std::uint64_t>(value);
}

std::string fixed(double value, int digits) {
  TextWriter text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

std::string general(long double value, int digits) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  char text[40];
  std::snprintf(text, sizeof text, "%.*Lg", digits, value);
  return text;
}

void check_replaceable(const std::string& lead, const std::string& path, std::string_view start,
                       const std::string& kind) {
  if (!is_regular(path)) return;
  const std::string flag = lead.substr(0, lead.find_first_of("=:"));
  FileSource file(path, flag + ": ");
  std::string found(start.size(), '\0');
  found.resize(static_cast<std::size_t>(
      file.read(reinterpret_cast<std::byte*>(found.data()), std::ssize(found), 0)));
  if (found.empty() || found == start) return;
  misuse(lead, path, " exists and is no ", kind, Hint("remove it, or name another file"));
}

void write_file(const std::string& path, std::string_view text, const OutputOptions& options) {
  OutputFile file(path, options);
  file.write(text.data(), text.size());
  file.commit();
}

std::string colored_verdict(const Options& options, const std::string& text) {
  const std::size_t end = text.find_first_of(": \n");
  const std::string word = text.substr(0, end);
  const char* color = word == "MATCH" ? kGreen : word == "MISMATCH" ? kRed : nullptr;
  if (color == nullptr || !is_colored(options, STDOUT_FILENO)) return text;
  return color + word + kPlain + text.substr(word.size());
}

void say(const Options& options, const std::string& kind, const std::string& message) {
  if (options.quiet && kind != "error") return;
  std::string label = kind + ":";
  if (is_colored(options, STDERR_FILENO)) {
    label = (kind == "error" ? kRed : kYellow) + label + kPlain;
  }
  std::fprintf(stderr, "convgrad: %s %s\n", label.c_str(), message.c_str());
}

Progress::Progress(std::string label)
    : label_(std::move(label)),
      terminal_(!is_off && isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

void Progress::turn_off() { is_off = true; }

void Progress::wipe() {
  const std::lock_guard lock(mutex_);
  if (shown_ > 0) std::fprintf(stderr, "\r%*s\r", static_cast<int>(shown_), "");
  shown_ = 0;
}

void Progress::show(double fraction, const std::string& label) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const bool soon = std::chrono::duration<double>(now - last_).count() < 0.1;
  if (elapsed < 1 || (soon && shown_ > 0)) return;
  last_ = now;
  constexpr int kCells = 20;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kCells);
  const double left = fraction > 0 ? elapsed / fraction - elapsed : 0;
  const int columns = std::fprintf(stderr, "\r%s: [%.*s%*s] %3.0f %%, %s left ", label.c_str(),
                                   full, "####################", kCells - full, "", 100 * fraction,
                                   time_text(left).c_str());
  // Blanks replace what is left of a longer line.
  const std::size_t now_shown = columns > 1 ? static_cast<std::size_t>(columns - 1) : 0;
  if (shown_ > now_shown) std::fprintf(stderr, "%*s", static_cast<int>(shown_ - now_shown), "");
  shown_ = std::max(shown_, now_shown);
  std::fflush(stderr);
}

}  // namespace convgrad::cli
