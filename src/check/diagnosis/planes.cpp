// planes.cpp - see planes.hpp: reads channels as a reading has their memory and their numbers.
#include "check/diagnosis/planes.hpp"

#include <algorithm>
#include <cmath>

#include "engine/kernel.hpp"

namespace convgrad::diagnosis {
namespace {

// Returns the distances between neighbours if the memory of an image is taken for something.
Strides memory_strides(const WgradProblem& pb, Memory memory, std::int64_t channels,
                       const Extents& extent) {
  const bool last = pb.channels_last != (memory == Memory::other_channel_place);
  if (memory != Memory::h_and_w_swapped) return box_strides(last, channels, extent);
  Strides s = box_strides(last, channels, {extent[0], extent[2], extent[1]});
  std::swap(s.spatial[1], s.spatial[2]);
  return s;
}

// Fills planes of some images from the blocks that have what they read.
class Filler {
 public:
  Filler(const WgradProblem& problem, const Plan& plan, const Range& images)
      : pb_(problem), plan_(plan), images_(images) {}

  // Returns the start of what part 0, 1 or 2 of a plane holds for image n: the image itself is part
  // 1, the others stand before and after it.
  std::int64_t start(const Channel& c, std::int64_t n, std::int64_t part) const {
    const std::int64_t other = c.as.beside ? n + part - 1 : n;
    if (c.as.starts.empty() || c.as.beside) {
      return other >= 0 && other < pb_.N ? other * image_of(c) : kNowhere;
    }
    return c.as.starts[static_cast<std::size_t>(n)];
  }

  std::int64_t image_of(const Channel& c) const {
    return pixels_of(extents_of(pb_, c.of_x)) * channels_of(pb_, c.of_x);
  }

  void add_blocks(const Channel& c, std::set<std::int64_t>& blocks) const {
    const std::int64_t image = image_of(c);
    if (c.as.memory == Memory::to_chwn) {
      for (std::int64_t i = 0; i < plan_.schedule.blocks.count; ++i) blocks.insert(i);
    }
    for (std::int64_t n = images_.begin; n < images_.end; ++n) {
      for (std::int64_t p = 0; p < c.parts(); ++p) {
        const std::int64_t begin = start(c, n, p);
        if (begin == kNowhere) continue;
        // An image that begins at a wrong distance lies across two.
        for (const std::int64_t at : {begin / image, (begin + image - 1) / image}) {
          if (at < pb_.N) blocks.insert(at / plan_.schedule.blocks.step);
        }
      }
    }
  }

  template <typename Scalar>
  void fill(const Channel& c, const Block& block, Plane& plane) const {
    const auto* const from = static_cast<const Scalar*>(c.of_x ? block.x : block.dy);
    const Extents extent = extents_of(pb_, c.of_x);
    const Strides s = memory_strides(pb_, c.as.memory, channels_of(pb_, c.of_x), extent);
    const std::int64_t pixels = pixels_of(extents_of(pb_, c.of_x));
    const Range there = {block.pixels[0].begin * s.n, block.pixels[0].end * s.n};
    double* to = plane.data();
    for (std::int64_t i = 0; i < images_.size() * c.parts(); ++i) {
      const std::int64_t n = images_.begin + i / c.parts();
      const std::int64_t begin = start(c, n, i % c.parts()), channel = c.channel;
      const bool beside = begin >= there.end || begin + s.n <= there.begin;
      if (begin == kNowhere || (beside && c.as.memory != Memory::to_chwn)) {
        to += pixels;
        continue;
      }
      std::int64_t at[3];
      for (at[0] = 0; at[0] < extent[0]; ++at[0]) {
        for (at[1] = 0; at[1] < extent[1]; ++at[1]) {
          for (at[2] = 0; at[2] < extent[2]; ++at[2], ++to) {
            std::int64_t place = channel * s.c;
            for (std::size_t a = 0; a < 3; ++a) place += at[a] * s.spatial[a];
            place =
                read_at(c, place, (at[0] * extent[1] + at[1]) * extent[2] + at[2], channel) + begin;
            if (c.as.memory == Memory::to_chwn) {
              place =
                  place % pb_.N * s.n + element(c, place / pb_.N % pixels, place / pb_.N / pixels);
            }
            if (place < there.begin || place >= there.end) continue;
            *to = value_of(c, from + (place - there.begin), channel, n, s.c);
          }
        }
      }
    }
  }

  // Returns the element of an image by its pixel and channel.
  std::int64_t element(const Channel& c, std::int64_t pixel, std::int64_t channel) const {
    return pb_.channels_last ? pixel * channels_of(pb_, c.of_x) + channel
                             : channel * pixels_of(extents_of(pb_, c.of_x)) + pixel;
  }

