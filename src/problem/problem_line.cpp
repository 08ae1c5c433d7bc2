// problem_line.cpp - a problem as one line of words, and back.
#include <algorithm>
#include <charconv>
#include <map>

#include "problem/draft.hpp"

namespace convgrad {

using making::Names;

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr const char* kExtents[] = {"d", "h", "w"};
constexpr const char* kTaps[] = {"t", "r", "s"};
constexpr const char* kSame = "pad_same";

// Returns " stride2", where spatial axes differ " stride1,2", and "" where all have the usual
// number.
std::string word_of(const char* key, const Numbers& numbers, std::int64_t usual) {
  const bool alike = std::ranges::count(numbers, numbers[0]) == std::ssize(numbers);
  if (alike && numbers[0] == usual) return "";
  std::string text = cat(" ", key, numbers[0]);
  for (std::size_t a = 1; a < numbers.size() && !alike; ++a) text += cat(",", numbers[a]);
  return text;
}

std::string padding_words(const WgradProblem& problem) {
  // Without rows of x, SAME allows what no padding in numbers does.
  const auto needs_padding = [](const SpatialAxis& axis) {
    return axis.in == 0 || axis.pad_before != 0 || axis.pad_after != 0;
  };
  const auto is_same = [](const SpatialAxis& axis) {
    SpatialAxis same = axis;
    making::pad_same(same);
    return same == axis;
  };
  if (std::ranges::any_of(problem.axis, needs_padding) &&
      std::ranges::all_of(problem.axis, is_same)) {
    return cat(" ", kSame);
  }
  const Numbers before = per_axis(problem, &SpatialAxis::pad_before);
  const Numbers after = per_axis(problem, &SpatialAxis::pad_after);
  if (before == after) return word_of("pad", before, 0);
  return word_of("pad_before", before, 0) + word_of("pad_after", after, 0);
}

// Holds the words of a line behind the operation.
struct Line {
  WgradAttributes attributes;
  DType x_dtype = DType::f32, dy_dtype = DType::f32;
  std::map<std::string, Numbers> numbers;  // by key
  std::size_t rank = 2;
};

bool read_numbers(const std::string& word, Line& line) {
  const std::size_t end = std::min(word.find_first_of("-0123456789"), word.size());
  const std::string key = word.substr(0, end);
  std::vector<std::string> keys = {"n",      "c",        "k",   "m",          "groups",
                                   "stride", "dilation", "pad", "pad_before", "pad_after"};
  for (std::size_t a = 3 - line.rank; a < 3; ++a) keys.insert(keys.end(), {kExtents[a], kTaps[a]});
  if (end == word.size() || std::ranges::find(keys, key) == keys.end()) return false;
  Numbers& numbers = line.numbers[key];
  if (!numbers.empty()) misuse("'", word, "': ", key, " is there twice, expected once");
  const char *at = word.data() + end, *const last = word.data() + word.size();
  for (bool more = true; more; ++at) {
    const auto [rest, status] = std::from_chars(at, last, numbers.emplace_back());
    const bool is_legal = numbers.back() >= 0 || key.starts_with("pad");  // which crops
    if (status != std::errc{} || (rest != last && *rest != ',') || !is_legal) {
      misuse("'", word, "', expected ", key, " and a whole number, or one for each axis");
    }
    more = rest != last;
    at = rest;
  }
  return true;
}

bool read_format(const std::string& word, Names formats, std::string& format) {
  const auto found = std::ranges::find(formats, making::upper(word));
  if (found == formats.end()) return false;
  format = *found;
  return true;
}

// Reads "bfloat16", "float8_e4m3fn*float8_e5m2", "float16->float32".
bool read_dtypes(const std::string& word, Line& line) {
  const std::size_t arrow = word.find("->");
  const std::string inputs = word.substr(0, arrow), x = inputs.substr(0, inputs.find('*'));
  const auto x_dtype = stored_dtype_from_name(x);
  const auto dy_dtype =
      x.size() == inputs.size() ? x_dtype : stored_dtype_from_name(inputs.substr(x.size() + 1));
  if (!x_dtype || !dy_dtype) return false;
  line.x_dtype = *x_dtype;
  line.dy_dtype = *dy_dtype;
  if (arrow != word.npos) line.attributes.out_dtype = word.substr(arrow + 2);
  return true;
}

Line read_line(const std::string& text) {
  TextReader words(text);
  Line line;
  WgradAttributes& a = line.attributes;
  words >> a.op;
  const Op op = parse_op(a.op);
  line.rank = static_cast<std::size_t>(spatial_rank(op));
  for (std::string word; words >> word;) {
    const bool known =
        read_numbers(word, line) || read_format(word, making::data_formats(op), a.data_format) ||
        read_format(word, making::filter_formats(op), a.filter_format) || read_dtypes(word, line);
    if (known) continue;
    if (word != kSame) {
      misuse("'", word, "' is no word of a ", op_name(op), ", expected words such as float32, ",
             making::data_formats(op)[0],
             ", n8, c64, k128, w56, s3, stride2, groups4, pad1 or pad_same");
    }
    a.padding = "SAME";
  }
  return line;
}

std::int64_t number_of(const Line& line, const std::string& key,
                       std::optional<std::int64_t> usual) {
  const auto found = line.numbers.find(key);
  if (found != line.numbers.end()) {
    if (found->second.size() == 1) return found->second[0];
    misuse(key, ": ", found->second.size(), " numbers, expected one");
  }
  if (usual) return *usual;
  misuse(key, " is missing, expected it with a number, as in ", key, "3");
}

// Returns one number for each spatial axis.
Numbers spread(Line& line, const std::string& key) {
  Numbers numbers = line.numbers[key];
  if (numbers.empty()) numbers = {0};
  if (numbers.size() == 1) numbers.resize(line.rank, numbers[0]);
  if (numbers.size() == line.rank) return numbers;
  misuse(key, ": ", numbers.size(), " numbers, expected 1 or ", line.rank);
}

void read_padding(Line& line) {
  WgradAttributes& a = line.attributes;
  const bool both = line.numbers.contains("pad");
  const bool sides = line.numbers.contains("pad_before") || line.numbers.contains("pad_after");
  if (int{both} + int{sides} + int{!a.padding.empty()} > 1) {
    misuse("the padding is there twice, expected one of pad1, pad_before1 with pad_after1, ",
           "and pad_same");
  }
  if (!a.padding.empty()) return;
  a.padding = both || sides ? "EXPLICIT" : "VALID";
  if (a.padding == "VALID") return;
  const Numbers before = spread(line, both ? "pad" : "pad_before");
  const Numbers after = spread(line, both ? "pad" : "pad_after");
  for (std::size_t i = 0; i < line.rank; ++i) {
    a.explicit_paddings.insert(a.explicit_paddings.end(), {before[i], after[i]});
  }
}

// Sets what says the filter, and returns K.
std::int64_t read_channels(Line& line, std::int64_t C) {
  WgradAttributes& a = line.attributes;
  for (std::size_t i = 3 - line.rank; i < 3; ++i) a.kernel.push_back(number_of(line, kTaps[i], {}));
  if (line.numbers.contains("groups")) a.groups = number_of(line, "groups", {});
  if (!line.numbers.contains("m")) {
    const std::int64_t K = number_of(line, "k", {});
    if (parse_op(a.op) != Op::depthwise || C > 0) return K;
    // Without channels of x only the shape of a filter that is not HWIO has K.
    a.filter_like = std::move(a.kernel);
    a.filter_like.insert(
        making::upper(a.filter_format).ends_with("I") ? a.filter_like.end() : a.filter_like.begin(),
        1);
    a.filter_like.insert(a.filter_like.begin(), K);
    return K;
  }
  if (parse_op(a.op) != Op::depthwise || line.numbers.contains("k")) {
    misuse("m is there, expected ", line.numbers.contains("k") ? "m or k" : "it of depthwise");
  }
  const std::int64_t M = number_of(line, "m", {});
  a.filter_sizes = std::move(a.kernel);
  a.filter_sizes.insert(a.filter_sizes.end(), {C, M});
  return checked_mul(C, M, "c x m");
}

}  // namespace

