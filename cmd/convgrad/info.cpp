// info.cpp - what this program and this machine can do.
#include <cstdlib>

#include "commands.hpp"
#include "cpu/peaks.hpp"
#include "engine/device_kernel.hpp"
#include "job/job.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

std::string version_of(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

std::string cuda_text(const CudaInfo& cuda) {
  std::string text = cat("CUDA         ",
                         cuda.built ? cat("toolkit ", version_of(cuda.toolkit_version),
                                          ", compiled for ", cuda.architectures)
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
                format_bytes(device.memory_bytes), "\n");
  }
  return text;
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

}  // namespace

ReportPointer info(const InfoOptions& options) {
  std::optional<Peaks> peaks;
  if (options.peaks) {
    PeakRequest request;
    request.threads = options.execution.threads;
    peaks = measure_peaks(request);
  }
  const Machine& machine = this_machine();
  const BlasInfo blas = blas_info();
  const CudaInfo cuda = cuda_info();
  const std::vector<AlgorithmRow> algorithms = all_algorithms(&cuda);
  const char* core = std::getenv("OPENBLAS_CORETYPE");
  std::string text = version_text() + "\n";
  text += cat("processor    ", machine.processor, ", ", counted(machine.threads, "thread"), ", ",
              format_bytes(machine.memory_bytes), "\n");
  text += cat("             ", joined(machine.instruction_sets), "\n");
  text += cat("BLAS         ", blas.config, "\n");
  text +=
      cat("             kernels for ", blas.core, ", ", blas.parallel, " build, used with 1 thread",
          core != nullptr ? cat("; OPENBLAS_CORETYPE=", core) : std::string(), "\n");
  text += cuda_text(cuda) + cat("MPI          ", *kMpi != '\0' ? kMpi : "none", "\n");
  if (peaks) text += cat(peaks_line(*peaks), "; multiply-adds by ", peaks->instruction_set, "\n");
  text += "algorithms\n" + algorithms_text(algorithms);
  Json json = {{"machine", machine_json(machine)}, {"cuda", cuda_json(cuda)}};
  if (peaks) json["peaks"] = peaks_json(*peaks);
  json["algorithms"] = algorithms_json(algorithms);
  return std::make_unique<PlainReport>(std::move(text), std::move(json));
}

}  // namespace convgrad::cli
