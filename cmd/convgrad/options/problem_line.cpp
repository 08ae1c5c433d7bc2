// problem_line.cpp - see problem_line.hpp. What is left out has the value that the other program
// gives it.
#include "options/problem_line.hpp"

#include <algorithm>
#include <map>

#include "options/arguments.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

// Flags of MIOpenDriver, a letter and a name each; our word for each of them, benchdnn's key where
// that has one; and the usual value, the only one without our word, unless it is null.
struct Flags {
  const char *theirs, *ours, *usual;
  std::int64_t least = 0;
};
constexpr std::string_view kAxes = "dhw";
constexpr Flags kFlags[] = {
    {"n batchsize", "mb", "100"},
    {"c in_channels", "ic", "3", 1},
    {"k out_channels", "oc", "32", 1},
    {"g group_count", "g", "1"},
    {"! in_d H in_h W in_w", "id ih iw", "32"},
    {"", "od oh ow", ""},
    {"@ fil_d y fil_h x fil_w", "kd kh kw", "3", 1},
    {"# conv_stride_d u conv_stride_h v conv_stride_w", "sd sh sw", "1", 1},
    {"$ pad_d p pad_h q pad_w", "pd ph pw", "0"},
    {"^ dilation_d l dilation_h j dilation_w", "dd dh dw", "1", 1},
    {"_ spatial_dim", "spatial_dim", "2"},
    {"I in_layout O out_layout f fil_layout", "in_layout out_layout fil_layout", ""},
    {"z pad_mode", "pad_mode", "default"},
    {"m mode", "", "conv"},
    {"r pad_val Z tensor_vect", "", "0"},
    {"L vector_length", "", "1"},
    {"U in_cast_type T out_cast_type R wei_cast_type", "", "-1"},
    {"d in_data D dout_data", "", ""},
    {"F forw i iter V verify C verification_cache t time w wall s search", "", nullptr},
    {"P printconv o dump_output e weights b bias a in_bias S solution G gpualloc", "", nullptr},
    {"% trans_output_pad_d Y trans_output_pad_h X trans_output_pad_w", "", nullptr}};

// What a line says: numbers by benchdnn's keys, where dilations count from 0, and all by our words.
struct Line {
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> texts;
  MadeRequest request;
  bool is_3d = false;

  std::string_view axes() const { return is_3d ? kAxes : kAxes.substr(1); }
  std::int64_t& of(const char* what, char axis) { return numbers[cat(what, axis)]; }
};

// Products of two of them, and sums of two such, fit in 63 bits.
std::int64_t number_in(const std::string& lead, const std::string& token, const std::string& text) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  const std::optional<std::int64_t> value = parse_whole(text);
  if (value && *value <= kMost) return *value;
  misuse(lead, "'", token, "', expected a whole number from 0 to ", kMost);
}

struct Known {
  const Flags* row;
  std::string name, ours;  // MIOpenDriver's name
};

// By benchdnn's keys, and by MIOpenDriver's flags.
const std::map<std::string, Known>& known_words() {
  static const std::map<std::string, Known> kKnown = [] {
    std::map<std::string, Known> known;
    for (const Flags& row : kFlags) {
      const Words theirs = words_of_line(row.theirs), ours = words_of_line(row.ours);
      for (std::size_t i = 0; i < std::max(theirs.size() / 2, ours.size()); ++i) {
        const Known word = {&row, theirs.empty() ? "" : theirs[2 * i + 1],
                            ours.empty() ? "" : ours[i]};
        if (!theirs.empty()) known["-" + theirs[2 * i]] = known["--" + word.name] = word;
        if (!ours.empty() && ours[i].size() <= 2) known[ours[i]] = word;
      }
    }
    return known;
  }();
  return kKnown;
}

// gXmbX_icXidXihXiwX_ocXodXohXowX_kdXkhXkwX_sdXshXswX_pdXphXpwX_ddXdhXdwX_nNAME
Line read_descriptor(const std::string& text, const std::string& lead) {
  Line line;
  line.numbers = {{"mb", 2}, {"g", 1}};
  for (const char axis : kAxes) {
    line.of("s", axis) = 1;
    line.of("p", axis) = -1;
  }
  std::size_t at = 0;
  while ((at = text.find_first_not_of('_', at)) < text.size() && text[at] != 'n') {
    const std::size_t value = std::min(text.find_first_of("_0123456789", at), text.size());
    const std::size_t end = std::min(text.find_first_not_of("0123456789", value), text.size());
    const std::string key = text.substr(at, value - at), token = text.substr(at, end - at);
    if (!known_words().contains(key)) {
      misuse(lead, "'", token, "' in ", text, " is unknown, expected a descriptor of benchdnn ",
             "such as mb16ic64ih56oc128oh56kh3ph1, or a line of MIOpenDriver: ",
             "conv -n 16 -c 64 ...");
    }
    line.numbers[key] = number_in(lead, token, text.substr(value, end - value));
    at = end;
  }
  std::string name = at < text.size() ? text.substr(at + 1) : "";
  std::erase(name, '"');  // which a shell takes away, but not who writes a file
  line.request.name = name.empty() ? text : name;
  for (const char* key : {"ic", "oc", "g"}) {
    if (line.numbers[key] > 0) continue;
    misuse(lead, key, " is missing or 0 in ", text, ", expected at least 1");
  }
  return line;
}

