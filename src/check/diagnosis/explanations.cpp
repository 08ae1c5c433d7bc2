// explanations.cpp - see explanations.hpp. Each add_ function is one kind of fault.
#include "check/diagnosis/explanations.hpp"

#include <algorithm>

#include "check/diagnosis/filter_order.hpp"

namespace convgrad::diagnosis {
namespace {

using Axes = std::vector<std::size_t>;
using Change = std::function<void(SpatialAxis&)>;

constexpr const char* kAxis[] = {"d", "h", "w"};

// The spatial axes of the op: 1 and 2, with 0 in front in 3-D.
Axes spatial_axes(const WgradProblem& pb) {
  return pb.op == Op::conv3d ? Axes{0, 1, 2} : Axes{1, 2};
}

// Every set of axes that hold `useful`: single ones first.
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

// "h and w".
std::string axis_names(const Axes& axes) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += cat(i == 0 ? "" : i + 1 < axes.size() ? ", " : " and ", kAxis[axes[i]]);
  }
  return text;
}

// "1,2": one field of some axes.
std::string values_text(const Reading& reading, const Axes& axes,
                        std::int64_t SpatialAxis::*field) {
  std::string text;
  for (const std::size_t a : axes) text += cat(text.empty() ? "" : ",", reading.axis[a].*field);
  return text;
}

class ExplanationList {
 public:
  explicit ExplanationList(const WgradProblem& problem)
      : pb_(problem), plain_(plain_reading(problem)) {}

  std::vector<Explanation> take() {
    add_flips();
    add_filter_orders();
    add_strides_and_dilations();
    add_paddings();
    add_memory();
    add_groups();
    add_left_out();
    add_roundings();
    return std::move(list_);
  }

 private:
  void add_moved(const std::string& fault, const std::string& text, Explanation::Map moved) {
    list_.push_back({fault, text, plain_, std::move(moved)});
  }

  // Nothing if the reading is the problem's own or stands in the list already.
  void add_reading(const std::string& fault, const std::string& text, const Reading& reading) {
    const auto same = [&](const Explanation& e) { return e.reading == reading; };
    if (reading == plain_ || std::any_of(list_.begin(), list_.end(), same)) return;
    list_.push_back({fault, text, reading});
  }

  Reading changed(const Axes& axes, const Change& change) const {
    Reading reading = plain_;
    for (const std::size_t a : axes) change(reading.axis[a]);
    return reading;
  }

  // The padding before that SAME would take with the axis's stride and dilation.
  static void pad_same(SpatialAxis& axis) {
    const std::int64_t reach = (axis.taps - 1) * axis.dilation + 1;
    axis.pad_before = std::max<std::int64_t>((axis.out - 1) * axis.stride + reach - axis.in, 0) / 2;
  }

  // With the padding as it is, and as SAME would follow the changed axis.
  void add_with_padding(const std::string& fault, const std::string& text, const Axes& axes,
                        const Change& change) {
    add_reading(fault, text, changed(axes, change));
    const auto with_same = [&](SpatialAxis& axis) {
      change(axis);
      pad_same(axis);
    };
    add_reading(fault, text + ", and padding SAME follows that", changed(axes, with_same));
  }

  void add_flips() {
    for (const Axes& axes : subsets(pb_, [](const SpatialAxis& a) { return a.taps > 1; })) {
      const WgradProblem& pb = pb_;
      add_moved("filter_flipped", cat("the filter is flipped in ", axis_names(axes)),
                [pb, axes](std::int64_t index) {
                  const std::int64_t cells = pb.group_c() * pb.K;
                  std::int64_t rest = index / cells, step = 1, flipped = 0;
                  for (std::size_t a = 3; a-- > 0;) {
                    const std::int64_t taps = pb.axis[a].taps, tap = rest % taps;
                    const bool turns = std::find(axes.begin(), axes.end(), a) != axes.end();
                    flipped += (turns ? taps - 1 - tap : tap) * step;
                    rest /= taps;
                    step *= taps;
                  }
                  return flipped * cells + index % cells;
                });
    }
  }

