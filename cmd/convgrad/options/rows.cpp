// rows.cpp - what a row of the table says of an option: its names, and the files that it names.
#include <algorithm>

#include "options/arguments.hpp"
#include "options/table.hpp"

namespace convgrad::cli {
namespace {

// Returns the paths that an option names.
Words paths_of(const Value& value) {
  if (const auto* text = std::get_if<std::string*>(&value)) return {**text};
  if (const auto* again = std::get_if<Again>(&value)) return *again->words;
  if (const auto* words = std::get_if<Words*>(&value)) return **words;
  const Words& numbers = *std::get<NumberList>(value).words;
  return is_file_name(numbers) ? numbers : Words{};
}

}  // namespace

Words Row::long_names() const {
  Words found = {names.name, names.alias, names.off};
  std::erase(found, "");
  return found;
}

void Rows::add(const OptionNames& names, const char* type, const char* group, const char* help,
               Value value, const Traits& traits) {
  push_back({names, type, group, help, value, traits});
}

const Row* Rows::find(const std::string& name) const {
  const auto found = std::ranges::find_if(
      *this, [&](const Row& row) { return std::ranges::count(row.long_names(), name) > 0; });
  return found == end() ? nullptr : &*found;
}

std::vector<NamedFile> Rows::files() const {
  std::vector<NamedFile> files;
  for (const Row& row : *this) {
    FileUse use = row.traits.file;
    if (use == FileUse::no) continue;
    const std::string& name = row.name();
    if (use == FileUse::updated) {
      const bool update = *std::get<bool*>(find("update-" + name)->value);
      use = update ? FileUse::written : FileUse::read;
    }
    const std::string flag = row.traits.called != nullptr ? row.traits.called
                             : name.empty()               ? row.names.place
                                                          : "--" + name;
    for (const std::string& path : paths_of(row.value)) files.push_back({flag, path, use});
  }
  return files;
}

}  // namespace convgrad::cli
