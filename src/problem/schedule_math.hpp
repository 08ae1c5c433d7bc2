// schedule_math.hpp - the arithmetic of schedule.hpp on plain numbers, for processors and devices.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CONVGRAD_SCHEDULE_FUNCTION __host__ __device__ inline
#else
#define CONVGRAD_SCHEDULE_FUNCTION inline
#endif

namespace convgrad {

// Finds the box with this number among those that split `axis` into `pieces` of `step`, are full in
// the axes inside it and single in those outside.
CONVGRAD_SCHEDULE_FUNCTION void split_box(const std::int64_t extent[4], int axis, std::int64_t step,
                                          std::int64_t pieces, std::int64_t index,
                                          std::int64_t begin[4], std::int64_t end[4]) {
  for (int a = 3; a > axis; --a) {
    begin[a] = 0;
    end[a] = extent[a];
  }
  begin[axis] = index % pieces * step;
  end[axis] = begin[axis] + step < extent[axis] ? begin[axis] + step : extent[axis];
  std::int64_t rest = index / pieces;
  for (int a = axis - 1; a >= 0; --a) {
    begin[a] = rest % extent[a];
    end[a] = begin[a] + 1;
    rest /= extent[a];
  }
}

// Returns the first chunk of a partition. `partitions` of them share the chunks evenly, `unit`
// chunks at a time.
CONVGRAD_SCHEDULE_FUNCTION std::int64_t partition_begin(std::int64_t chunks, std::int64_t unit,
                                                        std::int64_t partitions,
                                                        std::int64_t partition) {
  const std::int64_t units = chunks / unit;
  // Quotient and remainder are multiplied apart, as units * partition could overflow.
  return (units / partitions * partition + units % partitions * partition / partitions) * unit;
}

// Returns the first chunk of a slice: a partition's chunks go to `interleave` slices in turn.
CONVGRAD_SCHEDULE_FUNCTION std::int64_t first_chunk(std::int64_t chunks, std::int64_t unit,
                                                    std::int64_t partitions,
                                                    std::int64_t interleave, std::int64_t slice) {
  return partition_begin(chunks, unit, partitions, slice / interleave) + slice % interleave;
}

// Finds a slice's chunks in [within_begin, within_end): begin, begin + interleave, ... below end.
CONVGRAD_SCHEDULE_FUNCTION void dealt_chunks(std::int64_t chunks, std::int64_t unit,
                                             std::int64_t partitions, std::int64_t interleave,
                                             std::int64_t slice, std::int64_t within_begin,
                                             std::int64_t within_end, std::int64_t& begin,
                                             std::int64_t& end) {
  const std::int64_t stop = partition_begin(chunks, unit, partitions, slice / interleave + 1);
  begin = first_chunk(chunks, unit, partitions, interleave, slice);
  end = stop < within_end ? stop : within_end;
  if (begin < within_begin)
    begin += (within_begin - begin + interleave - 1) / interleave * interleave;
}

}  // namespace convgrad
