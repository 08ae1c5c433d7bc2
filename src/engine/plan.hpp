// plan.hpp - how a problem will be computed, and what it will cost, before anything is allocated.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/device_kernel.hpp"
#include "engine/kernel.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

enum class Backend : std::uint8_t { cpu, cuda, reference };

struct PlanOptions {
  Backend backend = Backend::cpu;
  Device device = {};                   // of cuda
  std::string algorithm = "auto";       // a row of kernels() or device_kernels()
  const Kernel* kernel = nullptr;       // of cpu, instead of the algorithm: one that is in no table
  int threads = 0;                      // 0: all that the machine lets this process run on
  std::int64_t memory_limit_bytes = 0;  // 0: what the machine has
  std::int64_t block_bytes = 0;         // of x and dy in memory at a time; 0: chosen
  std::int64_t least_chunks = 1;        // of a slice on a device; tests want several
  // Sums by the definition take this, beside the gradient or instead of it: reference_bytes(), the
  // bytes of a sample, ... The default is reference_bytes() for Backend::reference, and else 0.
  std::optional<std::int64_t> check_bytes = std::nullopt;
  // Sources need this besides: whole payloads of streams that cannot be read in blocks.
  std::int64_t source_bytes = 0;
  // Data already in memory is one block that costs nothing.
  bool in_memory = false;
  BatchRange batch = {};  // what part of it is summed; all of it by default
};

// These bytes are compared with the limit.
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

// These bytes are in a device's memory.
struct DeviceMemory {
  std::int64_t partials = 0;               // slices * |dw| * 8
  std::int64_t x_block = 0, dy_block = 0;  // the largest block
  std::int64_t buffers = 1;                // blocks there at a time: 1 or 2
  std::int64_t packed = 0;                 // a block, rearranged
  std::int64_t sums = 0;                   // of a node: |dw| * 8
  std::int64_t result = 0;                 // in the processor's memory: nodes * |dw| * 8
  std::int64_t limit = 0;
  std::int64_t total() const { return partials + buffers * (x_block + dy_block) + packed + sums; }
};

// The schedule says how the sum is cut and in which order it is added up. The problem and the
// algorithm alone decide all but the blocks and the part of the batch, and so the result's bits.
struct Schedule {
  ChunkGrid chunks;
  SliceGrid slices;
  BlockGrid blocks;
  BatchPart part;            // what is summed
  std::vector<Range> nodes;  // what comes out: one, the root of the tree, for the whole batch
};

struct CpuPlan {
  const Kernel* kernel = nullptr;
  TileSteps steps;  // of its tiles
  std::int64_t tiles = 0;
  std::int64_t live_partials = 0;  // slices in memory at a time
};
struct CudaPlan {
  const DeviceKernel* kernel = nullptr;
  Device device;
  std::int64_t tiles = 0;
  DeviceMemory memory;
};
struct ReferencePlan {};

struct Plan {
  WgradProblem problem;
  Schedule schedule;
  int threads = 1;
  MemoryNeed memory;
  std::int64_t memory_limit_bytes = 0;
  std::variant<ReferencePlan, CpuPlan, CudaPlan> backend;

  // These are null unless the plan is one of that backend.
  const CpuPlan* cpu() const { return std::get_if<CpuPlan>(&backend); }
  const CudaPlan* cuda() const { return std::get_if<CudaPlan>(&backend); }
  std::int64_t tiles() const { return cpu() ? cpu()->tiles : cuda() ? cuda()->tiles : 0; }
};

// The reference's values take an array of |dw| doubles, or 2 for float64.
std::int64_t reference_bytes(const WgradProblem& problem);

// Returns a plan, or why there is none: Error(unavailable) if the algorithm cannot compute the
// problem, Error(runtime) if the memory that it needs is over the limit. Throws Error(usage) for
// what no problem could have, an unknown algorithm or a batch that cannot be cut as asked for.
Feasible<Plan> find_plan(const WgradProblem& problem, const Machine& machine,
                         const PlanOptions& options);
// Throws if there is none.
Plan make_plan(const WgradProblem& problem, const Machine& machine, const PlanOptions& options);

// Returns the plan's problem with the images alone that are summed.
WgradProblem part_problem(const Plan& plan);

// Return "cpu", "cuda" or "reference", and the name of the algorithm.
std::string_view backend_name(const Plan& plan);
std::string_view algorithm_name(const Plan& plan);

// Returns "25.1 MiB (1.1 MiB of partial sums, 24.0 MiB for the program itself)": what is not 0.
std::string describe(const MemoryNeed& memory);
std::string describe(const DeviceMemory& memory);

// Returns one line: "im2col_gemm: 28 slices x 2 tiles on 2 threads, 4 blocks of 16 images, ...".
std::string describe(const Plan& plan);

}  // namespace convgrad
