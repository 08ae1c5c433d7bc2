// schedule_math.hpp - the arithmetic of schedule.hpp on plain numbers, for processors and devices.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CONVGRAD_SCHEDULE_FUNCTION __host__ __device__ inline
#else
#define CONVGRAD_SCHEDULE_FUNCTION inline
#endif

namespace convgrad {

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
