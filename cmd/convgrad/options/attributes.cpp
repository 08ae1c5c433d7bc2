// attributes.cpp - see attributes.hpp.
#include "options/attributes.hpp"

#include "convgrad/npy.hpp"
#include "files/tensor_name.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

void read_filter_sizes(const Words& words, WgradAttributes& attributes) {
  if (!is_file_name(words)) {
    attributes.filter_sizes = parse_numbers("--filter-sizes", words);
    return;
  }
  if (looks_like_a_flag(words[0])) {
    misuse("--filter-sizes: its value is missing, found '", words[0], "'");
  }
  attributes.filter_sizes = read_npy_integers(words[0]);
  attributes.filter_sizes_name = cat("--filter-sizes (", words[0], ")");
  if (attributes.filter_sizes.empty()) {
    bad_input(attributes.filter_sizes_name, ": empty, expected 4 or 5 ", "integers");
  }
}

}  // namespace

WgradAttributes attributes_of(const ProblemOptions& o) {
  WgradAttributes a;
  a.op = o.op;
  read_filter_sizes(o.filter_sizes, a);
  a.kernel = parse_numbers("--kernel", o.kernel);
  if (!o.filter_like.empty()) {
    NpyReader filter(o.filter_like);
    a.filter_like = filter.header().shape;
    filter.finish();  // its checksum, if it has one, speaks for the header too
    a.filter_like_name = cat("--filter-like (", o.filter_like, ")");
    if (a.filter_like.empty()) {
      bad_input(a.filter_like_name, ": no axes, expected 4 or 5");
    }
  }
  a.strides = parse_numbers("--strides", o.strides);
  a.dilations = parse_numbers("--dilations", o.dilations);
  a.explicit_paddings = parse_numbers("--explicit-paddings", o.explicit_paddings);
  read_padding("--padding", o.padding, a);
  a.data_format = o.data_format;
  a.filter_format = o.filter_format;
  const std::vector<std::int64_t> groups = parse_numbers("--groups", o.groups);
  if (groups.size() > 1) misuse("--groups: expected one whole number");
  if (!groups.empty()) a.groups = groups[0];
  a.out_dtype = o.out_dtype;
  return a;
}

void check_op(const ProblemOptions& o) {
  if (o.op.empty()) {
    misuse("--op is missing, expected conv2d, depthwise, conv3d or conv1d",
           Hint("see convgrad --help"));
  }
  parse_op(o.op);
}

void check_required(const ProblemOptions& o) {
  if (o.line.empty()) check_op(o);
  if (o.input.empty()) misuse("--input is missing, expected a .npy file or -");
  if (o.out_backprop.empty()) {
    misuse("--out-backprop is missing, expected a .npy file or -");
  }
  const bool input = is_standard_input(o.input), dy = is_standard_input(o.out_backprop);
  if (input && dy) {
    misuse("--input and --out-backprop are both -, expected one array on standard input");
  }
  if (is_standard_input(o.filter_like) && (input || dy)) {
    misuse("--filter-like: - is given twice, expected one array on standard input");
  }
}

Tolerance tolerance_of(const CriterionOptions& o) {
  const int given = int{o.rtol || o.atol} + int{o.max_ulp.has_value()} + int{o.bitwise};
  if (given > 1) {
    misuse("--rtol/--atol, --max-ulp and --bitwise exclude each other", Hint("give one of them"));
  }
  Tolerance tolerance;
  if (o.rtol || o.atol) {
    tolerance.criterion = Criterion::tolerance;
    tolerance.rtol = o.rtol.value_or(0);
    tolerance.atol = o.atol.value_or(0);
  } else if (o.max_ulp) {
    tolerance.criterion = Criterion::max_ulp;
    tolerance.max_ulp = *o.max_ulp;
  } else if (o.bitwise) {
    tolerance.criterion = Criterion::bitwise;
  }
  return tolerance;
}

}  // namespace convgrad::cli