// What follows of an axis: its outputs or its padding, and the padding at its end, which is less
// than in front where the last window ends before it, and is more where there are more outputs.
void complete(Line& line, char axis, const std::string& lead) {
  for (const char* key : {"i", "k", "s"}) {
    if (line.of(key, axis) > 0) continue;
    misuse(lead, key, axis, " is missing or 0, expected at least 1");
  }
  const std::int64_t i = line.of("i", axis), k = line.of("k", axis), s = line.of("s", axis);
  const std::int64_t reach = (k - 1) * (line.of("d", axis) + 1) + 1;  // of the filter
  std::int64_t &o = line.of("o", axis), &p = line.of("p", axis);
  const std::int64_t pad = std::max<std::int64_t>(p, 0), room = i + 2 * pad - reach;
  if (o == 0) {
    if (room < 0) {
      misuse(lead, "'k", axis, k, "': the filter reaches over ", reach, ", but i", axis,
             " and the padding have ", room + reach);
    }
    o = room / s + 1;
    p = pad;
  }
  const std::int64_t spanned = (o - 1) * s + reach;
  if (p < 0) p = (spanned - i) / 2;
  const std::int64_t end_p = spanned - i - p;
  if (p < 0 || end_p + s <= 0) {
    misuse(lead, "'o", axis, o, "': i", axis, i, "k", axis, k, "s", axis, s, "p", axis, pad, "d",
           axis, line.of("d", axis), " give at least ", (i + pad - reach) / s + 1);
  }
  line.of("end_p", axis) = std::max<std::int64_t>(end_p, 0);  // what no window reads
}

bool is_given(Line& line, char axis) {
  for (const char* key : {"i", "o", "k", "d"}) {
    if (line.of(key, axis) != 0) return true;
  }
  return line.of("s", axis) != 1 || line.of("p", axis) > 0;
}

Line descriptor(const std::string& text, const std::string& lead) {
  Line line = read_descriptor(text, lead);
  const bool d = is_given(line, 'd'), h = is_given(line, 'h'), w = is_given(line, 'w');
  for (const char axis : kAxes) {
    if (is_given(line, axis)) complete(line, axis, lead);
  }
  if (!d && !h && !w) misuse(lead, text, " has no spatial axis, expected at least ih and kh");
  if (d && h != w) {
    misuse(lead, text, " has the axes d and ", h ? "h" : "w", ", expected d, h and w or d");
  }
  // Axes that are left out are like the one before; in front of the first there are none.
  if (!d && !h) {
    line.of("i", 'h') = line.of("k", 'h') = 1;
    line.of("p", 'h') = 0;
  }
  for (const auto& [from, to, missing] : {std::tuple{'d', 'h', d && !h}, {'h', 'w', !w}}) {
    if (!missing) continue;
    for (const char* key : {"i", "k", "s", "p", "d", "end_p"}) {
      line.of(key, to) = line.of(key, from);
    }
  }
  line.is_3d = d;
  return line;
}

// conv -n 16 -c 64 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 ...
void read_flags(const Words& words, const std::string& lead, Line& line) {
  for (const auto& [word, known] : known_words()) {
    if (!known.ours.empty()) line.texts[known.ours] = known.row->usual;
  }
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const auto found = known_words().find(words[i]);
    if (words[i][0] != '-' || found == known_words().end()) {
      misuse(lead, "'", words[i], "' is no flag of MIOpenDriver conv");
    }
    if (i + 1 == words.size()) misuse(lead, "'", words[i], "' has no value");
    const auto& [row, name, ours] = found->second;
    if (ours.empty() && row->usual != nullptr && words[i + 1] != row->usual) {
      misuse(lead, "'", words[i], " ", words[i + 1], "' cannot be said here, expected ",
             *row->usual == '\0' ? "a line without it" : row->usual);
    }
    line.texts[ours] = words[i + 1];
  }
  const std::string rank = line.texts["spatial_dim"];
  if (rank != "2" && rank != "3") misuse(lead, "'spatial_dim ", rank, "', expected 2 or 3");
  line.is_3d = rank == "3";
  for (const auto& [key, known] : known_words()) {
    const auto& [row, name, ours] = known;
    if (key != ours || name.empty() || (!line.is_3d && name.ends_with("_d"))) continue;
    const std::string said = cat(name, " ", line.texts[key]);
    const std::int64_t value = number_in(lead, said, line.texts[key]);
    if (value < row->least) misuse(lead, "'", said, "', expected at least ", row->least);
    line.numbers[key] = key[0] == 'd' ? value - 1 : value;
  }
}

