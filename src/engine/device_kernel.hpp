// device_kernel.hpp - the algorithms of --backend cuda. Those of the processor are in kernel.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "convgrad/problem.hpp"
#include "engine/device.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

struct DeviceKernel {
  std::string_view name;
  std::string_view summary;
  bool by_name_only = false;  // never chosen by auto
  // Empty if it can compute the problem there, else the reason, as a sentence without full stop.
  std::string (*why_not)(const WgradProblem&, const Device&) = nullptr;
  // Rough time on a large device with tensor cores as this compute capability has them, by which
  // auto chooses. From the shape and the capability alone, never measured.
  double (*estimated_seconds)(const WgradProblem&, const Device&) = nullptr;
  // Thread blocks that one slice is worth.
  std::int64_t (*tiles)(const WgradProblem&) = nullptr;
  // Device memory for a rearranged copy of a block of x and dy of so many bytes; 0 if none is made.
  std::int64_t (*packed_bytes)(const WgradProblem&, std::int64_t x_bytes,
                               std::int64_t dy_bytes) = nullptr;
  // Thread blocks that a large device runs at a time, more or less.
  std::int64_t wave = 1;
  bool one_slice = false;  // it sums in its own order
};

// The one table of them, in builds without CUDA too.
std::span<const DeviceKernel> device_kernels();
bool is_device_kernel(std::string_view name);

// As find_kernel() and choose_kernel(). Error(usage) for a name that is in no table.
Feasible<const DeviceKernel*> find_device_kernel(const WgradProblem& problem, const Device& device,
                                                 std::string_view name = "auto");
const DeviceKernel& choose_device_kernel(const WgradProblem& problem, const Device& device,
                                         std::string_view name = "auto");

// The slices of a device's sums: more of them than the processor's, again by the shape alone. A
// slice is worth `tiles` thread blocks.
SliceGrid device_slice_grid(const WgradProblem& problem, const ChunkGrid& grid,
                            const DeviceKernel& kernel, std::int64_t tiles);

// Whether --backend auto takes a CUDA device, if there is one: by the problem alone, so that
// neither threads nor limits change the choice. The rule is a sentence for --dry-run.
struct DeviceRule {
  bool worth_it = false;
  std::string sentence;
};
DeviceRule device_rule(const WgradProblem& problem);

}  // namespace convgrad
