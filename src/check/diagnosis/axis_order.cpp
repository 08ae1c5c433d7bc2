// axis_order.cpp - lists the orders that the axes of filters and tensors may have in memory.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

using Axis = AxisOrder::Axis;

// The orders of FilterFormat, as 2-D filters have them.
constexpr const char* kFormats[] = {"HWIO", "OIHW", "OHWI"};

std::vector<Axis> with_steps(std::vector<Axis> axes) {
  std::int64_t step = 1;
  for (std::size_t i = axes.size(); i-- > 0; step *= axes[i].extent) axes[i].step = step;
  return axes;
}

// Returns the axes in [t][r][s][c][k] order.
std::vector<Axis> plain_axes(const WgradProblem& pb) {
  const std::string_view lower = "trsckm", upper = pb.op == Op::depthwise ? "DHWCOM" : "DHWIOM";
  std::vector<Axis> axes;
  for (const EntryAxis& axis : entry_axes(pb)) {
    axes.push_back({upper[lower.find(axis.letter)], axis.extent, 0});
  }
  return with_steps(std::move(axes));
}

// Reads a name such as "HWIO", or "OIhw16i16o": after a number, a letter is a block of that many of
// its axis. Returns nothing where an axis is not whole blocks.
std::optional<AxisOrder> named_order(const std::vector<Axis>& axes, const std::string& name) {
  AxisOrder order = {name, {}, ""};
  std::int64_t block = 0;
  for (const char each : name) {
    if (each >= '0' && each <= '9') {
      block = 10 * block + (each - '0');
      continue;
    }
    const char letter = each < 'a' ? each : static_cast<char>(each - 'a' + 'A');
    Axis axis = *std::ranges::find(axes, letter, &Axis::letter);
    if (block > 0) {
      Axis& blocks = *std::ranges::find(order.axes, letter, &Axis::letter);
      if (blocks.extent % block != 0) return {};
      blocks.extent /= block;
      for (Axis& outer : order.axes) outer.step *= outer.letter == letter ? block : 1;
      axis.extent = std::exchange(block, 0);
    }
    order.axes.push_back(axis);
  }
  return order;
}

// Spells an order such as "HWIO" in the letters of the problem.
std::string spelled(const WgradProblem& pb, const std::string& hwio) {
  std::string name;
  for (const char letter : hwio) {
    const bool h = letter == 'H' || letter == 'h', w = letter == 'W' || letter == 'w';
    if ((h || w) && pb.spatial_rank() > 2 && name.find_first_of("Dd") == std::string::npos) {
      name += letter < 'a' ? 'D' : 'd';
    }
    if (h && pb.spatial_rank() < 2) continue;
    if (pb.op == Op::depthwise && letter == 'I') continue;
    name += letter;
    if (pb.op == Op::depthwise && letter == 'O') name.replace(name.size() - 1, 1, "CM");
  }
  return name;
}

// Leaves out axes of extent 1, whose place does not matter.
std::string effective(const std::vector<Axis>& axes) {
  std::string name;
  for (const Axis& axis : axes) {
    if (axis.extent > 1) name += axis.letter;
  }
  return name;
}

}  // namespace

std::int64_t AxisOrder::index(std::int64_t position) const {
  std::int64_t result = 0;
  for (std::size_t i = axes.size(); i-- > 0;) {
    result += position % axes[i].extent * axes[i].step;
    position /= axes[i].extent;
  }
  return result;
}

std::int64_t AxisOrder::position(std::int64_t index) const {
  std::int64_t result = 0;
  for (const Axis& axis : axes) result = result * axis.extent + index / axis.step % axis.extent;
  return result;
}

AxisOrder own_order(const WgradProblem& problem) {
  const char* const name = kFormats[static_cast<std::size_t>(problem.filter_format)];
  return *named_order(plain_axes(problem), spelled(problem, name));
}

std::vector<AxisOrder> other_orders(const WgradProblem& problem) {
  const std::vector<Axis> axes = plain_axes(problem);
  std::vector<std::string> names;
  for (const char* usual : kFormats) names.push_back(spelled(problem, usual));
  for (const char* usual : {"HWOI", "IOHW", "IHWO", "WHIO"}) {  // depthwise: M in front of C
    std::string name = spelled(problem, usual);
    if (problem.op == Op::depthwise) std::swap(name[name.find('C')], name[name.find('M')]);
    names.push_back(name);
  }
  std::string letters = own_order(problem).name;
  std::sort(letters.begin(), letters.end());
  // All permutations follow; one that equals a usual order keeps the usual name.
  do {
    names.push_back(letters);
  } while (std::next_permutation(letters.begin(), letters.end()));

  const std::string own = effective(own_order(problem).axes);
  const auto exchanged = [&](const std::string& name, char a, char b) {
    std::string swapped = own;
    for (char& letter : swapped) letter = letter == a ? b : letter == b ? a : letter;
    return swapped == name && swapped != own;
  };
  std::vector<AxisOrder> orders;
  std::set<std::string> seen = {own};
  for (const std::string& name : names) {
    AxisOrder order = *named_order(axes, name);
    const std::string as = effective(order.axes);
    if (!seen.insert(as).second) continue;
    if (exchanged(as, 'I', 'O')) order.exchanged = "C and K";
    if (exchanged(as, 'C', 'M')) order.exchanged = "C and M";
    if (exchanged(as, 'H', 'W')) order.exchanged = "rows and columns of the filter";
    orders.push_back(std::move(order));
  }
  // oneDNN's blocks of channels: [O/b][I/b][h][w], with the block of each innermost.
  if (problem.op == Op::depthwise) return orders;
  for (const char* const blocks :
       {"16i16o", "16o16i", "8i8o", "8o8i", "4i4o", "4o4i", "8i16o2i", "4i16o4i"}) {
    const std::string name = spelled(problem, cat("OIhw", blocks));
    if (auto order = named_order(axes, name)) orders.push_back(std::move(*order));
  }
  return orders;
}

std::optional<AxisOrder> tensor_order(const WgradProblem& pb, bool of_x, const std::string& name) {
  const auto& [d, h, w] = extents_of(pb, of_x);
  const std::map<char, std::int64_t> extents = {
      {'N', pb.N}, {'D', d}, {'H', h}, {'W', w}, {'C', channels_of(pb, of_x)}};
  std::vector<Axis> axes;
  for (const char letter : spelled(pb, pb.channels_last ? "NHWC" : "NCHW")) {
    axes.push_back({letter, extents.at(letter), 0});
  }
  axes = with_steps(std::move(axes));
  auto order = named_order(axes, spelled(pb, name));
  // What has one block of all channels is named without it.
  const bool one = order && order->axes.size() > axes.size() && order->axes[1].extent == 1;
  return one || (order && effective(order->axes) == effective(axes)) ? std::nullopt : order;
}

}  // namespace convgrad::diagnosis
