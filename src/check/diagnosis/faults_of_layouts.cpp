// faults_of_layouts.cpp - see faults.hpp: tensors whose memory is taken for another layout, and
// parts of the image that do not see their neighbours.
#include <algorithm>

#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

// Tells whether memory that is taken for this is read as it is: extents of 1 have no place.
bool changes_nothing(const WgradProblem& pb, Memory memory, bool of_x) {
  const Extents extent = extents_of(pb, of_x);
  if (memory == Memory::h_and_w_swapped) return extent[1] == 1 || extent[2] == 1;
  const bool turns = memory == Memory::other_channel_place || memory == Memory::turned;
  return turns && (channels_of(pb, of_x) == 1 || pixels_of(extent) == 1);
}

// Adds what the memory of input, of out_backprop or of both is taken for, where that has a place.
void add_memory(FaultList& to, Memory memory, const std::string& as, std::int64_t block = 0) {
  for (const auto& [x, dy, which] : {std::tuple{true, false, "input"},
                                     {true, true, "input and out_backprop"},
                                     {false, true, "out_backprop"}}) {
    Reading reading = to.plain;
    bool fits = true;
    for (const bool of_x : {true, false}) {
      if (!(of_x ? x : dy)) continue;
      const std::int64_t channels = channels_of(to.pb, of_x);
      fits = fits && !changes_nothing(to.pb, memory, of_x) &&
             (block == 0 || (channels % block == 0 && channels > block));
      reading.tensor(of_x).memory = memory;
      reading.tensor(of_x).block = block;
    }
    if (!fits) continue;
    const bool rare = block > 0 || memory == Memory::to_chwn;
    to.add("tensor_layout", cat("the memory of ", which, " is ", as),
           rare ? "a layout of a library's own: oneDNN's blocks, or CHWN"
                : "a wrong data format, or a transposition that is missing",
           reading, rare);
  }
}

void add_memories(FaultList& to) {
  const std::string own = data_format_name(to.pb);
  WgradProblem turned = to.pb;
  turned.channels_last = !to.pb.channels_last;
  const std::string other = data_format_name(turned);
  const auto taken = [&](const std::string& name) {
    return cat("taken for ", name, ", not ", own);
  };
  const auto turned_to = [&](const std::string& name) {
    return cat("turned to ", name, " and then taken for ", own);
  };
  add_memory(to, Memory::other_channel_place, taken(other));
  add_memory(to, Memory::turned, turned_to(other));
  add_memory(to, Memory::h_and_w_swapped, "taken with h and w swapped");
  const int rank = to.pb.spatial_rank();
  for (const std::int64_t block : {16, 8, 4, 32}) {
    const std::string name = cat("nC", rank > 2 ? "dhw" : rank > 1 ? "hw" : "w", block, "c");
    add_memory(to, Memory::to_blocked, turned_to(name), block);
    add_memory(to, Memory::blocked, taken(name), block);
  }
  const char* const chwn = rank > 2 ? "CDHWN" : rank > 1 ? "CHWN" : "CWN";
  if (to.pb.N > 1) add_memory(to, Memory::to_chwn, turned_to(chwn));
}

void add_parts(FaultList& to, const Axes& axes, const std::string& what,
               const std::function<std::int64_t(const SpatialAxis&)>& parts) {
  Reading reading = to.plain;
  for (const std::size_t a : axes) {
    reading.parts[a] = parts(to.pb.axis[a]);
    if (reading.parts[a] < 2 || reading.parts[a] > std::min(to.pb.axis[a].in, to.pb.axis[a].out))
      return;
  }
  to.add("halo_missing",
         cat("out_backprop is summed in ", what, " of ", axis_names(axes),
             ", and each takes zeros for what it needs of its neighbours' input"),
         "spatial shards or tiles whose halo is not exchanged", reading, true);
}

// Adds parts of the image that do not see the neighbour's rows of x: slabs, and tiles.
void add_halos(FaultList& to) {
  const auto padded = [](const SpatialAxis& a) {
    return std::min(a.in, a.out) > 1 && (a.taps > 1 || a.stride != 1);
  };
  for (const Axes& axes : subsets(to.pb, padded)) {
    for (const std::int64_t count : {2, 4, 8}) {
      add_parts(to, axes, cat(count, " slabs"), [=](const SpatialAxis&) { return count; });
    }
    for (const std::int64_t tile : {4, 8, 16, 32}) {
      add_parts(to, axes, cat("tiles of ", tile),
                [=](const SpatialAxis& a) { return a.out % tile == 0 ? a.out / tile : 1; });
    }
  }
}

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

void add_faults_of_layouts(FaultList& to) {
  add_memories(to);
  add_halos(to);
}

}  // namespace convgrad::diagnosis
