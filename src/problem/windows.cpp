// windows.cpp - strides, dilations and padding, and the output extents that follow from them.
#include <algorithm>

#include "base/integers.hpp"
#include "problem/draft.hpp"

namespace convgrad::making {
namespace {

constexpr const char* kPaddings[] = {"SAME", "VALID", "EXPLICIT"};

void read_vector(Draft& draft, const std::string& flag, const std::vector<std::int64_t>& values,
                 std::int64_t SpatialAxis::*field) {
  if (values.empty()) return;
  const std::size_t rank = draft.rank();
  const bool full = values.size() == rank + 2;
  if (values.size() != 1 && values.size() != rank && !full) {
    bad_input(flag, ": ", counted(values.size(), "number"), " ", bracketed(values), ", expected 1",
              rank > 1 ? cat(", ", rank) : "", " or ", rank + 2, " (",
              data_format_name(draft.problem), ") for ", op_name(draft.problem.op));
  }
  if (full && (values[0] != 1 || values[draft.channel_position()] != 1)) {
    bad_input(flag, ": ", bracketed(values), " in ", data_format_name(draft.problem),
              " order, expected 1 for the batch and channel axes");
  }
  for (std::size_t a = draft.first(); a < 3; ++a) {
    const std::int64_t value = full                 ? values[draft.position(a)]
                               : values.size() == 1 ? values[0]
                                                    : values[a - draft.first()];
    check_range(cat(flag, ": ", kAxisNames[a].in), value, 1);
    draft.problem.axis[a].*field = value;
  }
}

// (before, after) pairs. Only where one number may stand for both is one of an axis legal.
std::vector<std::int64_t> padding_pairs(const WgradAttributes& given, std::size_t rank) {
  if (!given.explicit_one_for_both || given.explicit_paddings.size() != rank) {
    return given.explicit_paddings;
  }
  std::vector<std::int64_t> pairs;
  for (const std::int64_t both : given.explicit_paddings) pairs.insert(pairs.end(), 2, both);
  return pairs;
}

void read_explicit_paddings(Draft& draft) {
  const std::string& flag = draft.attributes.explicit_paddings_name;
  const std::vector<std::int64_t> pads = padding_pairs(draft.attributes, draft.rank());
  const std::size_t spatial = 2 * draft.rank(), all = spatial + 4;
  if (pads.empty()) {
    misuse(flag, " is missing, expected ", spatial,
           " numbers (before,after for each spatial axis) with --padding EXPLICIT");
  }
  const bool full = pads.size() == all;
  if (pads.size() != 1 && pads.size() != spatial && !full) {
    bad_input(
        flag, ": ", counted(pads.size(), "number"), ", expected ", all,
        " (before,after for each axis of ", data_format_name(draft.problem), ") or ", spatial,
        " (spatial axes)",
        draft.attributes.explicit_one_for_both ? ", or one for each spatial axis, or one" : "");
  }
  for (std::size_t i = 0; i < pads.size(); ++i) {
    check_range(cat(flag, "[", i, "]"), pads[i], 0);
  }
  for (const std::size_t at : {std::size_t{0}, draft.channel_position()}) {
    if (!full || (pads[2 * at] == 0 && pads[2 * at + 1] == 0)) continue;
    bad_input(flag, ": ", bracketed(pads), ", expected 0,0 for the batch and channel axes");
  }
  for (std::size_t a = draft.first(); a < 3; ++a) {
    const std::size_t at = full ? draft.position(a) : a - draft.first();
    draft.problem.axis[a].pad_before = pads.size() == 1 ? pads[0] : pads[2 * at];
    draft.problem.axis[a].pad_after = pads.size() == 1 ? pads[0] : pads[2 * at + 1];
  }
}

Padding read_padding(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  Padding padding = Padding::explicit_pads;
  if (!given.padding.empty()) {
    padding = static_cast<Padding>(choose("--padding", given.padding, kPaddings));
  } else if (given.explicit_paddings.empty()) {
    misuse("--padding is missing, expected SAME, VALID, EXPLICIT or numbers");
  }
  if (padding == Padding::explicit_pads) {
    read_explicit_paddings(draft);
  } else if (!given.explicit_paddings.empty()) {
    misuse("--explicit-paddings: given with --padding ", upper(given.padding),
           ", expected only with EXPLICIT");
  }
  return padding;
}

std::int64_t reach_of(const SpatialAxis& axis, const std::string& what) {
  return checked_add(checked_mul(axis.taps - 1, axis.dilation, what), 1, what);
}

void set_out_extent(Draft& draft, std::size_t a, Padding padding) {
  SpatialAxis& axis = draft.problem.axis[a];
  const AxisNames& names = kAxisNames[a];
  const std::string what = cat(names.taps, ", dilation and stride along ", names.in);
  if (padding == Padding::same) return pad_same(axis, what);
  const std::int64_t reach = reach_of(axis, what);
  const std::int64_t padded =
      checked_add(checked_add(axis.in, axis.pad_before, what), axis.pad_after, what);
  const std::int64_t room = padded - reach;
  // floor(room / stride) + 1: one pixel short of a tap is an empty output, less is an error.
  const std::int64_t steps = room >= 0 ? room / axis.stride : -((-room - 1) / axis.stride) - 1;
  if (steps < -1) {
    bad_input(draft.x.name, ": ", names.in, " is ", axis.in, " with padding ", axis.pad_before, ",",
              axis.pad_after, ", but the filter reaches over ", reach, " (", names.taps, "=",
              axis.taps, ", dilation ", axis.dilation, ")",
              Hint("use a smaller filter or more padding"));
  }
  axis.out = steps + 1;
}

}  // namespace

void pad_same(SpatialAxis& axis, const std::string& what) {
  const std::int64_t reach = reach_of(axis, what);
  axis.out = ceil_div(axis.in, axis.stride);
  // (out-1)*stride < in, so only the sum can overflow. No output, no padding.
  const std::int64_t last = axis.out > 0 ? (axis.out - 1) * axis.stride : 0;
  const std::int64_t total =
      axis.out > 0 ? std::max<std::int64_t>(checked_add(last, reach, what) - axis.in, 0) : 0;
  axis.pad_before = total / 2;
  axis.pad_after = total - total / 2;
}

void read_windows(Draft& draft) {
  read_vector(draft, "--strides", draft.attributes.strides, &SpatialAxis::stride);
  read_vector(draft, "--dilations", draft.attributes.dilations, &SpatialAxis::dilation);
  const Padding padding = read_padding(draft);
  for (std::size_t a = draft.first(); a < 3; ++a) set_out_extent(draft, a, padding);
}

}  // namespace convgrad::making
