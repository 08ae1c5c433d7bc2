// array_names.cpp - says which arrays an archive has where one is missing or none is named.
#include "base/messages.hpp"
#include "convgrad/error.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

std::string shortened(const std::string& name, std::size_t most_bytes) {
  return cat(cut_short(name, most_bytes), name.size() > most_bytes ? "..." : "");
}

// Returns "x, dy or w"; of long or many names as many as fit on a line.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxName = 40, kMaxTotal = 160;
  std::vector<std::string> shown;
  std::size_t total = 0;
  for (const std::string& name : names) {
    shown.push_back(shortened(name, kMaxName));
    total += shown.back().size() + 2;
    if (total > kMaxTotal) break;
  }
  if (shown.size() < names.size()) shown.push_back(cat("another of its ", names.size()));
  return join_or(shown);
}

// torch.save and torch.jit.save pickle what is not numbers into this member of the zip archive.
void refuse_torch_file(const std::string& file, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == "data.pkl" || name.ends_with("/data.pkl")) {
      bad_input(file, ": is ", kTorchFile);
    }
  }
}

}  // namespace

void refuse_missing_array(const std::string& file, const std::string& member,
                          const std::vector<std::string>& names) {
  if (member.empty()) refuse_whole_archive(file, names);
  refuse_torch_file(file, names);
  if (names.empty()) bad_input(file, ": is an archive without any array");
  bad_input(file, ": has no array '", shortened(member, 60), "', expected ", some(names),
            did_you_mean(member, names));
}

void refuse_whole_archive(const std::string& file, const std::vector<std::string>& names) {
  refuse_torch_file(file, names);
  if (names.empty()) {
    bad_input(file, ": is an archive without any array, expected one");
  }
  // Standard input has no name to put before ':', so the message says FILE.
  const std::string path = file == "standard input" ? "FILE" : file;
  bad_input(file, ": is an archive, expected one of its arrays, ", path, ":NAME with NAME ",
            some(names));
}

}  // namespace convgrad
