// planes.cpp - see reading.hpp: reads channels as a reading has their memory and their numbers.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {
namespace {

// Fills the plane of a channel from the blocks that have what it reads.
class Filler {
 public:
  Filler(const WgradProblem& problem, const Range& images, const Channel& channel)
      : pb_(problem),
        images_(images),
        c_(channel),
        extent_(extents_of(problem, channel.of_x)),
        pixels_(pixels_of(extent_)),
        channels_(channels_of(problem, channel.of_x)),
        image_(pixels_ * channels_),
        plane_(static_cast<std::size_t>(images.size() * channel.parts() * pixels_)) {}

  void add_blocks(const Plan& plan, std::set<std::int64_t>& blocks) const {
    if (c_.as.memory == Memory::to_chwn) {
      for (std::int64_t i = 0; i < plan.schedule.blocks.count; ++i) blocks.insert(i);
    }
    for (std::int64_t i = 0; i < images_.size() * c_.parts(); ++i) {
      const std::int64_t begin = start(i);
      if (begin == kNowhere) continue;
      // An image that begins at a wrong distance lies across two.
      for (const std::int64_t at : {begin / image_, (begin + image_ - 1) / image_}) {
        if (at < pb_.N) blocks.insert(at / plan.schedule.blocks.step);
      }
    }
  }

  template <typename Scalar>
  void fill(const Block& block) {
    const auto* const from = static_cast<const Scalar*>(c_.of_x ? block.x : block.dy);
    const Range there = {block.pixels[0].begin * image_, block.pixels[0].end * image_};
    const bool mixed = c_.as.memory == Memory::to_chwn;
    double* to = plane_.data();
    for (std::int64_t i = 0; i < images_.size() * c_.parts(); ++i, to += pixels_) {
      const std::int64_t begin = start(i);
      if (!mixed && (begin >= there.end || begin + image_ <= there.begin)) continue;
      for (std::int64_t pixel = 0; pixel < pixels_; ++pixel) {
        std::int64_t place = begin + read_at(pixel);
        if (mixed) {
          const std::int64_t rest = place / pb_.N;
          place = place % pb_.N * image_ + element(rest % pixels_, rest / pixels_);
        }
        if (place < there.begin || place >= there.end) continue;
        to[pixel] = value_of(from + (place - there.begin), images_.begin + i / c_.parts());
      }
    }
  }

  const Channel& channel() const { return c_; }
  std::vector<double> take() {
    const bool scaled = c_.as.by == Scaled::pixel_blocks;
    for (std::size_t begin = 0; scaled && begin < plane_.size(); begin += kScaleBlock) {
      const std::span block(plane_.data() + begin,
                            std::min<std::size_t>(kScaleBlock, plane_.size() - begin));
      double most = 0;
      for (const double value : block) most = std::max(most, std::fabs(value));
      for (double& value : block) value = block_treated(value, most);
    }
    return std::move(plane_);
  }

 private:
  // Returns the start of what a part of the plane holds: an image, or the one before it, itself and
  // the one after it.
  std::int64_t start(std::int64_t part) const {
    const std::int64_t n = images_.begin + part / c_.parts();
    if (!c_.as.starts.empty()) return c_.as.starts[static_cast<std::size_t>(n)];
    const std::int64_t other = c_.as.beside ? n + part % 3 - 1 : n;
    return other >= 0 && other < pb_.N ? other * image_ : kNowhere;
  }

  // Returns the element of an image by its pixel and channel.
  std::int64_t element(std::int64_t pixel, std::int64_t channel) const {
    return pb_.channels_last ? pixel * channels_ + channel : channel * pixels_ + pixel;
  }

  // Returns the element of an image that is read for a pixel.
  std::int64_t read_at(std::int64_t pixel) const {
    const std::int64_t channel = c_.channel, own = element(pixel, channel);
    const std::int64_t each = c_.as.block, block = pixels_ * each;
    const std::int64_t H = extent_[1], W = extent_[2];
    switch (c_.as.memory) {
      case Memory::other_channel_place:
        return pb_.channels_last ? channel * pixels_ + pixel : pixel * channels_ + channel;
      case Memory::h_and_w_swapped:
        return element((pixel / W / H * W + pixel % W) * H + pixel / W % H, channel);
      case Memory::turned:  // its columns are where its rows were
        return pb_.channels_last ? element(own % pixels_, own / pixels_)
                                 : element(own / channels_, own % channels_);
      case Memory::blocked:
        return (channel / each * pixels_ + pixel) * each + channel % each;
      case Memory::to_blocked:
        return element(own % block / each, own / block * each + own % each);
      default:
        return own;
    }
  }

  // Returns a number of image n as the reading treats it.
  template <typename Scalar>
  double value_of(const Scalar* at, std::int64_t n) const {
    const double value = to_double(*at);
    switch (c_.as.by) {
      case Scaled::pixel_blocks:  // which takes all pixels
        return value;
      case Scaled::channel_blocks: {
        const std::int64_t step = pb_.channels_last ? 1 : pixels_;
        const std::int64_t first = c_.channel / kScaleBlock * kScaleBlock;
        double most = 0;
        for (std::int64_t i = first; i < std::min(first + kScaleBlock, channels_); ++i) {
          most = std::max(most, std::fabs(to_double(at[(i - c_.channel) * step])));
        }
        return block_treated(value, most);
      }
      case Scaled::channels:
        return treated(value, c_.as.scales[static_cast<std::size_t>(c_.channel)]);
      case Scaled::images:
        return treated(value, c_.as.scales[static_cast<std::size_t>(n)]);
      default:
        return treated(value, c_.as.parameter);
    }
  }

  double treated(double value, double scale) const {
    return diagnosis::treated(c_.as.treatment, pb_.dtype, value, scale);
  }
  // Rounds with the power of two that puts the block's largest number below the type's.
  double block_treated(double value, double most) const {
    if (!(most > 0) || !std::isfinite(most)) return value;
    return treated(value, std::ldexp(1.0, std::ilogb(most) - static_cast<int>(c_.as.parameter)));
  }

  const WgradProblem& pb_;
  const Range images_;
  const Channel& c_;
  const Extents extent_;
  const std::int64_t pixels_, channels_, image_;  // image_: elements of one
  std::vector<double> plane_;
};

}  // namespace

Planes read_planes(const Images& images, std::int64_t block, const std::set<Channel>& channels,
                   std::array<BlockMemory, 2>& memory) {
  const auto& [plan, source, pool] = images;
  const Block own = source.load(plan, block, memory[0]);
  Planes planes = {own.pixels[0], {}};
  std::vector<Filler> fillers;
  std::set<std::int64_t> blocks;
  for (const Channel& channel : channels) {
    fillers.emplace_back(plan.problem, planes.images, channel).add_blocks(plan, blocks);
  }
  for (const std::int64_t i : blocks) {
    const Block other = i == block ? own : source.load(plan, i, memory[1]);
    const auto fill = [&](std::int64_t task, auto scalar) {
      fillers[static_cast<std::size_t>(task)].fill<decltype(scalar)>(other);
    };
    run_tasks(pool, plan.problem.dtype, std::ssize(fillers), {}, fill);
  }
  for (Filler& filler : fillers) planes.of[filler.channel()] = filler.take();
  return planes;
}

}  // namespace convgrad::diagnosis