  void add_filter_orders() {
    const FilterOrder own = own_order(pb_);
    for (const FilterOrder& order : other_orders(pb_)) {
      add_moved("filter_order",
                cat("its elements are taken in ", order.name, " order, not in ", own.name),
                [own, order](std::int64_t index) { return order.index(own.position(index)); });
    }
  }

  void add_memory() {
    const std::string own = data_format_name(pb_);
    WgradProblem turned = pb_;
    turned.channels_last = !pb_.channels_last;
    const std::string other = data_format_name(turned);
    for (const auto& [memory, as] :
         {std::pair{Memory::other_channel_place, cat("taken for ", other, ", not ", own)},
          {Memory::turned, cat("turned to ", other, " and then taken for ", own)},
          {Memory::h_and_w_swapped, std::string("taken with h and w swapped")}}) {
      const bool x = !same_memory(pb_, memory, true), dy = !same_memory(pb_, memory, false);
      Reading reading = plain_;
      if (x) {
        reading.x = memory;
        add_reading("tensor_layout", cat("the memory of input is ", as), reading);
      }
      if (dy) {
        reading.dy = memory;
        if (x) {
          add_reading("tensor_layout", cat("the memory of input and out_backprop is ", as),
                      reading);
        }
        reading.x = Memory::as_it_is;
        add_reading("tensor_layout", cat("the memory of out_backprop is ", as), reading);
      }
    }
  }

  // "before h is 2, not 1".
  std::string before(const Axes& axes, const Reading& reading) const {
    return cat("before ", axis_names(axes), " is ",
               values_text(reading, axes, &SpatialAxis::pad_before), ", not ",
               values_text(plain_, axes, &SpatialAxis::pad_before));
  }

  void add_padding(const std::string& fault, const std::string& why, const Axes& axes,
                   const Change& change) {
    const Reading reading = changed(axes, change);
    add_reading(fault, cat(why, "the padding ", before(axes, reading)), reading);
  }

  void add_paddings() {
    const auto uneven = [](const SpatialAxis& a) { return a.pad_before != a.pad_after; };
    std::vector<Axes> sets = subsets(pb_, uneven);
    std::reverse(sets.begin(), sets.end());  // all of them is the likeliest
    for (const Axes& axes : sets) {
      add_padding("padding_swapped", "the padding after is put before: ", axes,
                  [](SpatialAxis& a) { a.pad_before = a.pad_after; });
    }
    const auto padded = [](const SpatialAxis& a) { return a.pad_before > 0; };
    sets = subsets(pb_, padded);
    if (!sets.empty()) {
      add_padding("padding_ignored", "the padding is ignored: ", sets.back(),
                  [](SpatialAxis& a) { a.pad_before = 0; });
    }
    const auto wide = [](const SpatialAxis& a) { return a.in > 1 || a.taps > 1; };
    for (const Axes& axes : subsets(pb_, wide)) {
      for (const int step : {1, -1}) {
        add_padding("padding_off_by_one", "", axes,
                    [step](SpatialAxis& a) { a.pad_before += step; });
      }
    }
    add_swapped("padding", &SpatialAxis::pad_before);
  }

  // One field of h and w, each in the other's place.
  void add_swapped(const std::string& what, std::int64_t SpatialAxis::*field) {
    Reading reading = plain_;
    std::swap(reading.axis[1].*field, reading.axis[2].*field);
    add_reading("attribute_order", cat("the ", what, " of h and w are swapped"), reading);
  }

  void add_strides_and_dilations() {
    const Axes all = spatial_axes(pb_);
    add_with_padding("stride_dilation_swapped", "strides and dilations are swapped", all,
                     [](SpatialAxis& a) { std::swap(a.stride, a.dilation); });
    add_with_padding("dilations_ignored", "the dilations are ignored", all,
                     [](SpatialAxis& a) { a.dilation = 1; });
    add_with_padding("strides_ignored", "the strides are ignored", all,
                     [](SpatialAxis& a) { a.stride = 1; });
    add_swapped("strides", &SpatialAxis::stride);
    add_swapped("dilations", &SpatialAxis::dilation);
  }

