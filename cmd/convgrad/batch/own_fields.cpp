// own_fields.cpp - the fields of a job that are no options; see manifest_fields.hpp.

#include <CLI/StringTools.hpp>
#include <algorithm>

#include "batch/batch.hpp"
#include "batch/manifest_fields.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t kMaxNameBytes = 200;
constexpr const char* kHashed[] = {"input", "out_backprop", "result", "golden"};

bool has(const Fields& fields, std::string_view name) { return find(fields, name) != nullptr; }

std::string word_of(const std::string& name, const Words& words) {
  if (words.size() != 1) refuse_field(name, "a list, expected one value");
  return words[0];
}

// The field is then gone; no words if there was none.
Words take_words(Fields& fields, std::string_view name) {
  const Field* field = find(fields, name);
  if (field == nullptr) return {};
  Words words = field->words;
  fields.erase(fields.begin() + (field - fields.data()));
  return words;
}

std::optional<std::string> take(Fields& fields, const std::string& name) {
  const Words words = take_words(fields, name);
  if (words.empty()) return {};
  return word_of(name, words);
}

void take_hash(Fields& fields, const std::string& tensor, BatchJob& job) {
  const std::string name = tensor + "_sha256";
  const auto word = take(fields, name);
  if (!word) return;
  const std::string digits = CLI::detail::to_lower(*word);
  if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != digits.npos) {
    refuse_field(name, "'", *word, "', expected 64 hexadecimal digits, as sha256sum prints them");
  }
  if (!has(fields, tensor)) refuse_field(name, "is given, but ", tensor, " is not");
  job.hashes[tensor] = "sha256:" + digits;
}

// Resolved pads, as a report has them.
void take_pads(Fields& fields) {
  const auto pads = std::ranges::find(fields, "pads", &Field::name);
  if (pads == fields.end()) return;
  for (const char* other : {"padding", "explicit_paddings"}) {
    if (has(fields, other)) refuse_field("pads", "given with ", other, ", expected only one");
  }
  pads->name = "explicit_paddings";
  fields.push_back({"padding", {"EXPLICIT"}});
}

// A report's filter_shape, in the order of filter_format: it says what the filter is, and is
// compared with what comes out.
void take_filter_shape(Fields& fields, BatchJob& job) {
  const Words words = take_words(fields, "filter_shape");
  if (words.empty()) return;
  const std::vector<std::int64_t> shape = parse_numbers("filter_shape", words);
  job.expected["filter_shape"] = shape;
  for (const char* other : {"filter_sizes", "kernel", "filter_like"}) {
    if (has(fields, other)) return;
  }
  const Field* format = find(fields, "filter_format");
  const std::string order =
      format == nullptr ? "HWIO" : in_tensorflow_letters(word_of(format->name, format->words));
  const bool tensorflows = order.ends_with("IO");
  Field filter{tensorflows ? "filter_sizes" : "kernel", {}};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool is_channel = i < order.size() && (order[i] == 'I' || order[i] == 'O');
    if (tensorflows || !is_channel) filter.words.push_back(std::to_string(shape[i]));
  }
  fields.push_back(std::move(filter));
}

}  // namespace

std::vector<std::string> own_field_names() {
  std::vector<std::string> names = {"name", "command",      "notes",         "pads",
                                    "line", "filter_shape", "tensorflow_op", "dtype"};
  for (const std::string tensor : kHashed) names.push_back(tensor + "_sha256");
  return names;
}

const Field* find(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

void take_own_fields(Fields& fields, BatchJob& job) {
  take_words(fields, "notes");
  job.name = take(fields, "name").value_or(cat("line ", job.line));
  if (job.name.size() > kMaxNameBytes) {
    refuse_field("name", job.name.size(), " bytes, expected at most ", kMaxNameBytes);
  }
  job.verifies = !has(fields, "output") || has(fields, "golden") || has(fields, "result");
  if (const auto command = take(fields, "command")) {
    check_known("command", *command, {"compute", "verify"}, ErrorKind::input);
    job.verifies = *command == "verify";
  }
  for (const char* tensor : kHashed) take_hash(fields, tensor, job);
  for (const char* name : {"dtype", "line", "tensorflow_op"}) {
    if (const auto word = take(fields, name)) job.expected[name] = *word;
  }
  if (job.expected.contains("tensorflow_op") && !has(fields, "op")) {
    fields.push_back({"op", {job.expected["tensorflow_op"].get<std::string>()}});
  }
  take_pads(fields);
  take_filter_shape(fields, job);
}

}  // namespace convgrad::cli
