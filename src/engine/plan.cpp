// plan.cpp - see plan.hpp.
#include "convgrad/plan.hpp"

#include <algorithm>

#include "base/format_bytes.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/partial_tree.hpp"

namespace convgrad {
namespace {

// Blocks larger than this gain nothing: there is enough work in them for many threads.
constexpr std::int64_t kUsualBlockBytes = std::int64_t{48} << 20;
// Where reading takes longer than computing, blocks that stay in the cache from one to the other.
constexpr std::int64_t kStreamedBlockBytes = std::int64_t{8} << 20;
constexpr double kStreamedFlopsPerByte = 16;
// What the program itself, its libraries and their buffers take (OpenBLAS: 32 MiB a thread, of
// which it touches what a product of our size needs).
constexpr std::int64_t kBaseBytes = std::int64_t{24} << 20;

std::int64_t block_budget(const Plan& plan, const PlanOptions& options, bool limited) {
  if (options.block_bytes > 0) return options.block_bytes;
  const WgradProblem& pb = plan.problem;
  const double bytes = static_cast<double>(dtype_bytes(pb.dtype)) *
                       (static_cast<double>(pb.x_count()) + static_cast<double>(pb.dy_count()));
  const bool streamed = flop_count(pb) < kStreamedFlopsPerByte * bytes;
  const std::int64_t usual = streamed ? kStreamedBlockBytes : kUsualBlockBytes;
  if (!limited) return usual;
  const std::int64_t room = plan.memory_limit_bytes - plan.memory.total();
  return std::min(usual, room / 2);
}

// "1.1 KiB of partial sums, 24.0 MiB for the program itself": what is there, and adds up.
std::string memory_parts(const MemoryNeed& memory) {
  const std::pair<std::int64_t, const char*> parts[] = {
      {memory.partials, "of partial sums"}, {memory.workspaces, "of workspaces for the threads"},
      {memory.blocks, "of tensor blocks"},  {memory.reference, "of reference sums"},
      {memory.sources, "of held streams"},  {memory.result, "of sums from the device"},
      {memory.output, "for the output"},    {memory.program, "for the program itself"},
  };
  std::string text;
  for (const auto& [bytes, what] : parts) {
    if (bytes == 0) continue;
    text += cat(text.empty() ? "" : ", ", format_bytes(static_cast<double>(bytes)), " ", what);
  }
  return text;
}

[[noreturn]] void too_little_memory(const Plan& plan, bool limited) {
  const MemoryNeed& memory = plan.memory;
  const char* cure = limited ? "raise the limit" : "use a machine with more memory";
  if (memory.workspaces > memory.total() / 2) cure = "lower --threads";
  if (memory.sources > memory.total() / 2) cure = "save the tensor as a .npy file first";
  throw Error(ErrorKind::runtime, cat(limited ? "--memory-limit is " : "the machine has ",
                                      format_bytes(static_cast<double>(plan.memory_limit_bytes)),
                                      ", but ", describe(plan.problem), " needs ",
                                      format_bytes(static_cast<double>(memory.total())), " (",
                                      memory_parts(memory), "); ", cure));
}

[[noreturn]] void too_little_device_memory(const Plan& plan, bool limited) {
  const DeviceMemory& need = plan.device_memory;
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  throw Error(ErrorKind::runtime,
              cat(limited ? "--memory-limit is " : cat("device ", plan.device.number, " has "),
                  bytes(need.limit), ", but ", describe(plan.problem), " needs ",
                  bytes(need.total()), " there (", bytes(need.partials), " of partial sums, ",
                  bytes(need.total() - need.partials), " of tensor blocks); ",
                  limited ? "raise the limit, or use --backend cpu" : "use --backend cpu"));
}

// What of the batch is summed, once the slices are known.
void set_part(Plan& plan, const PlanOptions& options) {
  plan.part = batch_part(plan.chunks, plan.slices, options.batch);
  plan.nodes = tree_nodes(plan.slices.count(), plan.slices.slices_of(plan.part.partitions));
}

BlockChoice blocks_within(const Plan& plan, std::int64_t budget_bytes) {
  return choose_blocks(plan.problem, plan.chunks, budget_bytes, plan.part.images);
}

// The sizes of the largest block on the device, and whether there is room for two.
void set_device_blocks(Plan& plan, const BlockChoice& choice) {
  DeviceMemory& need = plan.device_memory;
  need.x_block = choice.x_bytes;
  need.dy_block = choice.dy_bytes;
  need.buffers = choice.grid.count == 1 ? 1 : 2;
  need.packed = plan.device_kernel->packed_bytes(plan.problem, choice.x_bytes, choice.dy_bytes);
}

// Blocks for a device: as plan_blocks, and small enough for the device too.
void plan_device_blocks(Plan& plan, const PlanOptions& options, bool limited) {
  if (plan.chunks.count == 0 || plan.nodes.empty()) return;
  const auto choose = [&](std::int64_t budget) {
    BlockChoice choice = blocks_within(plan, budget);
    if (choice.grid.count < 0) choice = blocks_within(plan, choice.smallest_bytes);
    set_device_blocks(plan, choice);
    return choice;
  };
  const std::int64_t whole = options.in_memory && options.block_bytes == 0
                                 ? std::int64_t{1} << 62
                                 : block_budget(plan, options, limited);
  BlockChoice choice = choose(whole);
  // Halved until it fits, or cannot become smaller.
  while (plan.device_memory.total() > plan.device_memory.limit) {
    const std::int64_t bytes = choice.x_bytes + choice.dy_bytes;
    choice = choose(bytes / 2);
    if (choice.x_bytes + choice.dy_bytes >= bytes) break;
  }
  plan.blocks = choice.grid;
  if (options.in_memory) return;
  plan.memory.blocks = checked_mul(plan.device_memory.buffers, choice.x_bytes + choice.dy_bytes,
                                   "the blocks of x and dy");
}

// The part of a plan that is a device's.
void plan_device(Plan& plan, const PlanOptions& options, std::int64_t dw_bytes, bool limited) {
  plan.device = *options.device;
  plan.device_kernel = &choose_device_kernel(plan.problem, plan.device, options.algorithm);
  plan.tiles = plan.device_kernel->tiles(plan.problem);
  plan.slices = device_slice_grid(plan.problem, plan.chunks, plan.tiles);
  if (plan.device_kernel->one_slice) plan.slices = deal_slices(plan.chunks, 1, 1, 1);
  set_part(plan, options);
  DeviceMemory& need = plan.device_memory;
  need.partials = plan.chunks.count == 0
                      ? 0
                      : checked_mul(plan.slices.count(), dw_bytes, "the memory of the job");
  need.result = plan.memory.result =
      checked_mul(std::ssize(plan.nodes), dw_bytes, "the memory of the job");
  // What the driver and other programs take is not known before it is asked for.
  need.limit = plan.device.memory_bytes - plan.device.memory_bytes / 16;
  const bool tighter = limited && plan.memory_limit_bytes < need.limit;
  if (tighter) need.limit = plan.memory_limit_bytes;
  plan_device_blocks(plan, options, limited);
  if (need.total() > need.limit) too_little_device_memory(plan, tighter);
}

// Chooses blocks within what the rest leaves of the limit; where not even the smallest fits, sets
// memory.blocks to what that needs, for the check that follows.
void plan_blocks(Plan& plan, const PlanOptions& options, bool limited) {
  if (plan.chunks.count == 0 || plan.nodes.empty()) return;
  if (options.in_memory && options.block_bytes == 0) {
    plan.blocks = blocks_within(plan, std::int64_t{1} << 62).grid;
    return;
  }
  const std::int64_t budget = block_budget(plan, options, limited);
  BlockChoice choice = blocks_within(plan, budget);
  if (choice.grid.count < 0) choice = blocks_within(plan, choice.smallest_bytes);
  const std::int64_t copies = choice.grid.count == 1 ? 1 : 2;
  plan.memory.blocks =
      checked_mul(copies, choice.x_bytes + choice.dy_bytes, "the blocks of x and dy");
  plan.blocks = choice.grid;
}

}  // namespace

std::int64_t reference_arrays(const WgradProblem& problem) {
  return problem.dtype == DType::f64 ? 3 : 2;
}

Plan make_plan(const WgradProblem& problem, const Machine& machine, const PlanOptions& options) {
  Plan plan;
  plan.problem = problem;
  plan.threads = options.threads > 0 ? options.threads : machine.threads;
  plan.chunks = chunk_grid(problem);
  plan.slices = slice_grid(problem, plan.chunks);
  const bool limited = options.memory_limit_bytes > 0;
  plan.memory_limit_bytes = limited ? options.memory_limit_bytes : machine.memory_bytes;

  const std::string what = "the memory of the job";
  const std::int64_t dw_bytes = checked_mul(problem.dw_count(), 8, what);
  plan.memory.program = kBaseBytes;
  plan.memory.sources = options.source_bytes;
  plan.memory.output = std::min(dw_bytes, kOutputStagingBytes);
  if (options.check_bytes > 0) {
    plan.memory.reference = options.check_bytes;
  } else if (options.with_reference || options.only_reference) {
    plan.memory.reference = checked_mul(reference_arrays(problem), dw_bytes, what);
  }
  const bool on_device = options.device && !options.only_reference;
  if (!options.only_reference && !on_device) {
    plan.kernel = &choose_kernel(problem, machine, options.algorithm);
    set_part(plan, options);
    plan.live_partials = live_partials(plan.slices, plan.nodes, false, plan.threads);
    plan.memory.partials = checked_mul(plan.live_partials, dw_bytes, what);
    plan.tiles = tile_count(problem, plan.kernel->tile_steps(problem));
    plan.memory.program += checked_mul(plan.tiles, std::int64_t{sizeof(Tile)}, what);
    // Each aligned to a cache line.
    const std::int64_t line = 64;
    plan.memory.workspaces =
        plan.threads * ((plan.kernel->workspace_bytes(problem) + line - 1) / line * line);
  }
  if (options.only_reference) set_part(plan, {});
  if (on_device) {
    plan_device(plan, options, dw_bytes, limited);
  } else {
    plan_blocks(plan, options, limited);
  }
  if (plan.kernel != nullptr && plan.blocks.count <= 1) {
    plan.live_partials = live_partials(plan.slices, plan.nodes, true, plan.threads);
    plan.memory.partials = plan.live_partials * dw_bytes;
  }
  if (plan.memory.total() > plan.memory_limit_bytes) too_little_memory(plan, limited);
  return plan;
}

namespace {

std::string counted(std::int64_t count, const char* noun) {
  return cat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

std::string_view backend_name(const Plan& plan) {
  return plan.device_kernel != nullptr ? "cuda" : plan.kernel != nullptr ? "cpu" : "reference";
}

std::string_view algorithm_name(const Plan& plan) {
  if (plan.device_kernel != nullptr) return plan.device_kernel->name;
  return plan.kernel != nullptr ? plan.kernel->name : "reference";
}

std::string describe(const Plan& plan) {
  static constexpr const char* kUnits[] = {"image", "plane", "row", "column"};
  std::string text = cat(algorithm_name(plan), ": ");
  if (plan.kernel != nullptr || plan.device_kernel != nullptr) {
    text += cat(counted(plan.slices.count(), "slice"), " x ", counted(plan.tiles, "tile"), ", ");
  }
  if (plan.device_kernel != nullptr) {
    text += cat("device ", plan.device.number, " (", plan.device.name, "), ");
  } else {
    text += cat(counted(plan.threads, "thread"), ", ");
  }
  if (plan.chunks.count == 0) {
    text += "nothing to add";
  } else {
    text += cat(counted(plan.blocks.count, "block"), " of ",
                counted(plan.blocks.step, kUnits[plan.blocks.axis]), " (",
                counted(plan.chunks.count, "chunk"), ")");
  }
  text += cat(", ", format_bytes(static_cast<double>(plan.memory.total())));
  if (plan.device_kernel == nullptr) return text;
  return cat(text, " and ", format_bytes(static_cast<double>(plan.device_memory.total())),
             " on the device");
}

}  // namespace convgrad
