#include "engine/plan.hpp"

#include <algorithm>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/partial_tree.hpp"

namespace convgrad {
namespace {

// Blocks larger than this gain nothing: there is enough work in them for many threads.
constexpr std::int64_t kUsualBlockBytes = std::int64_t{48} << 20;
// Where reading takes longer than computing, such blocks stay in the cache from one to the other.
constexpr std::int64_t kStreamedBlockBytes = std::int64_t{8} << 20;
constexpr double kStreamedFlopsPerByte = 16;
// The program itself, its libraries and their buffers take this (OpenBLAS reserves 32 MiB a thread,
// of which it touches what a product of our size needs).
constexpr std::int64_t kBaseBytes = std::int64_t{24} << 20;

std::int64_t block_budget(const Plan& plan, const PlanOptions& options, bool limited) {
  if (options.block_bytes > 0) return options.block_bytes;
  // Where data is in memory already, no size is too large.
  if (options.in_memory) return std::int64_t{1} << 62;
  const WgradProblem& pb = plan.problem;
  const double bytes = static_cast<double>(dtype_bytes(pb.dtype)) *
                       (static_cast<double>(pb.x_count()) + static_cast<double>(pb.dy_count()));
  const bool streamed = flop_count(pb) < kStreamedFlopsPerByte * bytes;
  const std::int64_t usual = streamed ? kStreamedBlockBytes : kUsualBlockBytes;
  if (!limited) return usual;
  const std::int64_t room = plan.memory_limit_bytes - plan.memory.total();
  // Two blocks are in memory at a time: one is read while the other is summed.
  return std::min(usual, room / 2);
}

Error too_little_memory(const Plan& plan, bool limited) {
  const MemoryNeed& memory = plan.memory;
  const char* cure = limited ? "raise the limit" : "use a machine with more memory";
  if (memory.workspaces > memory.total() / 2) cure = "lower --threads";
  if (memory.sources > memory.total() / 2) cure = "save the tensor as a .npy file in C order first";
  return Error(ErrorKind::runtime, limited ? "--memory-limit is " : "the machine has ",
               format_bytes(plan.memory_limit_bytes), ", but ", describe(plan.problem), " needs ",
               describe(memory), Hint(cure));
}

Error too_little_device_memory(const Plan& plan, const CudaPlan& cuda, bool limited) {
  return Error(ErrorKind::runtime,
               limited ? "--memory-limit is " : cat("device ", cuda.device.number, " has "),
               format_bytes(cuda.memory.limit), ", but ", describe(plan.problem), " needs ",
               describe(cuda.memory),
               Hint(limited ? "raise the limit, or use --backend cpu" : "use --backend cpu"));
}

// Sets what is summed of the batch, once the slices are known.
void set_part(Schedule& schedule, const BatchRange& batch) {
  const SliceGrid& slices = schedule.slices;
  schedule.part = batch_part(schedule.chunks, slices, batch);
  schedule.nodes = tree_nodes(slices.count(), slices.slices_of(schedule.part.partitions));
}

// Returns the largest blocks within the budget, or the smallest there are.
BlockChoice blocks_within(const Plan& plan, std::int64_t budget_bytes) {
  const Schedule& schedule = plan.schedule;
  const auto choose = [&](std::int64_t bytes) {
    return choose_blocks(plan.problem, schedule.chunks, bytes, schedule.part.images);
  };
  BlockChoice choice = choose(budget_bytes);
  return choice.grid.count < 0 ? choose(choice.smallest_bytes) : choice;
}

bool is_empty(const Schedule& schedule) {
  return schedule.chunks.count == 0 || schedule.nodes.empty();
}

// Takes these blocks, of which two are in memory at a time.
void set_blocks(Plan& plan, const BlockChoice& choice, const PlanOptions& options) {
  plan.schedule.blocks = choice.grid;
  if (options.in_memory && options.block_bytes == 0) return;
  const std::int64_t copies = choice.grid.count == 1 ? 1 : 2;
  plan.memory.blocks =
      checked_mul(copies, choice.x_bytes + choice.dy_bytes, "the blocks of x and dy");
}

// Does what set_blocks() does, with blocks that are small enough for the device too.
void set_device_blocks(Plan& plan, CudaPlan& cuda, const PlanOptions& options, bool limited) {
  if (is_empty(plan.schedule)) return;
  const auto choose = [&](std::int64_t budget) {
    const BlockChoice choice = blocks_within(plan, budget);
    cuda.memory.x_block = choice.x_bytes;
    cuda.memory.dy_block = choice.dy_bytes;
    cuda.memory.buffers = choice.grid.count == 1 ? 1 : 2;
    cuda.memory.packed = cuda.kernel->packed_bytes(plan.problem, choice.x_bytes, choice.dy_bytes);
    return choice;
  };
  BlockChoice choice = choose(block_budget(plan, options, limited));
  // The block is halved until it fits or cannot become smaller.
  while (cuda.memory.total() > cuda.memory.limit) {
    const std::int64_t bytes = choice.x_bytes + choice.dy_bytes;
    choice = choose(bytes / 2);
    if (choice.x_bytes + choice.dy_bytes >= bytes) break;
  }
  set_blocks(plan, choice, options);
}

// Chooses blocks within what the rest leaves of the limit; where not even the smallest fits, sets
// memory.blocks to what that needs, for the check that follows.
void set_blocks(Plan& plan, const PlanOptions& options, bool limited) {
  if (is_empty(plan.schedule)) return;
  set_blocks(plan, blocks_within(plan, block_budget(plan, options, limited)), options);
}

constexpr const char* kWhat = "the memory of the job";

// Adds the partials and the workspaces of a kernel on the processor.
std::optional<Error> add_cpu(Plan& plan, const Machine& machine, const PlanOptions& options,
                             std::int64_t dw_bytes, bool limited) {
  CpuPlan cpu;
  cpu.kernel = options.kernel;
  if (cpu.kernel == nullptr) {
    const Feasible<const Kernel*> found = find_kernel(plan.problem, machine, options.algorithm);
    if (!found) return found.why_not();
    cpu.kernel = *found;
  }
  const WgradProblem &problem = plan.problem, shape = seen_by_kernels(problem);
  Schedule& schedule = plan.schedule;
  if (schedule.chunks.count > 0) schedule.chunks = cpu.kernel->chunks(problem);
  schedule.slices = slice_grid(problem, schedule.chunks);
  set_part(plan.schedule, options.batch);
  const auto set_partials = [&](bool one_block) {
    cpu.live_partials = live_partials(schedule.slices, schedule.nodes, one_block, plan.threads);
    plan.memory.partials = checked_mul(cpu.live_partials, dw_bytes, kWhat);
  };
  set_partials(false);
  cpu.steps = cpu.kernel->tile_steps(shape);
  if (cpu.steps.wide_k > cpu.steps.k) {
    const std::int64_t slices = std::max<std::int64_t>(schedule.slices.count(), 1);
    const std::int64_t tasks = ceil_div(plan.threads, slices);
    const std::int64_t tiles = std::max(ceil_div(problem.K, cpu.steps.wide_k), tasks);
    const bool whole = cpu.steps.whole_groups;
    const std::int64_t k = whole ? ceil_div(problem.groups, tiles) * problem.group_k()
                                 : round_up(ceil_div(problem.K, tiles), 16);
    // Fewer parts of a group must not leave a thread without its share.
    if (whole || slices * tiles % plan.threads == 0) cpu.steps.k = std::max(cpu.steps.k, k);
  }
  cpu.tiles = tile_count(problem, cpu.steps);
  plan.memory.program += checked_mul(cpu.tiles, std::int64_t{sizeof(Tile)}, kWhat);
  const std::int64_t line = 64;  // each is aligned to a cache line
  plan.memory.workspaces = plan.threads * round_up(cpu.kernel->workspace_bytes(shape), line);
  set_blocks(plan, options, limited);
  // The blocks follow from what partials leave of the limit, and one block needs fewer partials.
  if (schedule.blocks.count <= 1) set_partials(true);
  plan.backend = cpu;
  return std::nullopt;
}

// Returns what is free, less what allocations are rounded up by, the code and stacks of kernels,
// which are loaded later, and what other programs may take in the meantime.
std::int64_t usable_bytes(const Device& device) {
  constexpr std::int64_t kMost = std::int64_t{512} << 20;
  return device.free_bytes - std::min(device.free_bytes / 16, kMost);
}

// Adds what a device needs, in its memory and in the processor's.
std::optional<Error> add_cuda(Plan& plan, const PlanOptions& options, std::int64_t dw_bytes,
                              bool limited) {
  const Feasible<const DeviceKernel*> found =
      find_device_kernel(plan.problem, options.device, options.algorithm);
  if (!found) return found.why_not();
  const DeviceKernel& kernel = **found;
  CudaPlan cuda{&kernel, options.device, 0, {}};
  Schedule& schedule = plan.schedule;
  DeviceMemory& need = cuda.memory;
  if (kernel.schedule != nullptr) {
    const DeviceSchedule own = kernel.schedule(plan.problem, options.least_chunks);
    schedule.chunks = own.chunks;
    schedule.slices = own.slices;
    cuda.tiles = own.tiles;
    need.partials = own.partial_bytes;
  } else {
    if (kernel.chunks != nullptr && schedule.chunks.count > 0) {
      schedule.chunks = kernel.chunks(plan.problem);
    }
    const DeviceTiles tiles = kernel.tiles(with_channels(plan.problem));
    cuda.tiles = tiles.count;
    schedule.slices =
        device_slice_grid(plan.problem, schedule.chunks, kernel, tiles, options.least_chunks);
    if (schedule.chunks.count > 0) {
      need.partials = checked_mul(schedule.slices.count(), dw_bytes, kWhat);
    }
  }
  if (schedule.chunks.count > 0) need.sums = dw_bytes;
  set_part(schedule, options.batch);
  need.result = plan.memory.result = checked_mul(std::ssize(schedule.nodes), dw_bytes, kWhat);
  need.limit = usable_bytes(cuda.device);
  const bool tighter = limited && plan.memory_limit_bytes < need.limit;
  if (tighter) need.limit = plan.memory_limit_bytes;
  set_device_blocks(plan, cuda, options, limited);
  if (need.total() > need.limit) return too_little_device_memory(plan, cuda, tighter);
  plan.backend = cuda;
  return std::nullopt;
}

}  // namespace

std::int64_t reference_bytes(const WgradProblem& problem) {
  const std::int64_t arrays = problem.dtype == DType::f64 ? 2 : 1;
  return checked_mul(arrays, checked_mul(problem.dw_count(), 8, kWhat), kWhat);
}

Feasible<Plan> find_plan(const WgradProblem& problem, const Machine& machine,
                         const PlanOptions& options) {
  Plan plan;
  plan.problem = problem;
  plan.threads = options.threads > 0 ? options.threads : machine.threads;
  plan.schedule.chunks = chunk_grid(problem);
  const bool limited = options.memory_limit_bytes > 0;
  plan.memory_limit_bytes = limited ? options.memory_limit_bytes : machine.memory_bytes;
  const std::int64_t dw_bytes = checked_mul(problem.dw_count(), 8, kWhat);
  const bool by_reference = options.backend == Backend::reference;
  plan.memory.program = kBaseBytes;
  plan.memory.sources = options.source_bytes;
  plan.memory.output = std::min(dw_bytes, kOutputStagingBytes);
  plan.memory.reference = options.check_bytes.value_or(by_reference ? reference_bytes(problem) : 0);
  std::optional<Error> why_not;
  if (options.backend == Backend::cpu) {
    why_not = add_cpu(plan, machine, options, dw_bytes, limited);
  } else if (options.backend == Backend::cuda) {
    why_not = add_cuda(plan, options, dw_bytes, limited);
  } else {
    plan.schedule.slices = slice_grid(problem, plan.schedule.chunks);
    set_part(plan.schedule, {});
    set_blocks(plan, options, limited);
  }
  if (why_not) return *why_not;
  if (plan.memory.total() > plan.memory_limit_bytes) return too_little_memory(plan, limited);
  return plan;
}

Plan make_plan(const WgradProblem& problem, const Machine& machine, const PlanOptions& options) {
  return find_plan(problem, machine, options).or_throw();
}

WgradProblem part_problem(const Plan& plan) {
  WgradProblem problem = plan.problem;
  problem.N = plan.schedule.part.images.size();
  return problem;
}

std::string_view backend_name(const Plan& plan) {
  return plan.cuda() ? "cuda" : plan.cpu() ? "cpu" : "reference";
}

std::string_view algorithm_name(const Plan& plan) {
  return plan.cuda()  ? plan.cuda()->kernel->name
         : plan.cpu() ? plan.cpu()->kernel->name
                      : "reference";
}

std::string describe(const MemoryNeed& memory) {
  const std::pair<std::int64_t, const char*> parts[] = {
      {memory.partials, "of partial sums"}, {memory.workspaces, "of workspaces for the threads"},
      {memory.blocks, "of tensor blocks"},  {memory.reference, "of reference sums"},
      {memory.sources, "of held streams"},  {memory.result, "of sums from the device"},
      {memory.output, "for the output"},    {memory.program, "for the program itself"},
  };
  std::string text;
  for (const auto& [bytes, what] : parts) {
    if (bytes > 0) text += cat(text.empty() ? " (" : ", ", format_bytes(bytes), " ", what);
  }
  return cat(format_bytes(memory.total()), text, ")");
}

std::string describe(const DeviceMemory& memory) {
  const std::int64_t sums = memory.partials + memory.sums;
  return cat(format_bytes(memory.total()), " there (", format_bytes(sums), " of sums, ",
             format_bytes(memory.total() - sums), " of tensor blocks)");
}

std::string describe(const Plan& plan) {
  static constexpr const char* kUnits[] = {"image", "plane", "row", "column"};
  const Schedule& schedule = plan.schedule;
  const CudaPlan* const cuda = plan.cuda();
  std::string text = cat(algorithm_name(plan), ": ");
  if (cuda || plan.cpu()) {
    text +=
        cat(counted(schedule.slices.count(), "slice"), " x ", counted(plan.tiles(), "tile"), ", ");
  }
  text += cuda ? cat("device ", cuda->device.number, " (", cuda->device.name, "), ")
               : cat(counted(plan.threads, "thread"), ", ");
  text += schedule.chunks.count == 0
              ? "nothing to add"
              : cat(counted(schedule.blocks.count, "block"), " of ",
                    counted(schedule.blocks.step, kUnits[schedule.blocks.axis]), " (",
                    counted(schedule.chunks.count, "chunk"), ")");
  text += cat(", ", format_bytes(plan.memory.total()));
  if (!cuda) return text;
  return cat(text, " and ", format_bytes(cuda->memory.total()), " on the device");
}

}  // namespace convgrad
