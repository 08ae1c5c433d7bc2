// own_fields.cpp - the fields of a job that are no options; see manifest_fields.hpp.

#include <CLI/StringTools.hpp>
#include <algorithm>

#include "batch/batch.hpp"
#include "batch/manifest_fields.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t kMaxNameBytes = 200;
constexpr std::string_view kHashEnding = "_sha256";

bool has(const Fields& fields, std::string_view name) { return find(fields, name) != nullptr; }

std::string word_of(const std::string& name, const Words& words) {
  if (words.size() != 1) refuse_field(name, "a list, expected one value");
  return words[0];
}

// Removes a field and returns its words, or none if there was none.
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

void take_hashes(Fields& fields, BatchJob& job) {
  const Fields all = fields;
  for (const Field& field : all) {
    if (!field.name.ends_with(kHashEnding)) continue;
    const std::string word = *take(fields, field.name), digits = CLI::detail::to_lower(word);
    if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != digits.npos) {
      refuse_field(field.name, "'", word,
                   "', expected 64 hexadecimal digits, as sha256sum prints them");
    }
    const std::string file = field.name.substr(0, field.name.size() - kHashEnding.size());
    if (!has(fields, file)) refuse_field(field.name, "is given, but ", file, " is not");
    job.hashes[file] = "sha256:" + digits;
  }
}

}  // namespace

std::vector<std::string> own_field_names(const std::vector<Command>& commands) {
  std::vector<std::string> names = {"name", "command", "notes", "dtype"};
  for (const Command& command : commands) {
    for (const Row& row : command.rows) {
      const bool is_read = row.traits.file == FileUse::read || row.traits.file == FileUse::updated;
      if (is_read) names.push_back(with_underscores(row.name()) + std::string(kHashEnding));
    }
  }
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
  take_hashes(fields, job);
  job.options.problem.dtype = take(fields, "dtype").value_or("");
}

}  // namespace convgrad::cli
