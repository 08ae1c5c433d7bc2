// foreign_lines.cpp - problems as other programs spell them; see problems.hpp. What is left out
// has the value that the other program gives it.
#include <algorithm>
#include <map>

#include "options/arguments.hpp"
#include "options/problems.hpp"

namespace convgrad::cli {
namespace {

// Products of two such numbers, and sums of two such products, fit in 63 bits.
constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

// Pairs benchdnn's keys with MIOpenDriver's flags, a letter and a name each, and has the numbers
// that these may have.
struct Word {
  const char *keys, *flags;
  std::int64_t usual = 0, least = 0, most = kMost;
};
constexpr Word kWords[] = {
    {"mb", "-n --batchsize", 100},
    {"ic", "-c --in_channels", 3, 1},
    {"oc", "-k --out_channels", 32, 1},
    {"g", "-g --group_count", 1, 1},
    {"id ih iw", "-! --in_d -H --in_h -W --in_w", 32},
    {"od oh ow", ""},
    {"kd kh kw", "-@ --fil_d -y --fil_h -x --fil_w", 3, 1},
    {"sd sh sw", "-# --conv_stride_d -u --conv_stride_h -v --conv_stride_w", 1, 1},
    {"pd ph pw", "-$ --pad_d -p --pad_h -q --pad_w"},
    {"dd dh dw", "-^ --dilation_d -l --dilation_h -j --dilation_w", 1, 1},
    {"spatial_dim", "-_ --spatial_dim", 2, 2, 3}};
constexpr const char* kLayouts = "-I --in_layout -O --out_layout -f --fil_layout";
// These say nothing of the gradient: the first by their values, the second with any value.
constexpr const char* kUsualFlags[] = {"-m conv", "-z default"};
constexpr const char* kWithoutEffect[] = {"-F", "-i", "-V", "-C", "-t", "-w", "-s",
                                          "-P", "-o", "-e", "-b", "-a", "-S", "-G"};

// Holds what was spelled, for make_problem().
struct Request {
  WgradAttributes attributes;
  TensorInfo x = {"x", DType::f32, {}};
  std::int64_t K = 0;
};

// Holds numbers by benchdnn's keys; dilations count from 0.
using KeyedNumbers = std::map<std::string, std::int64_t>;

// Returns the place of a word in a list, or its end if the word is not there.
std::size_t place_in(const Words& list, const std::string& word) {
  return static_cast<std::size_t>(std::ranges::find(list, word) - list.begin());
}

std::int64_t number_in(const std::string& token, const std::string& text, std::int64_t least = 0,
                       std::int64_t most = kMost) {
  const std::optional<std::int64_t> value = parse_whole(text);
  if (value && *value >= least && *value <= most) return *value;
  misuse("'", token, "', expected a whole number from ", least, " to ", most);
}

std::int64_t required(KeyedNumbers& numbers, const std::string& key) {
  if (numbers[key] > 0) return numbers[key];
  misuse(key, " is missing or 0, expected at least 1");
}

// The padding at the end is less than in front where the last window ends before it, and is more
// where there are more outputs. It is 0 where pixels are left that no window reads.
void add_axis(KeyedNumbers numbers, const std::string& axis, Request& request) {
  numbers.emplace("s" + axis, 1);
  const bool is_padded = numbers.contains("p" + axis);
  const std::int64_t i = required(numbers, "i" + axis), o = numbers["o" + axis];
  const std::int64_t k = required(numbers, "k" + axis);
  const std::int64_t s = required(numbers, "s" + axis), d = numbers["d" + axis] + 1;
  const std::int64_t reach = (k - 1) * d + 1, spanned = (o - 1) * s + reach;
  const std::int64_t p = is_padded || o == 0 ? numbers["p" + axis] : (spanned - i) / 2;
  if (o == 0 && i + 2 * p < reach) {
    misuse("'k", axis, k, "': the filter reaches over ", reach, ", but i", axis,
           " and the padding have ", i + 2 * p);
  }
  if (o > 0 && (p < 0 || spanned - i - p + s <= 0)) {
    misuse("'o", axis, o, "' leaves out a whole window, expected at least ",
           (i + std::max<std::int64_t>(p, 0) - reach) / s + 1);
  }
  WgradAttributes& a = request.attributes;
  request.x.shape.push_back(i);
  a.kernel.push_back(k);
  a.strides.push_back(s);
  a.dilations.push_back(d);
  a.explicit_paddings.push_back(p);
  a.explicit_paddings.push_back(o == 0 ? p : std::max<std::int64_t>(spanned - i - p, 0));
}

// Adds what the numbers say to a request with the layouts. `axes` are those of d, h, w in use.
void add_numbers(KeyedNumbers& numbers, const std::string& axes, Request& request) {
  WgradAttributes& a = request.attributes;
  const std::int64_t C = required(numbers, "ic");
  request.K = required(numbers, "oc");
  a.groups = required(numbers, "g");
  const bool depthwise = axes.size() == 2 && a.groups > 1 && a.groups == C && request.K % C == 0;
  a.op = axes.size() == 3 ? "conv3d" : depthwise ? "depthwise" : "conv2d";
  request.x.shape = {numbers["mb"]};
  for (const char axis : axes) add_axis(numbers, {axis}, request);
  auto& shape = request.x.shape;
  const bool last = parse_data_format(parse_op(a.op), a.data_format);
  shape.insert(last ? shape.end() : shape.begin() + 1, C);
}

// Reads gXmbX_icXidXihXiwX_ocXodXohXowX_kdXkhXkwX_sdXshXswX_pdXphXpwX_ddXdhXdwX_nNAME.
KeyedNumbers read_descriptor(const std::string& text, std::string& name) {
  KeyedNumbers numbers = {{"mb", 2}, {"g", 1}};
  std::size_t at = 0;
  while ((at = text.find_first_not_of('_', at)) < text.size() && text[at] != 'n') {
    const std::size_t value = std::min(text.find_first_of("_0123456789", at), text.size());
    const std::size_t end = std::min(text.find_first_not_of("0123456789", value), text.size());
    const std::string key = text.substr(at, value - at), token = text.substr(at, end - at);
    const bool is_known = std::ranges::any_of(kWords, [&](const Word& row) {
      return std::ranges::count(words_of_line(row.keys), key) > 0;
    });
    if (!is_known) {
      misuse("'", token, "' in ", text, " is unknown, expected a descriptor of benchdnn, ",
             "mb16ic64ih56oc128kh3ph1, or a line of MIOpenDriver, conv -n 16 -c 64 ...");
    }
    numbers[key] = number_in(token, text.substr(value, end - value));
    at = end;
  }
  name = at < text.size() ? text.substr(at + 1) : "";
  std::erase(name, '"');  // which a shell takes away, but not who writes a file
  if (name.empty()) name = text;
  return numbers;
}

void add_descriptor(const std::string& text, std::string& name, Request& request) {
  constexpr std::string_view kKinds = "iokspd";
  KeyedNumbers numbers = read_descriptor(text, name);
  const auto is_given = [&](char axis) {
    return std::ranges::any_of(kKinds, [&](char c) { return numbers.contains({c, axis}); });
  };
  const auto copy = [&](char from, char to) {
    for (const char c : kKinds) {
      if (numbers.contains({c, from})) numbers[{c, to}] = numbers[{c, from}];
    }
  };
  const bool d = is_given('d'), h = is_given('h'), w = is_given('w');
  if (!d && !h && !w) misuse(text, " has no spatial axis, expected at least ih and kh");
  if (d && h != w) {
    misuse(text, " has the axes d and ", h ? "h" : "w", ", expected d, h and w or d");
  }
  // Axes that are left out are like the one before; in front of the first there are none.
  if (!d && !h) numbers["ih"] = numbers["kh"] = 1;
  if (d && !h) copy('d', 'h');
  if (!w) copy('h', 'w');
  add_numbers(numbers, d ? "dhw" : "hw", request);
}

bool is_descriptor(const std::string& word) {
  const std::size_t digit = std::min(word.find_first_of("0123456789"), word.size());
  const std::string first = word.substr(0, digit);
  const std::size_t oc = word.find("oc");
  return (first == "g" || first == "mb" || first == "ic") && oc + 2 < word.size() &&
         is_digit(word[oc + 2]);
}

// Reads what a command of benchdnn (--dt=bf16, --stag=axb) or a line that oneDNN prints when it is
// verbose (src:bf16::blocked:acdb::f0) says of x: its type, and where its channels are.
void add_word_of_onednn(std::string word, Request& request) {
  if (word.starts_with("src_")) word[3] = ':';  // before oneDNN 3
  std::ranges::replace(word, '=', ' ');
  std::ranges::replace(word, ':', ' ');
  const Words parts = words_of_line(word);
  if (parts.size() < 2 || !std::ranges::count(Words{"src", "--dt", "--stag"}, parts[0])) return;
  if (parts[0] != "--stag") request.x.dtype = parse_dtype(parts[0], parts[1]);
  for (const std::string& tag : parts) {
    if (tag.starts_with("ab") || tag.starts_with("aB")) {
      request.attributes.data_format = "channels_first";
    } else if (tag.starts_with("ac") || tag == "axb") {
      request.attributes.data_format = "channels_last";
    }
  }
}

void read_flag(const std::string& flag, const std::string& value, KeyedNumbers& numbers,
               Words& layouts) {
  const std::string said = cat(flag, " ", value);
  for (const Word& row : kWords) {
    const Words flags = words_of_line(row.flags);
    const std::size_t place = place_in(flags, flag);
    if (place == flags.size()) continue;
    numbers[words_of_line(row.keys)[place / 2]] = number_in(said, value, row.least, row.most);
    return;
  }
  const std::size_t layout = place_in(words_of_line(kLayouts), flag) / 2;
  if (layout < layouts.size()) {
    layouts[layout] = value;
  } else if (std::ranges::count(kUsualFlags, said) + std::ranges::count(kWithoutEffect, flag) ==
             0) {
    misuse("'", said, "' cannot be said here, expected a line without it");
  }
}

// Reads conv -n 16 -c 64 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 and the like.
void add_flags(const Words& words, Request& request) {
  KeyedNumbers numbers;
  Words layouts(3);  // of x, dy and dw
  for (const Word& row : kWords) {
    for (const std::string& key : words_of_line(row.keys)) numbers[key] = row.usual;
  }
  for (std::size_t i = 1; i < words.size(); i += 2) {
    if (i + 1 == words.size()) misuse("'", words[i], "' has no value");
    read_flag(words[i], words[i + 1], numbers, layouts);
  }
  for (const char* key : {"dd", "dh", "dw"}) --numbers[key];
  const bool is_3d = numbers["spatial_dim"] == 3;
  const std::string first = is_3d ? "NCDHW" : "NCHW", last = is_3d ? "NDHWC" : "NHWC";
  std::ranges::replace(layouts, "", first);
  if (layouts != Words(3, first) && layouts != Words(3, last)) {
    misuse("in_layout, out_layout and fil_layout are ", joined(layouts, ", "), ", expected ", first,
           " or ", last, " for all");
  }
  WgradAttributes& a = request.attributes;
  a.data_format = layouts[0];
  a.filter_format = layouts[2];
  std::ranges::replace(a.filter_format, 'N', 'O');
  std::ranges::replace(a.filter_format, 'C', 'I');
  add_numbers(numbers, is_3d ? "dhw" : "hw", request);
}

bool is_driver(const std::string& word) {
  return word == "MIOpenDriver" || word.ends_with("/MIOpenDriver");
}

}  // namespace

bool is_foreign(const Words& words) {
  if (words.size() < 2) return words.empty() || !op_from_name(words[0]);
  return std::ranges::any_of(words, is_driver) || words[0].starts_with("-") ||
         words[1].starts_with("-") || words[0].find("_verbose,") != std::string::npos;
}

NamedProblem read_foreign(const Words& words) {
  static const std::map<std::string, DType> kDTypes = {
      {"conv", DType::f32}, {"convfp16", DType::f16}, {"convbfp16", DType::bf16}};
  // MIOpen's log is read too: what stands before the program's name says nothing.
  const auto program = std::ranges::find_if(words, is_driver);
  std::string text =
      joined({program == words.end() ? words.begin() : program + 1, words.end()}, " ");
  std::ranges::replace(text, ',', ' ');
  const Words line = words_of_line(text);
  if (line.empty()) {
    misuse("empty, expected a line such as conv2d n8 h56 w56 c64 k128 r3 s3 pad_same");
  }
  NamedProblem result = {"", {}, true};
  Request request;
  const auto descriptor = std::ranges::find_if(line, is_descriptor);
  if (program == words.end() && (line.size() == 1 || descriptor != line.end())) {
    for (const std::string& word : line) add_word_of_onednn(word, request);
    add_descriptor(line.size() == 1 ? line[0] : *descriptor, result.name, request);
  } else if (kDTypes.contains(line[0])) {
    result.name = joined(line, "");
    request.x.dtype = kDTypes.at(line[0]);
    add_flags(line, request);
  } else {
    misuse(
        "'", line[0], "' is unknown, expected a line of convgrad, benchdnn or MIOpenDriver: ",
        "conv2d n16 ..., mb16ic64ih56oc128kh3ph1, or conv, convfp16 or convbfp16 with its flags");
  }
  const auto& [attributes, x, K] = request;
  result.problem =
      make_problem(x, {"dy", x.dtype, out_backprop_shape(x, attributes, K)}, attributes);
  return result;
}

}  // namespace convgrad::cli
