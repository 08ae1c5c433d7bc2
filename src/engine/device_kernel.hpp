// device_kernel.hpp - CUDA devices, and the algorithms of --backend cuda. Those of the processor
// are in kernel.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/problem.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

struct Device {
  int number = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
  std::int64_t free_bytes = 0;  // when find_cuda_device() took it; 0 in CudaInfo
  bool has_90a = true;          // kernels of that target were compiled
};

struct CudaInfo {
  bool built = false;         // with the CUDA Toolkit
  int toolkit_version = 0;    // 13000 is 13.0; 0 without
  int driver_version = 0;     // the newest toolkit that the driver serves; 0 without a driver
  std::string architectures;  // compiled for: "75 80 86 89 90a"; "" without CUDA kernels
  std::vector<Device> devices;
  std::string why_none;  // a clause, when devices is empty
};
// Loads the driver, which takes time where there is one: call it only when the answer is needed.
CudaInfo cuda_info();

// Starts the device with this number, so that its free memory is known; Error(unavailable) if there
// is none that this program can use.
Feasible<Device> find_cuda_device(int number);
// Throws if there is none.
Device cuda_device(int number);

// A slice is worth `count` blocks of threads, of which a multiprocessor has `resident` at a time.
struct DeviceTiles {
  std::int64_t count = 1;
  int resident = 1;
};

// How a kernel's sums are cut, where it cuts them itself.
struct DeviceSchedule {
  ChunkGrid chunks;
  SliceGrid slices;
  std::int64_t tiles = 1;
  std::int64_t partial_bytes = 0;  // of all slices
};

struct DeviceKernel {
  std::string_view name;
  std::string_view summary;
  // Tells whether auto takes it where it can compute the problem, if no row before it is taken: by
  // the shape alone, as the choice must repeat. nullptr: never.
  bool (*auto_takes)(const WgradProblem&) = nullptr;
  // Returns "" if it can compute the problem there, else why not, in a sentence without full stop.
  std::string (*why_not)(const WgradProblem&, const Device&) = nullptr;
  DeviceTiles (*tiles)(const WgradProblem&) = nullptr;
  // Returns the device memory for a rearranged copy of a block of x and dy of so many bytes, or 0.
  std::int64_t (*packed_bytes)(const WgradProblem&, std::int64_t x_bytes,
                               std::int64_t dy_bytes) = nullptr;
  // It rounds no element of x and dy before they are multiplied. Else it sums in its own order, and
  // all chunks are one slice.
  bool is_exact = true;
  // Returns the chunks that it sums in one go, by the shape alone. nullptr: chunk_grid(problem).
  ChunkGrid (*chunks)(const WgradProblem&) = nullptr;
  // Returns the cut, of slices of at least so many chunks; nullptr: chunk_grid() and
  // device_slice_grid().
  DeviceSchedule (*schedule)(const WgradProblem&, std::int64_t least_chunks) = nullptr;
};

// This is the one table of them, in builds without CUDA too. The order is that of auto.
std::span<const DeviceKernel> device_kernels();
bool is_device_kernel(std::string_view name);

// Works as find_kernel() does. An unknown name is an Error(usage).
Feasible<const DeviceKernel*> find_device_kernel(const WgradProblem& problem, const Device& device,
                                                 std::string_view name = "auto");

// Returns the slices of a device's sums, of at least so many chunks each. They are more than the
// processor's, again by the shape alone.
SliceGrid device_slice_grid(const WgradProblem& problem, const ChunkGrid& grid,
                            const DeviceKernel& kernel, const DeviceTiles& tiles,
                            std::int64_t least_chunks = 1);

// Decides whether --backend auto takes a CUDA device, if there is one: by the problem alone, so
// that neither threads nor limits change the choice. The rule is a sentence for --dry-run.
struct DeviceRule {
  bool worth_it = false;
  std::string sentence;
};
DeviceRule device_rule(const WgradProblem& problem);

}  // namespace convgrad
