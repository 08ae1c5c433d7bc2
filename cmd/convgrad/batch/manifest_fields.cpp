// manifest_fields.cpp - see manifest_fields.hpp.
#include "batch/manifest_fields.hpp"

#include <algorithm>
#include <set>

#include "batch/csv.hpp"
#include "report/report.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr int kMaxDepth = 32;     // of JSON, for the sake of notes
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
Json parse_object(const std::string& line) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) {
      bad_input("nested too deeply, expected fields with values or lists");
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string name = with_underscores(parsed.get<std::string>());
      if (!keys.back().insert(name).second) refuse_field(name, "is there twice, expected once");
    }
    return true;
  };
  Json object;
  try {
    object = Json::parse(line, check);
  } catch (const Json::parse_error& error) {
    bad_input("is not JSON at column ", error.byte,
              ", expected an object such as {\"op\": \"conv2d\", ...} on a line of its own");
  } catch (const Json::out_of_range&) {
    bad_input("has a number that is too large");
  }
  if (!object.is_object()) {
    bad_input("is ", object.is_array() ? "an array" : "a value",
              ", expected an object such as {\"op\": \"conv2d\", ...}");
  }
  return object;
}

Fields json_fields(const std::string& line) {
  Fields fields;
  const Json object = parse_object(line);
  for (const auto& [key, value] : object.items()) {
    Field field{with_underscores(key), {}};
    if (field.name != "notes") add_words(field.name, value, field.words);
    fields.push_back(std::move(field));
  }
  return fields;
}

Fields csv_fields(const CsvRow& header, const CsvRow& row) {
  if (!row.error.empty()) bad_input(row.error);
  if (row.cells.size() != header.cells.size()) {
    bad_input(row.cells.size(), " cells, expected ", header.cells.size(), " as in line ",
              header.line);
  }
  Fields fields;
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    Field field{with_underscores(header.cells[i]), {}};
    if (!row.cells[i].empty()) field.words.push_back(row.cells[i]);
    fields.push_back(std::move(field));
  }
  return fields;
}

Fields header_fields(const CsvRow& header) {
  if (!header.error.empty()) bad_input(header.error);
  Fields fields;
  std::set<std::string> names;
  for (const std::string& cell : header.cells) {
    if (cell.empty()) bad_input("column ", names.size() + 1, " has no field name");
    fields.push_back({with_underscores(cell), {}});
    if (!names.insert(fields.back().name).second) {
      refuse_field(cell, "is there twice, expected once");
    }
  }
  return fields;
}

template <typename FieldsOf>
ManifestLine line_of(std::int64_t number, std::size_t size, const FieldsOf& fields_of) {
  ManifestLine line;
  line.number = number;
  try {
    if (size > kMaxLineBytes) {
      bad_input("is ", size, " bytes, expected at most ", kMaxLineBytes);
    }
    line.fields = fields_of();
  } catch (const Error& error) {
    line.error = error.what();
  }
  return line;
}

std::vector<ManifestLine> json_lines(std::string_view text) {
  std::vector<ManifestLine> lines;
  std::int64_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    lines.push_back(line_of(number, line.size(), [&] { return json_fields(std::string(line)); }));
  }
  return lines;
}

std::vector<ManifestLine> csv_lines(std::string_view text) {
  const std::vector<CsvRow> rows = parse_csv(text);
  if (rows.empty()) return {};
  std::vector<ManifestLine> lines = {
      line_of(rows[0].line, 0, [&] { return header_fields(rows[0]); })};
  lines[0].is_header = true;
  if (!lines[0].error.empty()) return lines;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    std::size_t size = 0;
    for (const std::string& cell : rows[i].cells) size += cell.size();
    lines.push_back(line_of(rows[i].line, size, [&] { return csv_fields(rows[0], rows[i]); }));
  }
  return lines;
}

}  // namespace

std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<ManifestLine> manifest_lines(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool says_neither = !name.ends_with(".csv") && !name.ends_with(".jsonl");
  const bool is_csv =
      name.ends_with(".csv") || (says_neither && first != text.npos && text[first] != '{');
  return is_csv ? csv_lines(text) : json_lines(text);
}

}  // namespace convgrad::cli
