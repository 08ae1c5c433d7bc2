// chunk_walker.hpp - the order in which a thread block takes the pixels of its slice: the chunks
// that the slice has in the block, and the slabs of each, as many pixels as one stage of shared
// memory.
//
// The order fixes the bits of the result. It follows from the problem, never from the device.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

struct ChunkWalker {
  const BlockParams& work;
  std::int64_t slice, chunk, end;

  CONVGRAD_HD ChunkWalker(const BlockParams& params, std::int64_t task)
      : work(params), slice(params.slice_of(task)) {
    dealt_chunks(work.chunk_count, work.unit, work.partitions, work.interleave, slice,
                 work.chunk_begin, work.chunk_end, chunk, end);
  }
  CONVGRAD_HD bool done() const { return chunk >= end; }
  CONVGRAD_HD Box box() const { return work.chunks.box(chunk); }
  CONVGRAD_HD void next() { chunk += work.interleave; }
};

// The slab that is loaded next. Loads run ahead of products by some stages, into the next chunk
// too: so this is a walk of its own. Body::slab_count(params, box) says how many a chunk has.
template <class Body>
struct SlabWalker : ChunkWalker {
  const typename Body::Params& params;
  int slab = 0, slabs;

  CONVGRAD_HD SlabWalker(const typename Body::Params& p, const ChunkWalker& first)
      : ChunkWalker(first), params(p), slabs(count()) {}
  CONVGRAD_HD void next() {
    if (++slab < slabs) return;
    ChunkWalker::next();
    slab = 0;
    slabs = count();
  }

 private:
  CONVGRAD_HD int count() const { return done() ? 0 : Body::slab_count(params, box()); }
};

}  // namespace convgrad::cuda
