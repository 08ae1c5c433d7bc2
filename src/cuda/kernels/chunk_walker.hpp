// chunk_walker.hpp - the order in which a thread block takes the pixels of its slice: the chunks
// that the slice has in the block, and the slabs of each, as many pixels as one stage of shared
// memory.
//
// The order fixes the bits of the result. It follows from the problem, never from the device.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

// All threads have the same, each in registers of its own: so there is one division by each axis a
// task, and a chunk takes a few additions to the next.
struct ChunkWalker {
  const BlockParams& work;
  std::int64_t slice;
  int left;   // chunks, `box` included
  Box box{};  // of the present chunk

  CONVGRAD_HD ChunkWalker(const BlockParams& params, std::int64_t task)
      : work(params), slice(params.slice_of(task)), left(0) {
    std::int64_t chunk, end;
    dealt_chunks(work.chunk_count, work.unit, work.partitions, work.interleave, slice,
                 work.chunk_begin, work.chunk_end, chunk, end);
    if (chunk >= end) return;
    left = static_cast<int>(ceil_div(end - chunk, work.interleave));
    box = work.chunks.box(chunk);
  }
  CONVGRAD_HD bool done() const { return left == 0; }
  CONVGRAD_HD void next() {
    --left;
    work.chunks.advance(box, work.apart);
  }
};

// The slab that is loaded next. Loads run ahead of products by some stages, into the next chunk
// too: so this is a walk of its own. Body::slab_count(params, box) says how many a chunk has.
template <class Body>
struct SlabWalker : ChunkWalker {
  const typename Body::Params& params;
  int slab = 0, slabs;

  CONVGRAD_HD SlabWalker(const typename Body::Params& p, const ChunkWalker& first)
      : ChunkWalker(first), params(p), slabs(Body::slab_count(p, box)) {}
  CONVGRAD_HD void next() {
    if (++slab < slabs) return;
    ChunkWalker::next();
    slab = 0;
    slabs = Body::slab_count(params, box);
  }
};

}  // namespace convgrad::cuda
