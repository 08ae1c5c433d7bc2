#include "engine/run.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <system_error>

#include "base/clock.hpp"
#include "base/integers.hpp"
#include "convgrad/gradient.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/kernel.hpp"
#include "engine/machine.hpp"

namespace convgrad {
namespace {

// Returns a block that is not loaded yet. It holds of x whole axes inside the block's own axis (and
// whole images when it is made of images, so that a stream can be read through), what the taps see
// otherwise.
Block placed_block(const Plan& plan, std::int64_t index) {
  Block block;
  block.pixels = plan.schedule.blocks.box(index);
  block.input = input_box(plan.problem, block.pixels);
  for (std::size_t a = plan.schedule.blocks.axis; a < 3; ++a) {
    block.input[a] = {0, plan.problem.axis[a].in};
  }
  return block;
}

// Reads a box of all channels, whose axes are in the order of the problem's files then, into
// memory, which grows if it must.
void read_part(const Plan& plan, Range images, const std::array<Range, 3>& spatial,
               std::int64_t channels, Buffer& memory, const BoxSource::Read& read) {
  const WgradProblem& problem = plan.problem;
  std::int64_t bytes = dtype_bytes(problem.dtype) * images.size() * channels;
  for (const Range& axis : spatial) bytes *= axis.size();
  if (memory.size_bytes() < bytes) {
    const char* what = "a block of a tensor";
    memory =
        plan.cuda() ? pinned_buffer(bytes, what, plan.cuda()->device.number) : Buffer(bytes, what);
  }
  std::vector<Range> axes(spatial.end() - problem.spatial_rank(), spatial.end());
  axes.insert(problem.channels_last ? axes.end() : axes.begin(), Range{0, channels});
  axes.insert(axes.begin(), images);
  std::vector<std::int64_t> begin, end;
  for (const Range& axis : axes) {
    begin.push_back(axis.begin);
    end.push_back(axis.end);
  }
  read(begin, end, memory.data());
}

std::array<std::int64_t, 3> sizes(const std::array<Range, 3>& ranges) {
  return {ranges[0].size(), ranges[1].size(), ranges[2].size()};
}

// A system that refuses another thread makes the work slower: the block is read when it is needed.
std::future<Block> read_ahead(const std::function<Block(std::int64_t)>& load, std::int64_t index) {
  try {
    return std::async(std::launch::async, load, index);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, load, index);
  }
}

// Kernels add offsets to the pointers of tensors without elements, too.
const void* never_null(const void* tensor) {
  static constexpr double kNothing = 0;
  return tensor != nullptr ? tensor : &kNothing;
}

// The gradient is rounded in pieces of this many elements, a task each; where there are few, in
// less time than it takes to wake other threads.
constexpr std::int64_t kRoundedPiece = 16384, kFewPieces = 4;

// A stream that cannot be read in whole images front to back is held in memory.
std::int64_t held_bytes(const NpyReader& reader, bool rows) {
  const bool held = reader.needs_whole_payload() || (rows && !reader.seekable());
  return held ? reader.header().payload_bytes : 0;
}

PlanOptions plan_options(const GradientOptions& options) {
  PlanOptions planned;
  planned.algorithm = options.algorithm;
  planned.threads = options.threads;
  planned.memory_limit_bytes = options.memory_limit_bytes;
  if (options.cuda_device >= 0) {
    planned.backend = Backend::cuda;
    planned.device = cuda_device(options.cuda_device);
  }
  return planned;
}

}  // namespace

Block BoxSource::load(const Plan& plan, std::int64_t block, BlockMemory& memory) {
  const WgradProblem& pb = plan.problem;
  Block result = placed_block(plan, block);
  const std::array<Range, 3> out = {result.pixels[1], result.pixels[2], result.pixels[3]};
  read_part(plan, result.pixels[0], result.input, pb.C, memory.x, read_x_);
  read_part(plan, result.pixels[0], out, pb.K, memory.dy, read_dy_);
  result.x = never_null(memory.x.data());
  result.dy = never_null(memory.dy.data());
  result.x_strides = box_strides(pb, pb.C, sizes(result.input));
  result.dy_strides = box_strides(pb, pb.K, sizes(out));
  return result;
}

void NpySource::finish() {
  x_.finish();
  dy_.finish();
}

Plan plan_for_files(const WgradProblem& problem, const NpyReader& x, const NpyReader& dy,
                    const PlanOptions& options) {
  PlanOptions held = options;
  held.source_bytes += held_bytes(x, false) + held_bytes(dy, false);
  Plan plan = make_plan(problem, this_machine(), held);
  if (plan.schedule.blocks.axis > 0) {  // blocks of rows: a stream cannot be read in that order
    held.source_bytes = options.source_bytes + held_bytes(x, true) + held_bytes(dy, true);
    if (held.source_bytes > options.source_bytes) plan = make_plan(problem, this_machine(), held);
  }
  return plan;
}

