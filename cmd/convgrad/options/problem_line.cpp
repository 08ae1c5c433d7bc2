// problem_line.cpp - see problem_line.hpp. What is left out has the value that the other program
// gives it.
#include "options/problem_line.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>

#include "options/arguments.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

// Products of two of them, and sums of two such, fit in 63 bits.
constexpr std::int64_t kMostExtent = (std::int64_t{1} << 31) - 1;
constexpr std::string_view kAxes = "dhw";

// A spatial axis by oneDNN's letters; 0 is not given.
struct LineAxis {
  std::int64_t i = 0, o = 0, k = 0, s = 1, p = -1, d = 0;  // d counted from 0
  std::int64_t end_p = 0;

  bool given() const { return (i | o | k | d) != 0 || s != 1 || p > 0; }
  std::int64_t reach() const { return (k - 1) * (d + 1) + 1; }  // of the filter
};
constexpr LineAxis kFlat = {1, 1, 1, 1, 0, 0, 0};

struct Line {
  std::string name, data_format, filter_format;
  std::optional<DType> dtype;
  std::int64_t N = 2, C = 0, K = 0, groups = 1;
  std::array<LineAxis, 3> axis;  // d, h, w
  bool is_3d = false;
};

std::int64_t number_in(const std::string& lead, const std::string& token, const char* begin,
                       const char* end) {
  std::int64_t value = -1;
  const auto [rest, status] = std::from_chars(begin, end, value);
  if (status != std::errc{} || rest != end || value < 0 || value > kMostExtent) {
    misuse(lead, "'", token, "', expected a whole number from 0 to ", kMostExtent);
  }
  return value;
}

// ---- benchdnn: gXmbX_icXidXihXiwX_ocXodXohXowX_kdXkhXkwX_sdXshXswX_pdXphXpwX_ddXdhXdwX_nNAME

// Where a key of a descriptor is kept; none: there is no such key.
std::int64_t* place_of(std::string_view key, Line& line) {
  if (key == "g") return &line.groups;
  if (key == "mb") return &line.N;
  if (key == "ic") return &line.C;
  if (key == "oc") return &line.K;
  const std::size_t a = key.size() == 2 ? kAxes.find(key[1]) : kAxes.npos;
  if (a == kAxes.npos) return nullptr;
  LineAxis& axis = line.axis[a];
  for (const auto& [letter, place] : {std::pair{'i', &axis.i},
                                      {'o', &axis.o},
                                      {'k', &axis.k},
                                      {'s', &axis.s},
                                      {'p', &axis.p},
                                      {'d', &axis.d}}) {
    if (letter == key[0]) return place;
  }
  return nullptr;
}

Line read_descriptor(const std::string& text, const std::string& lead) {
  Line line;
  line.name = text;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '_') {
      ++at;
      continue;
    }
    if (text[at] == 'n') {
      std::string name = text.substr(at + 1);
      std::erase(name, '"');  // which a shell takes away, but not who writes a file
      if (!name.empty()) line.name = name;
      break;
    }
    const auto end_of = [&](std::size_t from, bool digits) {
      while (from < text.size() && is_digit(text[from]) == digits && text[from] != '_') ++from;
      return from;
    };
    const std::size_t value = end_of(at, false), end = end_of(value, true);
    const std::string token = text.substr(at, end - at);
    std::int64_t* const place = place_of(std::string_view(text).substr(at, value - at), line);
    if (place == nullptr) {
      misuse(lead, "'", token, "' in ", text,
             " is unknown, expected a descriptor of benchdnn such ",
             "as mb16ic64ih56oc128oh56kh3ph1, or a line of MIOpenDriver: conv -n 16 -c 64 ...");
    }
    *place = number_in(lead, token, text.data() + value, text.data() + end);
    at = end;
  }
  return line;
}

