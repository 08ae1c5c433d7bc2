// depthwise_choice.hpp - chooses the chunks, panels and steps of depthwise.hpp, by the shape alone.
#pragma once

#include "cuda/choices.hpp"
#include "cuda/kernels/depthwise.hpp"

namespace convgrad::cuda {

struct DepthwiseChoice {
  int r, s, c, wide;  // taps and input channels of a tile; output channels of a lane
  int r_tiles, s_tiles, c_tiles, k_tiles;
  DeviceTiles tiles;
  LineLayout layout;
};
DepthwiseChoice depthwise_choice(const WgradProblem& problem);

// How it wants the channels of x and dy: pixels are whole vectors.
ChannelChoices depthwise_channels(const WgradProblem& problem);

// Chunks are as long as the accuracy of the dtype lets them be, unless shorter ones, which are more
// thread blocks, take less time on a device of 132 multiprocessors.
ChunkGrid depthwise_chunks(const WgradProblem& problem);

// Makes rings as small as devices without asynchronous copies have memory for: no bit changes.
void copy_none_ahead(LineLayout& layout);

// Tells whether each line is a box of x or dy (bulk.hpp), in which nobody looks at other chunks'.
bool lines_are_boxes(const LineLayout& layout, const BlockParams& work, int item_bytes);
int log_copiers(const LineLayout& layout);

}  // namespace convgrad::cuda
