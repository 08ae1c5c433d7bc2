// manifest_fields.cpp - see manifest_fields.hpp.
#include "batch/manifest_fields.hpp"

#include <algorithm>
#include <set>

#include "report/report.hpp"

namespace convgrad::cli {
namespace {

constexpr int kMaxDepth = 32;     // of JSON; notes may be nested
constexpr int kMaxListDepth = 2;  // {"pads": [[0, 1], [1, 1]]}

void add_words(const std::string& field, const Json& value, Words& words, int depth = 0) {
  if (value.is_array()) {
    if (depth == kMaxListDepth)
      refuse_field(field, "lists within lists of lists, expected one list");
    for (const Json& element : value) add_words(field, element, words, depth + 1);
  } else if (value.is_string()) {
    if (!value.get_ref<const std::string&>().empty()) words.push_back(value.get<std::string>());
  } else if (value.is_number() || value.is_boolean()) {
    words.push_back(value.dump());
  } else if (value.is_object()) {
    refuse_field(field, "an object, expected a string, a number, true, false or a list");
  }
}

// Refuses what nlohmann takes in silence: a key that is there twice, and any depth.
class StrictParser {
 public:
  explicit StrictParser(const std::string& text) : text_(text), stream_(text) {}

  // Throws Error(input) if the text is no JSON.
  Json parse() {
    const auto check = [this](int depth, Json::parse_event_t event, const Json& parsed) {
      check_event(depth, event, parsed);
      return true;
    };
    try {
      return Json::parse(stream_, check);
    } catch (const Json::parse_error& error) {
      const std::size_t line = error.byte < 2 ? text_.npos : text_.rfind('\n', error.byte - 2);
      bad_input("is not JSON at column ", error.byte - (line + 1),
                ", expected an object such as {\"op\": \"conv2d\", ...} on a line of its own");
    } catch (const Json::out_of_range&) {
      bad_input("has a number that is too large");
    }
  }

  // Returns the line of what was read last.
  std::int64_t line() {
    const auto read = static_cast<std::ptrdiff_t>(
        stream_.rdbuf()->pubseekoff(0, std::ios_base::cur, std::ios_base::in));
    const std::ptrdiff_t last = std::max<std::ptrdiff_t>(read - 1, counted_);
    line_ += std::count(text_.begin() + counted_, text_.begin() + last, '\n');
    counted_ = last;
    return line_;
  }

  // Returns the lines on which the elements of an array begin.
  const std::vector<std::int64_t>& element_lines() const { return element_lines_; }

 private:
  void check_event(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) bad_input("nested too deeply, expected fields with values or lists");
    const bool begins =
        event == Event::object_start || event == Event::array_start || event == Event::value;
    if (depth == 1 && begins) element_lines_.push_back(line());
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event != Event::key) return;
    const std::string name = with_underscores(parsed.get<std::string>());
    if (!keys_.back().insert(name).second) refuse_field(name, "is there twice, expected once");
  }

  const std::string& text_;
  TextReader stream_;
  std::ptrdiff_t counted_ = 0;
  std::int64_t line_ = 1;
  std::vector<std::int64_t> element_lines_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

Fields fields_of(const Json& object) {
  if (!object.is_object()) {
    bad_input("is ", object.is_array() ? "an array" : "a value",
              ", expected an object such as {\"op\": \"conv2d\", ...}");
  }
  Fields fields;
  for (const auto& [key, value] : object.items()) {
    Field field{with_underscores(key), {}};
    if (field.name != "notes") add_words(field.name, value, field.words);
    fields.push_back(std::move(field));
  }
  return fields;
}

template <typename FieldsOf>
ManifestLine line_of(std::int64_t number, const FieldsOf& fields_of) {
  try {
    return {number, fields_of(), {}};
  } catch (const Error& error) {
    return {number, {}, error};
  }
}

std::vector<ManifestLine> json_lines(std::string_view text) {
  std::vector<ManifestLine> lines;
  std::int64_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line(text.substr(at, end - at));
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    lines.push_back(line_of(number, [&] { return fields_of(StrictParser(line).parse()); }));
  }
  return lines;
}

std::vector<ManifestLine> array_lines(const std::string& text) {
  StrictParser parser(text);
  Json array;
  try {
    array = parser.parse();
  } catch (const Error& error) {
    return {{parser.line(), {}, error}};
  }
  std::vector<ManifestLine> lines;
  for (std::size_t i = 0; i < array.size(); ++i) {
    lines.push_back(line_of(parser.element_lines()[i], [&] { return fields_of(array[i]); }));
  }
  return lines;
}

}  // namespace

std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<ManifestLine> manifest_lines(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_array = first != text.npos && text[first] == '[';
  return is_array ? array_lines(std::string(text)) : json_lines(text);
}

}  // namespace convgrad::cli