  // Returns the element of an image that is read for a pixel and channel; own is that of the layout
  // for which the memory is taken.
  std::int64_t read_at(const Channel& c, std::int64_t own, std::int64_t pixel,
                       std::int64_t channel) const {
    const std::int64_t pixels = pixels_of(extents_of(pb_, c.of_x)), each = c.as.block,
                       block = pixels * each;
    switch (c.as.memory) {
      case Memory::turned:  // its columns are where its rows were
        return pb_.channels_last
                   ? own % pixels * channels_of(pb_, c.of_x) + own / pixels
                   : own % channels_of(pb_, c.of_x) * pixels + own / channels_of(pb_, c.of_x);
      case Memory::blocked:
        return (channel / each * pixels + pixel) * each + channel % each;
      case Memory::to_blocked:
        return element(c, own % block / each, own / block * each + own % each);
      default:
        return own;
    }
  }

  // Returns a number as the reading treats it. step leads to the next channel.
  template <typename Scalar>
  double value_of(const Channel& c, const Scalar* at, std::int64_t channel, std::int64_t n,
                  std::int64_t step) const {
    const double value = to_double(*at);
    double scale = c.as.parameter;
    switch (c.as.by) {
      case Scaled::pixel_blocks:  // which takes all pixels
        return value;
      case Scaled::channel_blocks: {
        const std::int64_t first = channel / kScaleBlock * kScaleBlock;
        double most = 0;
        for (std::int64_t i = first; i < std::min(first + kScaleBlock, channels_of(pb_, c.of_x));
             ++i) {
          most = std::max(most, std::fabs(to_double(at[(i - channel) * step])));
        }
        return block_treated(c, value, most);
      }
      case Scaled::channels:
        scale = c.as.scales[static_cast<std::size_t>(channel)];
        break;
      case Scaled::images:
        scale = c.as.scales[static_cast<std::size_t>(n)];
        break;
      default:
        break;
    }
    return treated(c.as.treatment, pb_.dtype, value, scale);
  }

  // Rounds with the power of two that puts the block's largest number below the type's.
  double block_treated(const Channel& c, double value, double most) const {
    if (!(most > 0) || !std::isfinite(most)) return value;
    const double scale = std::ldexp(1.0, std::ilogb(most) - static_cast<int>(c.as.parameter));
    return treated(c.as.treatment, pb_.dtype, value, scale);
  }

  void scale_blocks(const Channel& c, Plane& plane) const {
    for (std::size_t begin = 0; begin < plane.size(); begin += kScaleBlock) {
      const std::size_t end = std::min(begin + kScaleBlock, plane.size());
      double most = 0;
      for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(plane[i]));
      for (std::size_t i = begin; i < end; ++i) plane[i] = block_treated(c, plane[i], most);
    }
  }

  const WgradProblem& pb_;
  const Plan& plan_;
  const Range images_;
};

}  // namespace

void Planes::read(std::int64_t index, const std::set<Channel>& channels) {
  const Block own = source_.load(plan_, index, own_memory_);
  images_ = own.pixels[0];
  planes_.clear();
  const Filler filler(pb_, plan_, images_);
  std::set<std::int64_t> blocks;
  std::vector<std::pair<const Channel*, Plane*>> list;
  for (const Channel& channel : channels) {
    Plane& plane = planes_[channel];
    plane.assign(static_cast<std::size_t>(images_.size() * channel.parts() * size_of(channel)), 0);
    list.emplace_back(&channel, &plane);
    filler.add_blocks(channel, blocks);
  }
  for (const std::int64_t other : blocks) {
    const Block block = other == index ? own : source_.load(plan_, other, other_memory_);
    pool_.run(std::ssize(list), [&](std::int64_t task, int) {
      const auto& each = list[static_cast<std::size_t>(task)];
      with_scalar(pb_.dtype, [&](auto scalar) {
        filler.fill<decltype(scalar)>(*each.first, block, *each.second);
      });
    });
  }
  for (const auto& [channel, plane] : list) {
    if (channel->as.by == Scaled::pixel_blocks) filler.scale_blocks(*channel, *plane);
  }
}

bool same_memory(const WgradProblem& pb, Memory memory, bool of_x) {
  const bool is_order = memory == Memory::other_channel_place || memory == Memory::turned ||
                        memory == Memory::h_and_w_swapped;
  if (!is_order) return false;
  const Extents extent = extents_of(pb, of_x);
  const std::int64_t channels = channels_of(pb, of_x);
  const Strides plain = memory_strides(pb, Memory::as_it_is, channels, extent);
  // Turning changes nothing where taking the memory for the other layout does not.
  const Strides other = memory_strides(
      pb, memory == Memory::turned ? Memory::other_channel_place : memory, channels, extent);
  bool same = channels == 1 || plain.c == other.c;
  for (std::size_t a = 0; a < 3; ++a) {
    same = same && (extent[a] <= 1 || plain.spatial[a] == other.spatial[a]);
  }
  return same;
}

}  // namespace convgrad::diagnosis