// What follows of an axis: its outputs or its padding, and the padding at its end, which is less
// than in front where the last window ends before it, and is more where there are more outputs.
void complete(LineAxis& axis, char letter, const std::string& lead) {
  for (const auto& [key, value] : {std::pair{'i', axis.i}, {'k', axis.k}, {'s', axis.s}}) {
    if (value == 0) misuse(lead, key, letter, " is missing or 0, expected at least 1");
  }
  const std::int64_t reach = axis.reach();
  const auto spanned = [&] { return (axis.o - 1) * axis.s + reach; };
  if (axis.o == 0) {
    axis.p = std::max<std::int64_t>(axis.p, 0);
    const std::int64_t room = axis.i + 2 * axis.p - reach;
    if (room < 0) {
      misuse(lead, "'k", letter, axis.k, "': the filter reaches over ", reach, ", but i", letter,
             " and the padding have ", axis.i + 2 * axis.p);
    }
    axis.o = room / axis.s + 1;
  }
  if (axis.p < 0) axis.p = (spanned() - axis.i) / 2;
  axis.end_p = spanned() - axis.i - axis.p;
  if (axis.p < 0 || axis.end_p + axis.s <= 0) {
    misuse(lead, "'o", letter, axis.o, "': i", letter, axis.i, "k", letter, axis.k, "s", letter,
           axis.s, "p", letter, std::max<std::int64_t>(axis.p, 0), "d", letter, axis.d,
           " give at least ", (axis.i + std::max<std::int64_t>(axis.p, 0) - reach) / axis.s + 1);
  }
  axis.end_p = std::max<std::int64_t>(axis.end_p, 0);  // what no window reads
}

Line descriptor(const std::string& text, const std::string& lead) {
  Line line = read_descriptor(text, lead);
  for (const auto& [key, value] : {std::pair{"ic", line.C}, {"oc", line.K}, {"g", line.groups}}) {
    if (value == 0) misuse(lead, key, " is missing or 0 in ", text, ", expected at least 1");
  }
  auto& [d, h, w] = line.axis;
  line.is_3d = d.given();
  for (std::size_t a = 0; a < 3; ++a) {
    if (line.axis[a].given()) complete(line.axis[a], kAxes[a], lead);
  }
  if (!d.given() && !h.given() && !w.given()) {
    misuse(lead, text, " has no spatial axis, expected at least ih and kh");
  }
  if (line.is_3d && h.given() != w.given()) {
    misuse(lead, text, " has the axes d and ", h.given() ? "h" : "w", ", expected d, h and w or d");
  }
  // Axes that are left out are like the one before; in front of the first there are none.
  if (!h.given()) h = line.is_3d ? d : kFlat;
  if (!w.given()) w = h;
  return line;
}

// ---- MIOpenDriver: conv -n 16 -c 64 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 ...

