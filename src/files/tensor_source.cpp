#include "files/tensor_source.hpp"

#include <array>
#include <filesystem>
#include <span>
#include <unordered_map>

#include "base/messages.hpp"
#include "files/safetensors.hpp"

namespace convgrad {
namespace {

enum class Container { none, zip, safetensors };

bool has_extension(std::string_view file, std::string_view extension) {
  return file.size() > extension.size() && file.ends_with(extension);
}

// Tells what a regular file is by its first bytes, or by its name where those are damaged. The
// start of a .safetensors file, a length and '{', says least, so it comes last.
Container container_of(FileSource& file, const std::string& path) {
  if (!file.seekable() || file.size() == 0) return Container::none;
  std::array<std::byte, 9> buffer;
  const std::int64_t got = file.read(buffer.data(), std::ssize(buffer), 0);
  const std::span<const std::byte> start(buffer.data(), static_cast<std::size_t>(got));
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text.starts_with("\x93NUMPY")) return Container::none;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return Container::zip;
  if (looks_like_safetensors(start, file.size())) return Container::safetensors;
  if (is_archive_name(path)) refuse_other_format(text, file.name());
  if (has_extension(path, ".npz")) return Container::zip;
  return has_extension(path, ".safetensors") ? Container::safetensors : Container::none;
}

// Opens the elements alone. A file's size must be theirs; a stream's is known at its end.
TensorSource open_raw(std::unique_ptr<FileSource> file, const std::string& text,
                      const std::string& argument) {
  NpyHeader header = raw_header(text, argument);
  if (file->seekable() && file->size() != header.payload_bytes) {
    file->refuse(
        "has ", file->size(), " bytes, but ", text, " is ", header.element_count, " x ",
        header.item_bytes, " = ", header.payload_bytes,
        Hint(file->name().ends_with(".npy") ? "leave the dtype and the shape of a .npy file out"
                                            : "correct the dtype or the shape"));
  }
  file->rename(argument);
  return {std::move(file), std::move(header)};
}

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
    if (name == "data.pkl" || name.ends_with("/data.pkl")) bad_input(file, ": is ", kTorchFile);
  }
}

[[noreturn]] void refuse_whole_archive(const std::string& file,
                                       const std::vector<std::string>& names) {
  refuse_torch_file(file, names);
  if (names.empty()) bad_input(file, ": is an archive without any array, expected one");
  // Standard input has no name to put before ':', so the message says FILE.
  const std::string path = file == "standard input" ? "FILE" : file;
  bad_input(file, ": is an archive, expected one of its arrays, ", path, ":NAME with NAME ",
            some(names));
}

}  // namespace

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool is_special(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !is_regular(path);
}

bool is_archive_name(const std::string& file) {
  return has_extension(file, ".npz") || has_extension(file, ".safetensors");
}

bool is_raw(const TensorName& name) {
  return name.member && !is_archive_name(name.file) && looks_like_raw(*name.member);
}

TensorName split_tensor_name(const std::string& argument) {
  std::error_code ignored;
  if (argument == "-" || std::filesystem::exists(argument, ignored))
    return {argument, std::nullopt};
  TensorName missing{argument, std::nullopt};
  for (std::size_t colon = argument.rfind(':'); colon != argument.npos && colon > 0;
       colon = argument.rfind(':', colon - 1)) {
    TensorName name{argument.substr(0, colon), argument.substr(colon + 1)};
    if (is_regular(name.file)) return name;
    if (!missing.member && (is_archive_name(name.file) || is_raw(name))) missing = std::move(name);
  }
  return missing;
}

bool is_standard_input(const std::string& argument) {
  return split_tensor_name(argument).file == "-";
}

bool is_archive(const std::string& path) {
  if (!is_regular(path)) return false;
  FileSource file(path);
  return container_of(file, path) != Container::none;
}

struct TensorArchive::State {
  std::shared_ptr<ZipArchive> zip;  // or, without:
  Safetensors tensors = {};
  std::unordered_map<std::string, const SafeTensor*> places = {};
};

TensorArchive::TensorArchive(const std::string& path)
    : path_(path), state_(std::make_unique<State>()) {
  auto file = std::make_unique<FileSource>(path);
  if (container_of(*file, path) == Container::zip) {
    state_->zip = open_zip_archive(std::move(file));
    return;
  }
  state_->tensors = read_safetensors(*file);
  for (const SafeTensor& tensor : state_->tensors.tensors) {
    state_->places.emplace(tensor.name, &tensor);
  }
}
TensorArchive::~TensorArchive() = default;
TensorArchive::TensorArchive(TensorArchive&&) noexcept = default;

std::vector<std::string> TensorArchive::names(bool arrays_only) const {
  if (state_->zip) return zip_array_names(*state_->zip, arrays_only);
  std::vector<std::string> names;
  for (const SafeTensor& tensor : state_->tensors.tensors) names.push_back(tensor.name);
  return names;
}

TensorSource TensorArchive::open(const std::string& member) const {
  const std::string argument = cat(path_, ":", member);
  if (state_->zip) return {open_zip_member(state_->zip, member, argument), std::nullopt};
  auto file = std::make_unique<FileSource>(path_);
  const auto found = state_->places.find(member);
  if (found == state_->places.end()) refuse_missing_array(file->name(), member, names());
  file->rename(argument);
  return {std::move(file), npy_header_of(*found->second, state_->tensors.data_offset, argument)};
}

TensorSource open_tensor(const std::string& argument) {
  const TensorName name = split_tensor_name(argument);
  auto file = std::make_unique<FileSource>(name.file);
  if (is_raw(name)) return open_raw(std::move(file), *name.member, argument);
  if (container_of(*file, name.file) == Container::none) {
    if (!name.member) return {std::move(file), std::nullopt};
    if (!file->seekable()) {
      file->refuse("is a stream, but an archive is not read front to back",
                   Hint("save it to a file first"));
    }
    if (file->size() == 0) file->refuse("is empty, expected a .npz or .safetensors archive");
    bad_input(argument, ": no such file, and ", file->name(),
              " is no archive (.npz or .safetensors) whose arrays could be named",
              Hint("elements alone need dtype and shape, ", file->name(), ":float32[8,56,56,64]"));
  }
  const TensorArchive archive(name.file);
  if (!name.member) refuse_whole_archive(file->name(), archive.names(false));
  return archive.open(*name.member);
}

void refuse_missing_array(const std::string& file, const std::string& member,
                          const std::vector<std::string>& names) {
  if (member.empty()) refuse_whole_archive(file, names);
  refuse_torch_file(file, names);
  if (names.empty()) bad_input(file, ": is an archive without any array");
  bad_input(file, ": has no array '", shortened(member, 60), "', expected ", some(names),
            did_you_mean(member, names));
}

}  // namespace convgrad
