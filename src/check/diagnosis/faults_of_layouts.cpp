// faults_of_layouts.cpp - see faults.hpp: tensors whose memory is taken for another layout, and
// parts of the image that do not see their neighbours.
#include <algorithm>

#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

class LayoutFaults : FaultList {
 public:
  explicit LayoutFaults(const WgradProblem& problem) : FaultList(problem) {}

  std::vector<Fault> take() {
    add_memories();
    add_halos();
    return std::move(list_);
  }

 private:
  // Adds what the memory of input, of out_backprop or of both is taken for, where that has a place.
  void add_memory(Memory memory, std::int64_t block, const std::string& as, const char* cause,
                  bool rare) {
    for (const auto& [x, dy, which] : {std::tuple{true, false, "input"},
                                       {true, true, "input and out_backprop"},
                                       {false, true, "out_backprop"}}) {
      Reading reading = plain_;
      bool fits = true;
      for (const bool of_x : {true, false}) {
        if (!(of_x ? x : dy)) continue;
        const std::int64_t channels = channels_of(pb_, of_x);
        fits = fits && !same_memory(pb_, memory, of_x) &&
               (block == 0 || (channels % block == 0 && channels > block));
        reading.tensor(of_x).memory = memory;
        reading.tensor(of_x).block = block;
      }
      if (!fits) continue;
      add_reading("tensor_layout", cat("the memory of ", which, " is ", as), cause, reading, rare);
    }
  }

  void add_memories() {
    constexpr const char* kFormat = "a wrong data format, or a transposition that is missing";
    constexpr const char* kOwn = "a layout of a library's own: oneDNN's blocks, or CHWN";
    const std::string own = data_format_name(pb_);
    WgradProblem turned = pb_;
    turned.channels_last = !pb_.channels_last;
    const std::string other = data_format_name(turned);
    const auto taken = [&](const std::string& name) {
      return cat("taken for ", name, ", not ", own);
    };
    const auto turned_to = [&](const std::string& name) {
      return cat("turned to ", name, " and then taken for ", own);
    };
    add_memory(Memory::other_channel_place, 0, taken(other), kFormat, false);
    add_memory(Memory::turned, 0, turned_to(other), kFormat, false);
    add_memory(Memory::h_and_w_swapped, 0, "taken with h and w swapped", kFormat, false);
    const int rank = pb_.spatial_rank();
    for (const std::int64_t block : {16, 8, 4, 32}) {
      const std::string name = cat("nC", rank > 2 ? "dhw" : rank > 1 ? "hw" : "w", block, "c");
      add_memory(Memory::to_blocked, block, turned_to(name), kOwn, true);
      add_memory(Memory::blocked, block, taken(name), kOwn, true);
    }
    if (pb_.N < 2) return;
    add_memory(Memory::to_chwn, 0,
               turned_to(rank > 2   ? "CDHWN"
                         : rank > 1 ? "CHWN"
                                    : "CWN"),
               kOwn, true);
  }

  // Adds parts of the image that do not see the neighbour's rows of x: slabs, and tiles.
  void add_halos() {
    const auto padded = [](const SpatialAxis& a) {
      return std::min(a.in, a.out) > 1 && (a.taps > 1 || a.stride != 1);
    };
    for (const Axes& axes : subsets(pb_, padded)) {
      for (const std::int64_t count : {2, 4, 8}) {
        add_parts(axes, cat(count, " slabs"), [=](const SpatialAxis&) { return count; });
      }
      for (const std::int64_t tile : {4, 8, 16, 32}) {
        add_parts(axes, cat("tiles of ", tile),
                  [=](const SpatialAxis& a) { return a.out % tile == 0 ? a.out / tile : 1; });
      }
    }
  }

  void add_parts(const Axes& axes, const std::string& what,
                 const std::function<std::int64_t(const SpatialAxis&)>& parts) {
    Reading reading = plain_;
    for (const std::size_t a : axes) {
      reading.parts[a] = parts(pb_.axis[a]);
      if (reading.parts[a] < 2 || reading.parts[a] > std::min(pb_.axis[a].in, pb_.axis[a].out))
        return;
    }
    add_reading("halo_missing",
                cat("out_backprop is summed in ", what, " of ", axis_names(axes),
                    ", and each takes zeros for what it needs of its neighbours' input"),
                "spatial shards or tiles whose halo is not exchanged", reading, true);
  }
};

}  // namespace

Axes spatial_axes(const WgradProblem& pb) {
  const int rank = pb.spatial_rank();
  return rank > 2 ? Axes{0, 1, 2} : rank > 1 ? Axes{1, 2} : Axes{2};
}

std::vector<Axes> subsets(const WgradProblem& pb,
                          const std::function<bool(const SpatialAxis&)>& useful) {
  std::vector<Axes> result;
  const Axes all = spatial_axes(pb);
  for (std::size_t bits = 1; bits < std::size_t{1} << all.size(); ++bits) {
    Axes axes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((bits >> i & 1) != 0) axes.push_back(all[i]);
    }
    if (std::all_of(axes.begin(), axes.end(), [&](std::size_t a) { return useful(pb.axis[a]); })) {
      result.push_back(axes);
    }
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Axes& a, const Axes& b) { return a.size() < b.size(); });
  return result;
}

std::string axis_names(const Axes& axes) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += cat(i == 0 ? "" : i + 1 < axes.size() ? ", " : " and ", kAxisNames[axes[i]]);
  }
  return text;
}

std::vector<Fault> faults_of_layouts(const WgradProblem& problem) {
  return LayoutFaults(problem).take();
}

}  // namespace convgrad::diagnosis