// How a flag bears on the gradient: it says a part of it, says nothing of it, or would say what
// cannot be had here if it had another value than the usual one.
enum class Use : std::uint8_t { part, ignored, usual_alone };
struct DriverFlag {
  const char *name, *usual;
  char letter;
  Use use;
};
constexpr DriverFlag kDriverFlags[] = {{"in_layout", "", 'I', Use::part},
                                       {"out_layout", "", 'O', Use::part},
                                       {"fil_layout", "", 'f', Use::part},
                                       {"spatial_dim", "2", '_', Use::part},
                                       {"batchsize", "100", 'n', Use::part},
                                       {"in_channels", "3", 'c', Use::part},
                                       {"in_d", "32", '!', Use::part},
                                       {"in_h", "32", 'H', Use::part},
                                       {"in_w", "32", 'W', Use::part},
                                       {"out_channels", "32", 'k', Use::part},
                                       {"fil_d", "3", '@', Use::part},
                                       {"fil_h", "3", 'y', Use::part},
                                       {"fil_w", "3", 'x', Use::part},
                                       {"conv_stride_d", "1", '#', Use::part},
                                       {"conv_stride_h", "1", 'u', Use::part},
                                       {"conv_stride_w", "1", 'v', Use::part},
                                       {"pad_d", "0", '$', Use::part},
                                       {"pad_h", "0", 'p', Use::part},
                                       {"pad_w", "0", 'q', Use::part},
                                       {"dilation_d", "1", '^', Use::part},
                                       {"dilation_h", "1", 'l', Use::part},
                                       {"dilation_w", "1", 'j', Use::part},
                                       {"pad_mode", "default", 'z', Use::part},
                                       {"group_count", "1", 'g', Use::part},
                                       {"mode", "conv", 'm', Use::usual_alone},
                                       {"pad_val", "0", 'r', Use::usual_alone},
                                       {"tensor_vect", "0", 'Z', Use::usual_alone},
                                       {"vector_length", "1", 'L', Use::usual_alone},
                                       {"in_cast_type", "-1", 'U', Use::usual_alone},
                                       {"out_cast_type", "-1", 'T', Use::usual_alone},
                                       {"wei_cast_type", "-1", 'R', Use::usual_alone},
                                       {"in_data", "", 'd', Use::usual_alone},
                                       {"dout_data", "", 'D', Use::usual_alone},
                                       {"trans_output_pad_d", "0", '%', Use::ignored},
                                       {"trans_output_pad_h", "0", 'Y', Use::ignored},
                                       {"trans_output_pad_w", "0", 'X', Use::ignored},
                                       {"forw", "0", 'F', Use::ignored},
                                       {"iter", "10", 'i', Use::ignored},
                                       {"verify", "1", 'V', Use::ignored},
                                       {"verification_cache", "", 'C', Use::ignored},
                                       {"time", "0", 't', Use::ignored},
                                       {"wall", "0", 'w', Use::ignored},
                                       {"search", "0", 's', Use::ignored},
                                       {"printconv", "1", 'P', Use::ignored},
                                       {"dump_output", "0", 'o', Use::ignored},
                                       {"weights", "", 'e', Use::ignored},
                                       {"bias", "", 'b', Use::ignored},
                                       {"in_bias", "", 'a', Use::ignored},
                                       {"solution", "-1", 'S', Use::ignored},
                                       {"gpualloc", "0", 'G', Use::ignored}};

using DriverValues = std::map<std::string, std::string>;

const DriverFlag* driver_flag(const std::string& word) {
  for (const DriverFlag& flag : kDriverFlags) {
    if (word == cat("--", flag.name) || word == cat("-", flag.letter)) return &flag;
  }
  return nullptr;
}

DriverValues read_flags(const Words& words, const std::string& lead) {
  DriverValues values;
  for (const DriverFlag& flag : kDriverFlags) values[flag.name] = flag.usual;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const DriverFlag* const flag = driver_flag(words[i]);
    if (flag == nullptr) misuse(lead, "'", words[i], "' is no flag of MIOpenDriver conv");
    if (i + 1 == words.size()) misuse(lead, "'", words[i], "' has no value");
    if (flag->use == Use::usual_alone && words[i + 1] != flag->usual) {
      misuse(lead, "'", words[i], " ", words[i + 1], "' cannot be said here, expected ",
             *flag->usual == '\0' ? "a line without it" : flag->usual);
    }
    values[flag->name] = words[i + 1];
  }
  return values;
}

DType driver_dtype(const std::string& word, const std::string& lead) {
  if (word == "conv") return DType::f32;
  if (word == "convfp16") return DType::f16;
  if (word == "convbfp16") return DType::bf16;
  misuse(lead, "'", word, "' is unknown, expected conv, convfp16 or convbfp16");
}

// The layouts of x, dy and dw; those of x and dy are alike.
void read_layouts(const DriverValues& values, const std::string& lead, Line& line) {
  const std::string first = line.is_3d ? "NCDHW" : "NCHW", last = line.is_3d ? "NDHWC" : "NHWC";
  std::map<std::string, std::string> layouts;
  for (const char* flag : {"in_layout", "out_layout", "fil_layout"}) {
    const std::string& layout = values.at(flag).empty() ? first : values.at(flag);
    check_known(cat(lead, flag), layout, {first, last});
    layouts[flag] = layout;
  }
  line.data_format = layouts["in_layout"];
  if (layouts["out_layout"] != line.data_format) {
    misuse(lead, "in_layout is ", line.data_format, " and out_layout ", layouts["out_layout"],
           ", expected one layout for both");
  }
  const std::string D = line.is_3d ? "D" : "";
  line.filter_format = layouts["fil_layout"] == first ? cat("OI", D, "HW") : cat("O", D, "HWI");
}

