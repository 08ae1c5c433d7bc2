// taps_choice.hpp - cuts a problem for cuda_wgmma and cuda_wgmma_bf16x3 (wgmma_taps.hpp): tiles,
// chunks, what of x and dy is in shared memory, and slices.
#pragma once

#include <cstdint>

#include "convgrad/problem.hpp"
#include "cuda/choices.hpp"
#include "cuda/kernels/wgmma_taps.hpp"
#include "problem/schedule.hpp"

namespace convgrad::cuda {

// The variants that are compiled: a panel's input channels, a warpgroup's panels, warpgroups.
enum class TapsKind : std::uint8_t {
  rows64,    // 64 x 3 x 3: three taps of a filter row to each warpgroup; of 16 bits
  rows32,    // 32 x 3 x 3
  panels64,  // 64 x 2 x 2: two panels of channels, or filter rows' taps
  panels32   // 32 x 4 x 2: four filter rows' taps
};

struct TapsChoice {
  TapsKind kind;
  bool folds;            // taps of filter rows are channels: `problem` has one tap along w
  WgradProblem problem;  // as the kernel sees it
  TapsLayout layout;     // but for what with_slices() sets; without stages nothing fits
  ChunkGrid grid;
  std::int64_t tiles;
};

// Chooses by the shape and the dtypes alone what takes the least time in a model of an H100.
TapsChoice taps_choice(const WgradProblem& problem);
// Returns the slices of at least so many chunks that take the least time.
SliceGrid taps_slices(const TapsChoice& choice, std::int64_t least_chunks);

// Completes the layout for these slices.
TapsLayout with_slices(const TapsChoice& choice, const SliceGrid& slices);
// Returns how many of a tile's slices are a cluster of thread blocks where a block of data has all
// of them: all, or eight; 0 if none are.
int cluster_of(const TapsChoice& choice, const SliceGrid& slices);
// Counts the bytes of the partial gradients of these slices.
std::int64_t taps_partial_bytes(const TapsChoice& choice, const SliceGrid& slices);

// Says how it wants the channels of x or dy: all in vectors of 16 bytes, float32 as three terms.
ChannelChoice taps_channels(const WgradProblem& problem, std::int64_t channels);
// Counts the elements of a pixel of x whose channels have taps.
std::int64_t folded_pitch(const TapsChoice& choice);
// Counts what copies of a block take.
std::int64_t taps_packed_bytes(const WgradProblem& problem, std::int64_t x_bytes,
                               std::int64_t dy_bytes);

}  // namespace convgrad::cuda