// The layouts of x, dy and dw; those of x and dy are alike.
void read_layouts(const std::string& lead, Line& line) {
  const std::string first = line.is_3d ? "NCDHW" : "NCHW", last = line.is_3d ? "NDHWC" : "NHWC";
  for (const char* flag : {"in_layout", "out_layout", "fil_layout"}) {
    if (line.texts[flag].empty()) line.texts[flag] = first;
    check_known(cat(lead, flag), line.texts[flag], {first, last});
  }
  if (line.texts["out_layout"] != line.texts["in_layout"]) {
    misuse(lead, "in_layout is ", line.texts["in_layout"], " and out_layout ",
           line.texts["out_layout"], ", expected one layout for both");
  }
  line.request.attributes.data_format = line.texts["in_layout"];
  std::string& filter = line.request.attributes.filter_format = line.texts["fil_layout"];
  std::ranges::replace(filter, 'N', 'O');
  std::ranges::replace(filter, 'C', 'I');
}

void read_pad_mode(const std::string& lead, Line& line) {
  const std::string& mode = line.texts["pad_mode"];
  check_known(cat(lead, "pad_mode"), mode, {"default", "same", "valid"});
  const auto plain = [&](const char* key, std::int64_t value) {
    return std::ranges::all_of(line.axes(), [&](char axis) { return line.of(key, axis) == value; });
  };
  // As there: with dilations the mode has no effect.
  const bool has_effect = mode != "default" && (plain("d", 0) || plain("k", 1));
  for (const char axis : line.axes()) {
    const std::int64_t s = line.of("s", axis), rest = line.of("i", axis) % s;
    const std::int64_t both =
        std::max<std::int64_t>(line.of("k", axis) - (rest == 0 ? s : rest), 0);
    if (has_effect) line.of("p", axis) = mode == "same" ? both / 2 : 0;
    line.of("end_p", axis) = line.of("p", axis);
  }
}

Line driver_line(const Words& words, const std::string& lead) {
  static const std::map<std::string, DType> kDTypes = {
      {"conv", DType::f32}, {"convfp16", DType::f16}, {"convbfp16", DType::bf16}};
  if (!kDTypes.contains(words[0])) {
    misuse(lead, "'", words[0], "' is unknown, expected conv, convfp16 or convbfp16");
  }
  Line line;
  line.request.name = joined(words, "");
  line.request.dtype = kDTypes.at(words[0]);
  read_flags(words, lead, line);
  line.numbers["g"] = std::max<std::int64_t>(line.numbers["g"], 1);
  read_layouts(lead, line);
  read_pad_mode(lead, line);
  return line;
}

MadeRequest request_of(Line line, const std::string& data_format) {
  MadeRequest request = std::move(line.request);
  WgradAttributes& a = request.attributes;
  const std::int64_t C = line.numbers["ic"];
  request.K = line.numbers["oc"];
  a.groups = line.numbers["g"];
  const bool depthwise = !line.is_3d && a.groups > 1 && a.groups == C && request.K % C == 0;
  a.op = line.is_3d ? "conv3d" : depthwise ? "depthwise" : "conv2d";
  if (!data_format.empty()) a.data_format = data_format;
  request.input_shape = {line.numbers["mb"]};
  for (const char axis : line.axes()) {
    request.input_shape.push_back(line.of("i", axis));
    a.kernel.push_back(line.of("k", axis));
    a.strides.push_back(line.of("s", axis));
    a.dilations.push_back(line.of("d", axis) + 1);
    a.explicit_paddings.push_back(line.of("p", axis));
    a.explicit_paddings.push_back(line.of("end_p", axis));
  }
  auto& shape = request.input_shape;
  shape.insert(is_channels_last(a.op, a.data_format) ? shape.end() : shape.begin() + 1, C);
  return request;
}

bool is_driver(const std::string& word) {
  return word == "MIOpenDriver" || word.ends_with("/MIOpenDriver");
}

}  // namespace

bool is_problem_line(const Words& words) {
  if (words.size() == 1) return true;
  return words[0].starts_with("--") || std::ranges::any_of(words, is_driver) ||
         (words[0].starts_with("conv") && words[1].starts_with("-"));
}

MadeRequest parse_problem_line(const Words& words, const std::string& lead,
                               const std::string& data_format) {
  // As MIOpen's log has it, too: what stands before the program's name says nothing.
  const auto program = std::ranges::find_if(words, is_driver);
  const Words line(program == words.end() ? words.begin() : program + 1, words.end());
  if (line.empty())
    misuse(lead, "empty, expected a descriptor of benchdnn or a line of MIOpenDriver");
  if (line[0].starts_with("--")) {
    misuse(lead, "'", line[0], "' is an option of benchdnn, expected its descriptor alone");
  }
  const bool driver = program != words.end() || line.size() > 1;
  return request_of(driver ? driver_line(line, lead) : descriptor(line[0], lead), data_format);
}

}  // namespace convgrad::cli