  // Ways to number count channels that lie in groups.
  struct Numbering {
    const char* text;
    Explanation::Map map;
  };
  static std::vector<Numbering> numberings(std::int64_t groups, std::int64_t count) {
    const std::int64_t each = count / groups;
    return {{"in reverse order",
             [=](std::int64_t i) { return (groups - 1 - i / each) * each + i % each; }},
            {"shifted by one", [=](std::int64_t i) { return (i + each) % count; }},
            {"shifted by one the other way",
             [=](std::int64_t i) { return (i + count - each) % count; }},
            {"interleaved: channel j*groups + g is taken for channel j of group g",
             [=](std::int64_t i) { return i % each * groups + i / each; }},
            {"interleaved the other way",
             [=](std::int64_t i) { return i % groups * each + i / groups; }}};
  }

  void add_groups() {
    if (pb_.groups == 1) return;
    const WgradProblem& pb = pb_;
    for (const Numbering& n : numberings(pb_.groups, pb_.K)) {
      add_moved("group_order", cat("its groups are ", n.text),
                [pb, map = n.map](std::int64_t index) {
                  return index / pb.K * pb.K + map(index % pb.K);
                });
    }
    const std::vector<Numbering> x = numberings(pb_.groups, pb_.C);
    const std::vector<Numbering> dy = numberings(pb_.groups, pb_.K);
    for (const Numbering& n : x) {
      list_.push_back(
          {"group_order", cat("the groups of input are ", n.text), plain_, nullptr, n.map});
    }
    for (std::size_t i = 0; i < dy.size(); ++i) {
      list_.push_back({"group_order", cat("the groups of out_backprop are ", dy[i].text), plain_,
                       nullptr, nullptr, dy[i].map});
      list_.push_back({"group_order", cat("the groups of input and out_backprop are ", dy[i].text),
                       plain_, nullptr, x[i].map, dy[i].map});
    }
  }

  void add_left_out() {
    constexpr const char* kLines[] = {"plane", "row", "column"};
    for (const std::size_t a : spatial_axes(pb_)) {
      if (pb_.axis[a].out < 2) continue;
      for (const bool last : {true, false}) {
        Reading reading = plain_;
        last ? --reading.out[a].end : ++reading.out[a].begin;
        add_reading(
            "line_left_out",
            cat("the ", last ? "last " : "first ", kLines[a], " of out_backprop is left out"),
            reading);
      }
    }
  }

  void add_roundings() {
    const auto add = [&](Rounding rounding, const char* what) {
      Reading reading = plain_;
      reading.rounding = rounding;
      add_reading("input_precision", cat("x and dy are ", what, " before they are multiplied"),
                  reading);
    };
    const bool wide = pb_.dtype == DType::f32 || pb_.dtype == DType::f64;
    if (pb_.dtype == DType::f64) add(Rounding::f32, "rounded to float32");
    if (wide) {
      add(Rounding::tf32, "rounded to TF32");
      add(Rounding::tf32_cut, "cut off to TF32");
      add(Rounding::f16, "rounded to float16");
    }
    if (pb_.dtype != DType::bf16) add(Rounding::bf16, "rounded to bfloat16");
  }

  const WgradProblem& pb_;
  const Reading plain_;
  std::vector<Explanation> list_;
};

}  // namespace

bool Explanation::moves_only(const WgradProblem& problem) const {
  return !x_channel && !dy_channel && reading == plain_reading(problem);
}

EntryTerms Explanation::terms(const WgradProblem& problem, std::int64_t index) const {
  EntryTerms result = entry_terms(problem, moved ? moved(index) : index);
  if (x_channel) result.x_channel = x_channel(result.x_channel);
  if (dy_channel) result.dy_channel = dy_channel(result.dy_channel);
  return result;
}

std::vector<Explanation> explanations(const WgradProblem& problem) {
  return ExplanationList(problem).take();
}

}  // namespace convgrad::diagnosis
