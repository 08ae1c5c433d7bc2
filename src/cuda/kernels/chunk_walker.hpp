// chunk_walker.hpp - walks through the chunks that a slice has in the block, in the order in which
// a thread block takes them.
//
// The order fixes the bits of the result. It follows from the problem, never from the device.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

struct ChunkWalker {
  const BlockParams& work;
  std::int64_t slice, chunk;
  int left;  // chunks, the present one included

  CONVGRAD_HD ChunkWalker(const BlockParams& params, std::int64_t task)
      : work(params), slice(params.slice_of(task)), left(0) {
    std::int64_t end;
    dealt_chunks(work.chunk_count, work.unit, work.partitions, work.interleave, slice,
                 work.chunk_begin, work.chunk_end, chunk, end);
    if (chunk < end) left = static_cast<int>(ceil_div(end - chunk, work.interleave));
  }
  CONVGRAD_HD bool done() const { return left == 0; }
  CONVGRAD_HD void next() {
    --left;
    chunk += work.interleave;
  }
  CONVGRAD_HD Box box() const { return work.chunks.box(chunk); }
};

}  // namespace convgrad::cuda
