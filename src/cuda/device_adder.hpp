// device_adder.hpp - carries a plan out on a device: blocks up, kernels, the tree, dw down.
//
// While a block is copied to one buffer of the device's block memory, kernels work on the other.
// add() returns when its block has been copied. Runtime, besides launch() (launch.hpp):
//   X current();  // makes the device the thread's, as long as X lives
//   void* allocate(bytes); void download(to, from, bytes)  // waits
//   void begin_upload(buffer); void upload(to, from, bytes); void end_upload()  // waits
//   void end_compute(buffer)
//   void copy(to, from, bytes)  // within the device, before kernels that start later
//   double time(start)          // seconds of what start() starts, again and again the same
// begin_upload() lets the copies wait for the kernels that still read that buffer, and
// end_compute() marks the last of these.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/launch.hpp"
#include "engine/block_sum.hpp"
#include "engine/device_kernel.hpp"
#include "engine/kernel.hpp"
#include "engine/region.hpp"

namespace convgrad::cuda {

template <class Runtime>
class DeviceAdder final : public DeviceSum {
 public:
  DeviceAdder(const Plan& plan, Runtime runtime)
      : plan_(plan), cuda_(*plan_.cuda()), runtime_(std::move(runtime)) {
    const auto current = runtime_.current();
    const DeviceMemory& need = cuda_.memory;
    partials_ = runtime_.allocate(std::max<std::int64_t>(need.partials, 8));
    dw_ = runtime_.allocate(need.sums);
    const Schedule& schedule = plan_.schedule;
    const std::int64_t slices = schedule.slices.count();
    // No device has run clusters of several, so the kernel that `auto` takes has none.
    const bool may = slices == 1 || cuda_.kernel->name == "cuda_wgmma_bf16x3";
    if (may && is_wgmma(cuda_.kernel->name) && schedule.blocks.count == 1 &&
        schedule.nodes == std::vector{Range{0, slices}}) {
      cluster_ = cluster_of(taps_choice(plan_.problem), schedule.slices);
    }
    for (std::int64_t buffer = 0; buffer < need.buffers; ++buffer) {
      x_[buffer] = runtime_.allocate(need.x_block);
      dy_[buffer] = runtime_.allocate(need.dy_block);
    }
    if (need.packed > 0) packed_ = runtime_.allocate(need.packed);
  }

  void add(const Block& block, std::int64_t index, const Progress& = {}) override {
    const auto current = runtime_.current();
    const std::int64_t buffer = index % cuda_.memory.buffers;
    const WgradProblem& pb = plan_.problem;
    runtime_.begin_upload(buffer);
    BlockParams work{};
    work.shape = shape_of(pb);
    const std::array<Range, 3> out = {block.pixels[1], block.pixels[2], block.pixels[3]};
    work.x = upload(x_[buffer], cuda_.memory.x_block, block.x, block.x_strides, pb.C,
                    block.pixels[0], block.input);
    work.dy = upload(dy_[buffer], cuda_.memory.dy_block, block.dy, block.dy_strides, pb.K,
                     block.pixels[0], out);
    runtime_.end_upload();
    run_slices(work, plan_.schedule.blocks.chunk_range(index), block.pixels[0]);
    runtime_.end_compute(buffer);
  }

  bool round_to_result(void* result) override {
    const Schedule& schedule = plan_.schedule;
    const bool whole = schedule.chunks.count > 0 && schedule.nodes.size() == 1;
    if (!whole || plan_.problem.dw_count() == 0) return false;
    result_ = result;
    return true;
  }

  double* finish(std::size_t node = 0) override {
    const WgradProblem& pb = plan_.problem;
    const std::int64_t count = pb.dw_count();
    if (result_ != nullptr) {
      const auto current = runtime_.current();
      add_slices(plan_.schedule.nodes[0], pb.out_dtype);
      runtime_.download(result_, dw_, count * dtype_bytes(pb.out_dtype));
      return nullptr;
    }
    if (sums_.size_bytes() == 0) sums_ = Buffer(cuda_.memory.result, "the sums from the device");
    double* const sums = sums_.as<double>() + static_cast<std::int64_t>(node) * count;
    if (plan_.schedule.chunks.count == 0) {
      std::fill_n(sums, count, 0.0);
      return sums;
    }
    const auto current = runtime_.current();
    // Alone, a node's slices have the tree that they are in the whole: parts add up to its bits.
    add_slices(plan_.schedule.nodes[node], DType::f64);
    runtime_.download(sums, dw_, count * 8);
    return sums;
  }

  double time_replay() override {
    if (last_.slices == 0) return 0;
    const auto current = runtime_.current();
    if (copies_.empty()) copy_block();
    const std::size_t runs = std::max(copies_.size(), kReplays);
    const double seconds = runtime_.time([&] {
      for (std::size_t i = 0; i < runs; ++i) replay(copies_[i % copies_.size()]);
    });
    return seconds / static_cast<double>(runs);
  }

 private:
  // So many runs are timed together: an event's clock counts half a microsecond.
  static constexpr std::size_t kReplays = 20;
  // No cache has as much: the H200's has 60 MB, the B200's 126 MB.
  static constexpr std::int64_t kRotatedBytes = std::int64_t{256} << 20;

  // Copies the last block so many times that each copy has left the caches when its turn comes
  // again, or as often as the memory has room for.
  void copy_block() {
    const DeviceMemory& need = cuda_.memory;
    const std::int64_t x = round_up(need.x_block, 256), bytes = x + round_up(need.dy_block, 256);
    const std::int64_t copies = std::clamp<std::int64_t>(
        std::min(ceil_div(kRotatedBytes, bytes), (need.limit - need.total()) / bytes), 0, 1000);
    auto* to = static_cast<std::byte*>(runtime_.allocate(copies * bytes));
    copies_.push_back(last_);
    for (std::int64_t i = 0; i < copies; ++i, to += bytes) {
      BlockWork copy = last_;
      runtime_.copy(to, copy.params.x.data, need.x_block);
      runtime_.copy(to + x, copy.params.dy.data, need.dy_block);
      copy.params.x.data = to;
      copy.params.dy.data = to + x;
      copies_.push_back(copy);
    }
  }

