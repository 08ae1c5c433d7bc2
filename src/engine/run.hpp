// run.hpp - carrying out a plan: blocks of x and dy -> kernel -> partials -> tree.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/buffer.hpp"
#include "convgrad/npy.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// A source may load a block into this memory, which is kept from block to block.
struct BlockMemory {
  Buffer x, dy;
};

// Blocks come from a source. load() is called for block 0, 1, ... once each, by one thread at a
// time, but not always the same one. The block is valid until its memory is loaded again.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual Block load(const Plan& plan, std::int64_t block, BlockMemory& memory) = 0;
  // Is called after the last block. Error(input) says what is wrong with the rest of the data.
  virtual void finish() {}
};

// Copies the boxes of x and dy that blocks are made of.
class BoxSource : public BlockSource {
 public:
  // Copies the elements with begin[i] <= index[i] < end[i] to out, in C order, as
  // NpyReader::read_box does.
  using Read = std::function<void(std::span<const std::int64_t> begin,
                                  std::span<const std::int64_t> end, void* out)>;
  BoxSource(Read x, Read dy) : read_x_(std::move(x)), read_dy_(std::move(dy)) {}
  Block load(const Plan& plan, std::int64_t block, BlockMemory& memory) final;

 private:
  const Read read_x_, read_dy_;
};

// Reads x and dy from two files whose headers the problem was made from. Does not own them.
class NpySource final : public BoxSource {
 public:
  NpySource(NpyReader& x, NpyReader& dy)
      : BoxSource(std::bind_front(&NpyReader::read_box, &x),
                  std::bind_front(&NpyReader::read_box, &dy)),
        x_(x),
        dy_(dy) {}
  void finish() override;

 private:
  NpyReader& x_;
  NpyReader& dy_;
};

// Returns a plan that counts the payloads of streams that must be held in memory, besides the
// sources that the options have.
Plan plan_for_files(const WgradProblem& problem, const NpyReader& x, const NpyReader& dy,
                    const PlanOptions& options);

// Views whole tensors in C order and native byte order, in the problem's dtype and layout, and
// copies nothing.
class MemorySource final : public BlockSource {
 public:
  MemorySource(const void* x, const void* dy) : x_(x), dy_(dy) {}
  Block load(const Plan& plan, std::int64_t block, BlockMemory& memory) override;

 private:
  const void* x_;
  const void* dy_;
};

struct Timing {
  double read_s = 0;     // in the read-ahead thread
  double convert_s = 0;  // there too, so part of read_s: byte order and Fortran order
  double kernel_s = 0;   // in BlockSum::add and finish
  double reference_s = 0;
  double total_s = 0;
};

// Calls use(block, index) for every block in order while the next one is being read. progress,
// if set, is called between blocks with the finished and the total number.
void stream_blocks(const Plan& plan, BlockSource& source,
                   const std::function<void(const Block&, std::int64_t)>& use, Timing& timing,
                   const std::function<void(std::int64_t, std::int64_t)>& progress = {});

Timing sum_blocks(const Plan& plan, BlockSource& source, BlockSum& sum);

// Computes a whole problem from memory. dw is in dw_shape() order, rounded to out_dtype; the caller
// owns it.
void filter_gradient(const WgradProblem& problem, const void* x, const void* dy, void* dw,
                     const PlanOptions& options);

}  // namespace convgrad
