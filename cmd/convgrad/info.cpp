// info.cpp - what this program and this machine can do.
#include <algorithm>
#include <cstdlib>
#include <iomanip>

#include "commands.hpp"
#include "cpu/peaks.hpp"
#include "engine/device_kernel.hpp"
#include "job/job.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"

namespace convgrad::cli {
namespace {

std::string version_of(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

std::string cuda_text(const CudaInfo& cuda) {
  std::string text;
  text += cat("CUDA         ",
              cuda.built ? cat("toolkit ", version_of(cuda.toolkit_version), ", compiled for ",
                               cuda.architectures)
                         : "not available",
              ", ",
              cuda.driver_version > 0 ? "driver for " + version_of(cuda.driver_version)
                                      : std::string("no driver"),
              "\n");
  if (cuda.devices.empty()) {
    return text + cat("             backend cuda is not here: ", cuda.why_none, "\n");
  }
  for (const Device& device : cuda.devices) {
    text += cat("device ", device.number, "     ", device.name, ", compute capability ",
                device.major, ".", device.minor, ", ", device.multiprocessors, " multiprocessors, ",
                format_bytes(static_cast<double>(device.memory_bytes)), "\n");
  }
  return text;
}

std::string peaks_text(const Peaks& peaks) {
  TextWriter text;
  const auto line = [&](const std::string& what, const std::optional<double>& value,
                        const char* unit) {
    if (!value) return;
    text << "             " << std::left << std::setw(34) << what << std::right << std::fixed
         << std::setprecision(1) << std::setw(9) << *value << " " << unit << "\n";
  };
  text << "peaks        measured on " << peaks.threads
       << (peaks.threads == 1 ? " thread\n" : " threads\n");
  line(cat("multiply-adds, ", peaks.instruction_set, ", float32"), peaks.fma_f32, "GFLOP/s");
  line(cat("multiply-adds, ", peaks.instruction_set, ", float64"), peaks.fma_f64, "GFLOP/s");
  line("AVX512-BF16, bfloat16", peaks.avx512_bf16, "GFLOP/s");
  line("AMX, bfloat16", peaks.amx_bf16, "GFLOP/s");
  line("reading memory", peaks.read_gbytes_per_s, "GB/s");
  return text.str();
}

Words missing_instruction_sets(const Machine& machine) {
  Words missing = known_instruction_sets();
  std::erase_if(missing, [&](const std::string& set) {
    return std::ranges::count(machine.instruction_sets, set) > 0;
  });
  return missing;
}

struct InfoReport final : Report {
  std::string text() const override;
  Json json() const override;

  Machine machine = this_machine();
  BlasInfo blas = blas_info();
  CudaInfo cuda = cuda_info();
  std::optional<Peaks> peaks;
  std::vector<AlgorithmRow> algorithms = all_algorithms(&cuda);
};

std::string InfoReport::text() const {
  const char* core = std::getenv("OPENBLAS_CORETYPE");
  std::string text = version_text() + "\n";
  text += cat("processor    ", machine.processor, ", ", counted(machine.threads, "thread"), ", ",
              format_bytes(static_cast<double>(machine.memory_bytes)), "\n");
  text += cat("             ", joined(machine.instruction_sets), "\n");
  if (const Words missing = missing_instruction_sets(machine); !missing.empty()) {
    text += cat("             not here: ", joined(missing), "\n");
  }
  text += cat("BLAS         ", blas.config, "\n");
  text +=
      cat("             kernels for ", blas.core, ", ", blas.parallel, " build, used with 1 thread",
          core != nullptr ? cat("; OPENBLAS_CORETYPE=", core) : std::string(), "\n");
  text += cuda_text(cuda);
  if (peaks) text += peaks_text(*peaks);
  return text + "algorithms\n" + algorithms_text(algorithms);
}

Json InfoReport::json() const {
  Json json = {{"machine", machine_json(machine)}, {"cuda", cuda_json(cuda)}};
  if (peaks) json["peaks"] = peaks_json(*peaks);
  json["algorithms"] = algorithms_json(algorithms);
  return json;
}

}  // namespace

ReportPointer info(const InfoOptions& options) {
  auto report = std::make_unique<InfoReport>();
  if (options.peaks) {
    PeakRequest request;
    request.threads = options.execution.threads;
    report->peaks = measure_peaks(request);
  }
  return report;
}

}  // namespace convgrad::cli