void read_pad_mode(const std::string& mode, const std::string& lead, Line& line) {
  check_known(cat(lead, "pad_mode"), mode, {"default", "same", "valid"});
  const auto plain = [&](std::int64_t LineAxis::*field, std::int64_t value) {
    return std::ranges::all_of(line.axis, [&](const LineAxis& a) { return a.*field == value; });
  };
  // As there: with dilations the mode has no effect.
  if (mode == "default" || !(plain(&LineAxis::d, 0) || plain(&LineAxis::k, 1))) return;
  for (LineAxis& axis : line.axis) {
    const std::int64_t rest = axis.i % axis.s;
    const std::int64_t both = std::max<std::int64_t>(axis.k - (rest == 0 ? axis.s : rest), 0);
    axis.p = mode == "same" ? both / 2 : 0;
  }
}

Line driver_line(const Words& words, const std::string& lead) {
  Line line;
  line.name = joined(words, "");
  line.dtype = driver_dtype(words[0], lead);
  const DriverValues values = read_flags(words, lead);
  const auto number = [&](const std::string& flag, std::int64_t least) {
    const std::string& text = values.at(flag);
    const std::int64_t value =
        number_in(lead, cat(flag, " ", text), text.data(), text.data() + text.size());
    if (value < least) misuse(lead, "'", flag, " ", text, "', expected at least ", least);
    return value;
  };
  const std::int64_t rank = number("spatial_dim", 0);
  if (rank != 2 && rank != 3) misuse(lead, "'spatial_dim ", rank, "', expected 2 or 3");
  line.is_3d = rank == 3;
  line.N = number("batchsize", 0);
  line.C = number("in_channels", 1);
  line.K = number("out_channels", 1);
  line.groups = std::max<std::int64_t>(number("group_count", 0), 1);
  line.axis[0] = kFlat;
  for (std::size_t a = line.is_3d ? 0 : 1; a < 3; ++a) {
    const auto of = [&](const char* what, std::int64_t least) {
      return number(cat(what, "_", kAxes[a]), least);
    };
    line.axis[a] = {of("in", 0),           0, of("fil", 1), of("conv_stride", 1), of("pad", 0),
                    of("dilation", 1) - 1, 0};
  }
  read_layouts(values, lead, line);
  read_pad_mode(values.at("pad_mode"), lead, line);
  for (LineAxis& axis : line.axis) axis.end_p = axis.p;
  return line;
}

MadeRequest request_of(const Line& line, const std::string& data_format) {
  MadeRequest request;
  request.name = line.name;
  request.dtype = line.dtype;
  request.K = line.K;
  WgradAttributes& a = request.attributes;
  const bool depthwise =
      !line.is_3d && line.groups > 1 && line.groups == line.C && line.K % line.C == 0;
  a.op = line.is_3d ? "conv3d" : depthwise ? "depthwise" : "conv2d";
  a.groups = line.groups;
  a.data_format = data_format.empty() ? line.data_format : data_format;
  a.filter_format = line.filter_format;
  request.input_shape = {line.N};
  const bool last = is_channels_last(a.op, a.data_format);
  if (!last) request.input_shape.push_back(line.C);
  for (std::size_t i = line.is_3d ? 0 : 1; i < 3; ++i) {
    const LineAxis& axis = line.axis[i];
    request.input_shape.push_back(axis.i);
    a.kernel.push_back(axis.k);
    a.strides.push_back(axis.s);
    a.dilations.push_back(axis.d + 1);
    a.explicit_paddings.insert(a.explicit_paddings.end(), {axis.p, axis.end_p});
  }
  if (last) request.input_shape.push_back(line.C);
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
