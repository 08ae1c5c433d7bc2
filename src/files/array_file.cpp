// array_file.cpp - see array_file.hpp. The formats are those that npy.hpp and safetensors.hpp name.
#include "convgrad/array_file.hpp"

#include <algorithm>
#include <optional>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/npy.hpp"
#include "files/json.hpp"
#include "files/npz_writer.hpp"
#include "files/safetensors.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

constexpr const char* kUsualMember = "dw";

// Refuses names that some reader of the format would not take for the same.
void check_member(const std::string& argument, const ArrayTarget& target) {
  const bool printable =
      std::ranges::all_of(target.member, [](char c) { return c > ' ' && c < 127; });
  if (target.member.empty() || !printable || target.member.ends_with('/') ||
      target.member == "__metadata__") {
    misuse(argument, ": '", target.member, "' cannot be the name of an array, expected letters, ",
           "digits and signs, as in ", target.file, ":", kUsualMember);
  }
}

// Returns the header's length, the header, and spaces after it so that the elements are aligned.
std::string safetensors_header(const std::string& member, DType dtype,
                               std::span<const std::int64_t> shape, std::uint64_t bytes) {
  constexpr std::size_t kAlignment = 8;
  Json header;
  header[member] = {{"dtype", safetensors_dtype(dtype)},
                    {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                    {"data_offsets", {0, bytes}}};
  std::string json = header.dump();
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  std::string length;
  for (std::size_t i = 0; i < 8; ++i) length += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

void check_kept(const ArrayTarget& target) {
  check_archive_is_kept(
      target.file, target.member.empty() ? std::vector<std::string>() : std::vector{target.member});
}

}  // namespace

ArrayTarget array_target(const std::string& argument, bool raw) {
  const TensorName name = split_tensor_name(argument);
  if (is_raw(name)) {
    misuse(argument, ": dtype and shape of what is written follow from the problem",
           Hint("name ", name.file, " and add --raw"));
  }
  ArrayTarget target{argument, raw ? ArrayFormat::raw : ArrayFormat::npy, ""};
  if (is_archive_name(name.file)) {
    target = {name.file, name.file.ends_with(".npz") ? ArrayFormat::npz : ArrayFormat::safetensors,
              name.member.value_or(kUsualMember)};
    if (target.format == ArrayFormat::npz && target.member.ends_with(".npy")) {
      target.member.resize(target.member.size() - 4);  // as numpy.load has it
    }
    check_member(argument, target);
  }
  if (raw && (!target.member.empty() || argument.ends_with(".npy"))) {
    misuse("--raw: ", argument, " is named after a format with a header, expected another ending, ",
           "such as .bin", Hint("or leave --raw out"));
  }
  return target;
}

void check_archive_is_kept(const std::string& file, const std::vector<std::string>& own) {
  if (file.ends_with(".npz") && is_special(file)) {
    misuse(file, ": is no regular file, expected one for an archive", Hint("write .npy to it"));
  }
  std::vector<std::string> others;
  try {
    if (!is_archive(file)) return;
    others = TensorArchive(file).names(false);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    // What is in a damaged archive cannot be seen, so it might be lost.
    misuse(error, Hint("it is not replaced: remove it, or name another file"));
  }
  std::erase_if(others, [&](const std::string& name) { return std::ranges::count(own, name) > 0; });
  if (others.empty()) return;
  misuse(file, ": is an archive that holds '", cut_short(others[0], 60), "'",
         others.size() > 1 ? cat(" and ", others.size() - 1, " more") : "",
         " and would be replaced", Hint("remove it, or name another file"));
}

void check_array_output(const std::string& argument, const OutputOptions& options) {
  const ArrayTarget target = array_target(argument, options.raw);
  check_output(target.file, options);
  check_kept(target);
}

struct ArrayFile::State {
  OutputFile file;
  std::optional<NpzWriter> archive = {};
};

ArrayFile::ArrayFile(const std::string& argument, DType dtype, std::span<const std::int64_t> shape,
                     const OutputOptions& options) {
  const ArrayTarget target = array_target(argument, options.raw);
  check_kept(target);
  state_.reset(new State{OutputFile(target.file, options)});
  const auto bytes =
      static_cast<std::uint64_t>(checked_product(shape).value() * dtype_bytes(dtype));
  const std::string npy = npy_header_text(dtype, shape);
  if (target.format == ArrayFormat::npz) {
    state_->archive.emplace(state_->file);
    state_->archive->begin(target.member, npy.size() + bytes);
  }
  if (target.format == ArrayFormat::raw) return;
  const std::string header = target.format == ArrayFormat::safetensors
                                 ? safetensors_header(target.member, dtype, shape, bytes)
                                 : npy;
  write(header.data(), header.size());
}

ArrayFile::~ArrayFile() = default;

void ArrayFile::write(const void* bytes, std::size_t count) {
  if (state_->archive) {
    state_->archive->append({static_cast<const std::byte*>(bytes), count});
  } else {
    state_->file.write(bytes, count);
  }
}

void ArrayFile::commit() {
  if (state_->archive) state_->archive->finish();
  state_->file.commit();
}

}  // namespace convgrad
