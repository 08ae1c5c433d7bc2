// report.cpp - see report.hpp.
#include "report/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <sstream>
#include <string_view>

#include "files/tensor_name.hpp"
#include "files/text_file.hpp"
#include "options/refuse.hpp"
#include "report/tensor_hash.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

// "; it is truncated" says more of what was found; "; use --backend cpu" is what can be done.
bool is_advice(const std::string& part) {
  static const std::vector<std::string> kStatements = {
      "it", "its", "the", "what", "no", "not", "expected", "this", "that", "a", "an"};
  const std::string first = part.substr(0, part.find_first_of(" ,.:"));
  if (part.find(": add --") != part.npos) return true;
  return std::ranges::find(kStatements, first) == kStatements.end();
}

Json dtype_json(const NpyHeader& header) {
  try {
    return dtype_name(float_dtype(header, ""));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

double milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

Json error_json(int status, const std::string& message, const std::vector<std::string>& words) {
  // A file may be called "a; b.npy".
  std::string own = message;
  for (const std::string& word : words) {
    const std::string line = one_line(word);
    for (std::size_t at = own.find(line); line.size() > 1 && at != std::string::npos;
         at = own.find(line, at + line.size())) {
      std::replace(own.begin() + static_cast<std::ptrdiff_t>(at),
                   own.begin() + static_cast<std::ptrdiff_t>(at + line.size()), ';', ',');
    }
  }
  Json hint;
  for (std::size_t at = own.find("; "); at != std::string::npos; at = own.find("; ", at + 2)) {
    if (!is_advice(own.substr(at + 2))) continue;
    hint = message.substr(at + 2);
    break;
  }
  return {{"code", status}, {"message", message}, {"hint", hint}};
}

void set_problem(Json& report, const WgradProblem& problem) {
  report["op"] = op_name(problem.op);
  report["attrs"] = problem_json(problem);
  report["work"] = work_json(problem);
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

Json new_report(const std::string& command, const std::string& command_line) {
  Json report;
  report["schema"] = "convgrad.report/1";
  report["command"] = command;
  report["command_line"] = command_line;
  report["status"] = "ok";
  report["exit_code"] = 0;
  report["tool"] = {{"name", "convgrad"},
                    {"version", kVersion},
                    {"git", kGitRevision},
                    {"compiler", kCompiler},
                    {"build_type", kBuildType},
                    {"blas", Json()},
                    {"cuda_toolkit", *kCudaToolkit != '\0' ? Json(kCudaToolkit) : Json()}};
  return report;
}

Json problem_json(const WgradProblem& problem) {
  Json strides = Json::array(), dilations = Json::array(), pads = Json::array();
  for (int a = 3 - problem.spatial_rank(); a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[static_cast<std::size_t>(a)];
    strides.push_back(axis.stride);
    dilations.push_back(axis.dilation);
    pads.push_back({axis.pad_before, axis.pad_after});
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
          {"strides", strides},
          {"dilations", dilations},
          {"pads", pads},
          {"line", describe(problem)}};
}

Json tensor_json(const std::string& path, const NpyHeader& header) {
  return {{"file", path},
          {"shape", header.shape},
          {"dtype", dtype_json(header)},
          {"descr", header.descr},
          {"fortran_order", header.fortran_order},
          {"bytes", header.payload_bytes}};
}

bool is_readable_again(const std::string& path) {
  std::error_code ignored;
  return path != "-" && std::filesystem::is_regular_file(split_tensor_name(path).file, ignored);
}

void add_hash(Json& tensor) {
  const auto path = tensor["file"].get<std::string>();
  tensor["hash"] = is_readable_again(path) ? Json(hash_of_values(path)) : Json();
}

void add_tensor(const char* name, const std::string& path, Json& report) {
  if (path.empty() || !is_readable_again(path)) return;
  Json& tensor = report["tensors"][name] = tensor_json(path, NpyReader(path).header());
  add_hash(tensor);
}

void add_gradient(const ArrayTarget& target, const WgradProblem& problem, Json& report) {
  const std::string name = target.readable_name();
  const std::string header = npy_header_text(problem.out_dtype, dw_shape(problem));
  Json& tensor = report["tensors"]["gradient"] =
      tensor_json(name, parse_npy_header(std::as_bytes(std::span(header)), name));
  if (target.format == ArrayFormat::raw && is_readable_again(target.file)) {
    tensor["hash"] = hash_of_file(target.file);  // its bytes are the values
  } else {
    add_hash(tensor);
  }
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

Json work_json(const WgradProblem& problem) {
  const auto bytes = [](DType dtype, std::int64_t count) {
    return static_cast<double>(dtype_bytes(dtype)) * static_cast<double>(count);
  };
  const double tensors =
      bytes(problem.x_dtype, problem.x_count()) + bytes(problem.dy_dtype, problem.dy_count());
  return {{"flops", flop_count(problem)},
          {"bytes", tensors + bytes(problem.out_dtype, problem.dw_count())}};
}

Json timing_json(const Timing& timing, double write_s) {
  return {
      {"read", milliseconds(timing.read_s)},     {"convert", milliseconds(timing.convert_s)},
      {"kernel", milliseconds(timing.kernel_s)}, {"reference", milliseconds(timing.reference_s)},
      {"write", milliseconds(write_s)},          {"total", milliseconds(timing.total_s + write_s)}};
}

Json perf_json(const WgradProblem& problem, const Timing& timing) {
  const double seconds = timing.kernel_s + timing.reference_s;
  const auto rate = [&](const Json& amount) {
    return seconds > 0 ? Json(amount.get<double>() / seconds * 1e-9) : Json();
  };
  const Json work = work_json(problem);
  return {{"gflops", rate(work["flops"])}, {"gbytes_per_s", rate(work["bytes"])}};
}

Json cuda_json(const CudaInfo& info) {
  Json devices = Json::array();
  for (const Device& device : info.devices) {
    devices.push_back({{"number", device.number},
                       {"name", device.name},
                       {"compute_capability", cat(device.major, ".", device.minor)},
                       {"memory_bytes", device.memory_bytes},
                       {"multiprocessors", device.multiprocessors}});
  }
  return {{"built", info.built},
          {"toolkit_version", info.toolkit_version},
          {"driver_version", info.driver_version},
          {"architectures", info.architectures},
          {"devices", devices},
          {"why_none", info.why_none}};
}

Json machine_json(const Machine& machine) {
  return {{"processor", machine.processor},
          {"threads", machine.threads},
          {"memory_bytes", machine.memory_bytes},
          {"instruction_sets", machine.instruction_sets}};
}

Json peaks_json(const Peaks& peaks) {
  const auto value = [](const std::optional<double>& peak) { return peak ? Json(*peak) : Json(); };
  return {{"threads", peaks.threads},
          {"instruction_set", peaks.instruction_set},
          {"fma_gflops", {{"float32", value(peaks.fma_f32)}, {"float64", value(peaks.fma_f64)}}},
          {"avx512_bf16_gflops", value(peaks.avx512_bf16)},
          {"amx_bf16_gflops", value(peaks.amx_bf16)},
          {"read_gbytes_per_s", value(peaks.read_gbytes_per_s)},
          {"read_bytes", peaks.read_bytes}};
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

std::string bracketed(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (const std::int64_t n : numbers) text += cat(text.size() > 1 ? "," : "", n);
  return text + "]";
}

void check_replaceable(const std::string& lead, const std::string& path, std::string_view start,
                       const std::string& kind) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const std::string flag = lead.substr(0, lead.find_first_of("=:"));
  const std::string found = read_start(path, start.size(), flag + ": ");
  if (found.empty() || found == start) return;
  misuse(lead, path, " exists and is no ", kind, "; remove it, or name another file");
}

void write_file(const std::string& path, std::string_view text, const OutputOptions& options) {
  OutputFile file(path, options);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace convgrad::cli