Block MemorySource::load(const Plan& plan, std::int64_t block, BlockMemory&) {
  const WgradProblem& pb = plan.problem;
  Block result = placed_block(plan, block);
  const std::array<Range, 3> out = {result.pixels[1], result.pixels[2], result.pixels[3]};
  result.x_strides = box_strides(pb, pb.C, {pb.axis[0].in, pb.axis[1].in, pb.axis[2].in});
  result.dy_strides = box_strides(pb, pb.K, {pb.axis[0].out, pb.axis[1].out, pb.axis[2].out});
  const auto start = [&](const Strides& s, const std::array<Range, 3>& spatial) {
    std::int64_t offset = result.pixels[0].begin * s.n;
    for (std::size_t a = 0; a < 3; ++a) offset += spatial[a].begin * s.spatial[a];
    return offset * dtype_bytes(pb.dtype);
  };
  result.x = static_cast<const std::byte*>(never_null(x_)) + start(result.x_strides, result.input);
  result.dy = static_cast<const std::byte*>(never_null(dy_)) + start(result.dy_strides, out);
  return result;
}

void stream_blocks(const Plan& plan, BlockSource& source,
                   const std::function<void(const Block&, std::int64_t)>& use, Timing& timing,
                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const auto start = Clock::now();
  const std::int64_t count = plan.schedule.blocks.count;
  BlockMemory memory[2];
  const std::function<Block(std::int64_t)> load = [&](std::int64_t index) {
    const auto begin = Clock::now();
    Block block = source.load(plan, index, memory[index % 2]);
    timing.read_s += seconds_since(begin);
    return block;
  };
  // The future's destructor waits, so memory outlives the reading also when use() throws.
  std::future<Block> next;
  for (std::int64_t index = 0; index < count; ++index) {
    const Block block = index == 0 ? load(0) : next.get();
    if (index + 1 < count) next = read_ahead(load, index + 1);
    use(block, index);
    if (progress) progress(index + 1, count);
  }
  source.finish();
  timing.total_s += seconds_since(start);
}

Timing sum_blocks(const Plan& plan, BlockSource& source, BlockSum& sum) {
  Timing timing;
  stream_blocks(
      plan, source, [&](const Block& block, std::int64_t index) { sum.add(block, index); }, timing);
  return timing;
}

void filter_gradient(const WgradProblem& problem, const void* x, const void* dy, void* result,
                     const PlanOptions& options) {
  PlanOptions in_memory = options;
  in_memory.in_memory = true;
  const Plan plan = make_plan(problem, this_machine(), in_memory);
  TaskPool pool(plan.threads);
  MemorySource source(x, dy);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  const std::int64_t count = problem.dw_count(), item = dtype_bytes(problem.out_dtype);
  // Before they are ordered, sums are rounded on a device alone: it need not send all their bits.
  const bool in_order = problem.filter_format == FilterFormat::hwio;
  Buffer unordered;
  if (!in_order && plan.cuda()) unordered = Buffer(count * item, "the rounded gradient");
  const bool rounds =
      (in_order || plan.cuda()) && sum->round_to_result(in_order ? result : unordered.data());
  sum_blocks(plan, source, *sum);
  const double* dw = sum->finish();
  if (rounds && in_order) return;
  const auto round_piece = [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kRoundedPiece, n = std::min(kRoundedPiece, count - begin);
    std::byte* destination = static_cast<std::byte*>(result) + begin * item;
    if (rounds) {
      return gather_gradient(problem, problem.out_dtype, unordered.data(), begin, n, destination);
    }
    if (in_order) return round_to(problem.out_dtype, dw + begin, n, destination);
    std::array<double, kRoundedPiece> ordered;
    gather_gradient(problem, DType::f64, dw, begin, n, ordered.data());
    round_to(problem.out_dtype, ordered.data(), n, destination);
  };
  const std::int64_t pieces = ceil_div(count, kRoundedPiece);
  if (pieces > kFewPieces) {
    pool.run(pieces, round_piece);
  } else {
    for (std::int64_t piece = 0; piece < pieces; ++piece) round_piece(piece, 0);
  }
}

void filter_gradient(const WgradProblem& problem, const void* x, const void* dy, void* dw,
                     const GradientOptions& options) {
  filter_gradient(problem, x, dy, dw, plan_options(options));
}

std::vector<double> filter_gradient(const WgradProblem& problem, NpyReader& x, NpyReader& dy,
                                    const GradientOptions& options) {
  x.widen_to(problem.dtype);
  dy.widen_to(problem.dtype);
  PlanOptions planned = plan_options(options);
  planned.source_bytes = problem.dw_count() * 8;  // what is returned
  const Plan plan = plan_for_files(problem, x, dy, planned);
  TaskPool pool(plan.threads);
  NpySource source(x, dy);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  sum_blocks(plan, source, *sum);
  const double* dw = sum->finish();
  return {dw, dw + problem.dw_count()};
}

}  // namespace convgrad