  void replay(const BlockWork& block) {
    if (!cuda_.kernel->is_exact) return launch_of(block).compute_cudnn();
    launch_of(block).run({dw_, plan_.problem.out_dtype, cluster_});
    add_slices({0, plan_.schedule.slices.count()}, plan_.problem.out_dtype);
  }

  BlockLaunch<Runtime> launch_of(const BlockWork& block) {
    return {runtime_, cuda_.kernel->name, plan_.problem, block, packed_};
  }

  // Adds the partial gradients of these slices, or clusters of all, to dw_, rounded to the dtype.
  void add_slices(Range slices, DType dtype) {
    const SliceGrid& all = plan_.schedule.slices;
    if (cluster_ == all.count()) return;
    const auto* const bytes = static_cast<const std::byte*>(partials_);
    const auto add_dense = [&]<typename Acc>(Acc, const std::byte* from, std::int64_t count) {
      launch_tree<DenseSums<Acc>>(runtime_, {plan_.problem.dw_count()}, from, count, dw_, dtype);
    };
    if (!is_wgmma(cuda_.kernel->name)) {
      const auto* const first = bytes + slices.begin * plan_.problem.dw_count() * 8;
      return plan_.problem.dtype == DType::f64 ? add_dense(double{}, first, slices.size())
                                               : add_dense(float{}, first, slices.size());
    }
    const TapsChoice choice = taps_choice(plan_.problem);
    const TapsLayout layout = with_slices(choice, all);
    if (cluster_ > 0)
      return add_dense(double{}, bytes + layout.total_bytes, all.count() / cluster_);
    with_taps_body<Float16>(choice.kind, [&]<class Body>() {
      const auto run = [&]<typename Number>(Number) {
        const std::int64_t first = slices.begin * layout.slice_sums * int{sizeof(Number)};
        launch_tree<TapsSums<Body, Number>>(
            runtime_, {layout, shape_of(choice.problem)},
            bytes + first + (layout.has_totals ? layout.total_bytes : 0), slices.size(), dw_,
            dtype);
      };
      layout.has_totals ? run(double{}) : run(float{});
    });
  }

  // Copies a part of a tensor to the device, where it is dense, in C order. It goes in pieces that
  // are contiguous in the source: a block of whole rows of a dense tensor is one copy.
  View upload(void* to, std::int64_t capacity, const void* from, const Strides& strides,
              std::int64_t channels, Range images, const std::array<Range, 3>& spatial) {
    const WgradProblem& pb = plan_.problem;
    const std::int64_t item = dtype_bytes(pb.dtype);
    Region region(from, item, strides, {images, spatial[0], spatial[1], spatial[2]}, {1, 1, 1, 1},
                  {images.begin, spatial[0].begin, spatial[1].begin, spatial[2].begin},
                  {0, channels});
    if (region.bytes() > capacity) {  // never by choose_blocks(); it would overwrite other memory
      throw Error(ErrorKind::runtime, "a block has ", region.bytes(), " bytes, expected at most ",
                  capacity);
    }
    auto* destination = static_cast<std::byte*>(to);
    for (; !region.done(); region.advance()) {
      runtime_.upload(destination, region.piece(), region.piece_bytes());
      destination += region.piece_bytes();
    }
    View view{};
    for (std::size_t a = 0; a < 3; ++a) {
      view.lo[a] = static_cast<int>(spatial[a].begin);
      view.hi[a] = static_cast<int>(spatial[a].end);
    }
    const Strides dense =
        box_strides(pb, channels, {spatial[0].size(), spatial[1].size(), spatial[2].size()});
    set_dense(view, to, dense, images.begin);
    view.group_stride = channels / pb.groups * dense.c;
    return view;
  }

  // Runs kernels for the slices that have chunks in the block, in one launch from the first to the
  // last, as thread blocks of slices without any end at once.
  void run_slices(BlockParams& work, Range chunks, Range images) {
    const SliceGrid& slices = plan_.schedule.slices;
    set_chunks(work, plan_.schedule.chunks, slices, chunks);
    work.tiles = cuda_.tiles;
    work.dw_count = plan_.problem.dw_count();
    work.partials = partials_;
    std::int64_t first = -1, last = -1;
    for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
      const ChunkRun run = slices.chunks_of(slice, chunks);
      if (run.begin >= run.end) continue;
      if (first < 0) first = slice;
      last = slice;
    }
    if (first < 0) return;
    work.first_slice = first;
    last_ = {work, last - first + 1, images};
    launch_of(last_).run(
        {dw_, result_ != nullptr ? plan_.problem.out_dtype : DType::f64, cluster_});
  }

  const Plan plan_;
  const CudaPlan& cuda_;  // of plan_
  Runtime runtime_;
  void* partials_ = nullptr;
  void* dw_ = nullptr;      // the sums of a node, or dw rounded
  int cluster_ = 0;         // slices that the kernel adds itself, as a block has all
  void* result_ = nullptr;  // of round_to_result()
  void* x_[2] = {};
  void* dy_[2] = {};
  void* packed_ = nullptr;
  Buffer sums_;
  BlockWork last_{};               // that kernels were launched for
  std::vector<BlockWork> copies_;  // of last_, and itself
};

}  // namespace convgrad::cuda
