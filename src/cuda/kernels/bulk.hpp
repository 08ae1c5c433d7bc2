// bulk.hpp - bulk tensor copies (compute capability 9.0; PTX ISA, "cp.async.bulk.tensor"): a box of
// up to five dimensions of a tensor in device memory goes to shared memory without a thread's help:
// one thread starts it, no registers hold addresses, and the hardware fills in zeros at the edges.
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

// Rows in shared memory are of 128 bytes, whose 16-byte pieces are exchanged ("128-byte swizzle"):
// piece i of row r is at place i ^ (r % 8). So the pieces of the same channels in eight rows are in
// all 32 banks, where they would be in the same four. Rows of 64 bytes have a swizzle of their own,
// to the same end. Both are functions of the address, and repeat every kSwizzleBytes.
inline constexpr int kRowBytes = 128, kSwizzleBytes = 1024;

// Returns where the byte at this offset from a multiple of kSwizzleBytes is with it.
CONVGRAD_HD constexpr std::uint32_t swizzled(std::uint32_t offset, int row_bytes) {
  return offset ^ (offset >> 7 & (row_bytes == kRowBytes ? 7u : 3u)) << 4;
}

// Describes a tensor and the box that each copy takes of it: box[i] of every step-th element along
// dimension i, of which 0 is contiguous. What of a box lies outside the tensor is zero in shared
// memory, where a copy is [box[4]]...[box[0]], at a multiple of kBulkAlignment. Swizzled, box[0]
// elements are 128 or 64 bytes; else any multiple of 16, as where a box begins.
struct BulkMap {
  const void* data;        // at a multiple of 16 bytes
  std::int64_t extent[5];  // 1 to 2^32
  std::int64_t stride[5];  // in elements; all but the first are multiples of 16 bytes
  int box[5];
  int step[5];     // 1 to kMaxBulkStep
  int item_bytes;  // 2, 4 or 8
  bool swizzles;
};
inline constexpr int kBulkAlignment = 128;
// Of elementStrides and boxDim (CUDA Driver API, "Tensor Map Object Management").
inline constexpr int kMaxBulkStep = 8;
inline constexpr int kMaxBulkBox = 256;  // box * step is at most that

// Is a BulkMap as the device reads it (CUtensorMap), by Runtime::bulk_tensor().
struct BulkTensor {
  alignas(128) unsigned char bytes[128];
};

// Counts in shared memory the bytes of the copies that it was told to expect ("mbarrier").
struct BulkBarrier {
  alignas(8) std::uint64_t state;
};

}  // namespace convgrad::cuda