std::string describe(const WgradProblem& problem) {
  std::string text = cat(op_name(problem.op), " ", input_dtypes(problem));
  if (problem.out_dtype != problem.x_dtype || problem.out_dtype != problem.dy_dtype)
    text += cat("->", dtype_name(problem.out_dtype));
  text += cat(" ", data_format_name(problem), " n", problem.N);
  const auto first = static_cast<std::size_t>(3 - problem.spatial_rank());
  for (std::size_t a = first; a < 3; ++a) text += cat(" ", kExtents[a], problem.axis[a].in);
  const bool depthwise = problem.op == Op::depthwise;
  const bool says_multiplier = depthwise && problem.C == 0;
  text += cat(" c", problem.C, says_multiplier ? " m" : " k",
              says_multiplier ? problem.empty_multiplier : problem.K);
  for (std::size_t a = first; a < 3; ++a) text += cat(" ", kTaps[a], problem.axis[a].taps);
  if (!depthwise) text += word_of("groups", {problem.groups}, 1);
  text += word_of("stride", per_axis(problem, &SpatialAxis::stride), 1);
  text += word_of("dilation", per_axis(problem, &SpatialAxis::dilation), 1);
  text += padding_words(problem);
  if (problem.filter_format != FilterFormat::hwio) text += cat(" ", filter_format_name(problem));
  return text;
}

ProblemRequest parse_problem(const std::string& text) {
  Line line = read_line(text);
  WgradAttributes& a = line.attributes;
  const std::int64_t C = number_of(line, "c", {});
  a.strides = line.numbers["stride"];
  a.dilations = line.numbers["dilation"];
  read_padding(line);
  const std::int64_t K = read_channels(line, C);
  TensorInfo x = {"x", line.x_dtype, {}};
  for (std::size_t i = 3 - line.rank; i < 3; ++i)
    x.shape.push_back(number_of(line, kExtents[i], {}));
  const bool last = parse_data_format(parse_op(a.op), a.data_format);
  x.shape.insert(last ? x.shape.end() : x.shape.begin(), C);
  x.shape.insert(x.shape.begin(), number_of(line, "n", 1));
  return {x, {"dy", line.dy_dtype, out_backprop_shape(x, a, K)}, a};
}

}  // namespace convgrad
