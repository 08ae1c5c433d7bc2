// plan.hpp - how a problem will be computed, and what it will cost, before anything is allocated.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/batch_part.hpp"
#include "convgrad/device_kernel.hpp"
#include "convgrad/kernel.hpp"

namespace convgrad {

struct PlanOptions {
  std::string algorithm = "auto";
  int threads = 0;                      // 0: all that the machine lets this process run on
  std::int64_t memory_limit_bytes = 0;  // 0: what the machine has
  std::int64_t block_bytes = 0;         // of x and dy in memory at a time; 0: chosen
  bool with_reference = false;          // the reference sums are kept beside the kernel's
  bool only_reference = false;          // no kernel at all (--backend reference)
  std::int64_t check_bytes = 0;         // of another check's sums in the reference's place
  std::optional<Device> device;         // computed there, by a row of device_kernels()
  // Memory the sources need besides: whole payloads of streams that cannot be read in blocks.
  std::int64_t source_bytes = 0;
  // Data already in memory is one block that costs nothing.
  bool in_memory = false;
  BatchRange batch;  // what part of it is summed; all of it by default
};

// Bytes, as they are compared with the limit.
struct MemoryNeed {
  std::int64_t partials = 0;    // live_partials * |dw| * 8
  std::int64_t workspaces = 0;  // threads * workspace of the kernel
  std::int64_t blocks = 0;      // two blocks of x and dy, one when one holds everything
  std::int64_t reference = 0;   // sums, compensations and magnitudes, for verify
  std::int64_t sources = 0;
  std::int64_t result = 0;   // sums that come from a device, or from other processes
  std::int64_t output = 0;   // the staging buffer of the writer
  std::int64_t program = 0;  // itself, its libraries, their buffers and the list of tiles
  std::int64_t total() const {
    std::int64_t sum = 0;  // the greatest number instead of an overflow: over any limit
    for (const std::int64_t part :
         {partials, workspaces, blocks, reference, sources, result, output, program}) {
      if (__builtin_add_overflow(sum, part, &sum)) return std::numeric_limits<std::int64_t>::max();
    }
    return sum;
  }
};

// Bytes in a device's memory.
struct DeviceMemory {
  std::int64_t partials = 0;               // slices * |dw| * 8
  std::int64_t x_block = 0, dy_block = 0;  // the largest block
  std::int64_t buffers = 1;                // blocks there at a time: 1 or 2
  std::int64_t packed = 0;                 // a block, rearranged
  std::int64_t result = 0;                 // in the processor's memory: nodes * |dw| * 8
  std::int64_t limit = 0;
  std::int64_t total() const { return partials + buffers * (x_block + dy_block) + packed; }
};

struct Plan {
  WgradProblem problem;
  const Kernel* kernel = nullptr;  // null for the reference, and on a device
  const DeviceKernel* device_kernel = nullptr;
  Device device;  // that of device_kernel
  DeviceMemory device_memory;
  int threads = 1;
  ChunkGrid chunks;
  SliceGrid slices;
  BlockGrid blocks;
  BatchPart part;            // what is summed
  std::vector<Range> nodes;  // what comes out: one, the root, for the whole batch
  std::int64_t tiles = 0;
  std::int64_t live_partials = 0;  // slices in memory at a time
  MemoryNeed memory;
  std::int64_t memory_limit_bytes = 0;
};

// Arrays of |dw| doubles that the reference keeps: 2, or 3 for float64.
std::int64_t reference_arrays(const WgradProblem& problem);

// Throws Error(unavailable) if the algorithm cannot compute the problem, and Error(runtime) if the
// memory that it needs is over the limit, and Error(usage) if the batch cannot be cut as asked for.
// Nothing that it decides but threads, blocks and the part of the batch depends on the options, so
// the bits of the result depend on the problem and the algorithm alone.
Plan make_plan(const WgradProblem& problem, const Machine& machine, const PlanOptions& options);

// "cpu", "cuda" or "reference", and the name of the algorithm.
std::string_view backend_name(const Plan& plan);
std::string_view algorithm_name(const Plan& plan);

// One line: "im2col_gemm: 28 slices x 2 tiles on 2 threads, 4 blocks of 16 images, ...".
std::string describe(const Plan& plan);

}  // namespace convgrad
