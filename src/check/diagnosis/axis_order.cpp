// axis_order.cpp - lists the orders that the axes of filters and tensors may have in memory.
#include <algorithm>
#include <map>
#include <set>

#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

using Axis = AxisOrder::Axis;

char lower_case(char letter) { return static_cast<char>(letter - 'A' + 'a'); }

// The orders of FilterFormat, as 2-D filters have them.
constexpr const char* kFormats[] = {"HWIO", "OIHW", "OHWI"};

// Sets the steps of axes that lie in this order.
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

AxisOrder named_order(const std::vector<Axis>& axes, const std::string& name) {
  AxisOrder order = {name, {}, ""};
  for (const char letter : name) {
    order.axes.push_back(*std::ranges::find(axes, letter, &Axis::letter));
  }
  return order;
}

// Spells an order such as "HWIO" in the letters of the problem.
std::string spelled(const WgradProblem& pb, const std::string& hwio) {
  std::string name;
  for (const char letter : hwio) {
    const bool spatial = letter == 'H' || letter == 'W';
    if (spatial && pb.spatial_rank() > 2 && name.find('D') == std::string::npos) name += 'D';
    if (letter == 'H' && pb.spatial_rank() < 2) continue;
    if (pb.op == Op::depthwise && letter == 'I') continue;
    name += letter;
    if (pb.op == Op::depthwise && letter == 'O') name.replace(name.size() - 1, 1, "CM");
  }
  return name;
}

// Returns the order "OIhw16i16o", or "OIhw16o16i", if both channels are whole blocks.
std::optional<AxisOrder> blocked_order(const WgradProblem& pb, const std::vector<Axis>& axes,
                                       std::int64_t block, bool o_inside) {
  const Axis &in = axes[axes.size() - 2], &out = axes.back();
  if (pb.op == Op::depthwise || in.extent % block != 0 || out.extent % block != 0) return {};
  AxisOrder order = {
      "OI",
      {{'O', out.extent / block, out.step * block}, {'I', in.extent / block, in.step * block}},
      ""};
  for (std::size_t a = 0; a + 2 < axes.size(); ++a) {
    order.name += lower_case(axes[a].letter);
    order.axes.push_back(axes[a]);
  }
  for (const bool o : {!o_inside, o_inside}) {
    order.name += cat(block, o ? "o" : "i");
    order.axes.push_back({o ? 'O' : 'I', block, o ? out.step : in.step});
  }
  return order;
}

// Leaves out axes of extent 1, whose place does not matter.
std::string effective(const AxisOrder& order) {
  std::string name;
  for (const Axis& axis : order.axes) {
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
  return named_order(plain_axes(problem), spelled(problem, name));
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

  const std::string own = effective(own_order(problem));
  const auto exchanged = [&](const std::string& name, char a, char b) {
    std::string swapped = own;
    for (char& letter : swapped) letter = letter == a ? b : letter == b ? a : letter;
    return swapped == name && swapped != own;
  };
  std::vector<AxisOrder> orders;
  std::set<std::string> seen = {own};
  for (const std::string& name : names) {
    AxisOrder order = named_order(axes, name);
    const std::string as = effective(order);
    if (!seen.insert(as).second) continue;
    if (exchanged(as, 'I', 'O')) order.exchanged = "C and K";
    if (exchanged(as, 'C', 'M')) order.exchanged = "C and M";
    if (exchanged(as, 'H', 'W')) order.exchanged = "rows and columns of the filter";
    orders.push_back(std::move(order));
  }
  // oneDNN's blocks of channels: [O/b][I/b][h][w], with the block of each innermost.
  for (const std::int64_t block : {16, 8, 4}) {
    for (const bool o_inside : {true, false}) {
      if (auto order = blocked_order(problem, axes, block, o_inside)) {
        orders.push_back(std::move(*order));
      }
    }
  }
  return orders;
}

std::optional<AxisOrder> tensor_order(const WgradProblem& pb, bool of_x, const std::string& letters,
                                      std::int64_t block) {
  const auto& [d, h, w] = extents_of(pb, of_x);
  const std::map<char, std::int64_t> extents = {
      {'N', pb.N}, {'D', d}, {'H', h}, {'W', w}, {'C', channels_of(pb, of_x)}};
  const std::string own = spelled(pb, pb.channels_last ? "NHWC" : "NCHW");
  std::vector<Axis> axes;
  for (const char letter : own) axes.push_back({letter, extents.at(letter), 0});
  axes = with_steps(std::move(axes));
  AxisOrder order = named_order(axes, spelled(pb, letters));
  if (effective(order) == effective(named_order(axes, own)) && block == 0) return {};
  if (block == 0) return order;
  Axis& channels = *std::ranges::find(order.axes, 'C', &Axis::letter);
  if (channels.extent % block != 0 || channels.extent == block) return {};
  const Axis inner = {'C', block, channels.step};
  channels.extent /= block;
  channels.step *= block;
  order.axes.push_back(inner);
  for (char& letter : order.name) letter = letter == 'C' ? 'C' : lower_case(letter);
  order.name += cat(block, "c");
  return order;
}

}  // namespace convgrad::diagnosis
