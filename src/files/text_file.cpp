#include "files/text_file.hpp"

#include <cstring>
#include <vector>

#include "files/byte_source.hpp"

namespace convgrad {

std::string read_text(const std::string& path, const TextFile& kind) {
  FileSource file(path, kind.prefix, kind.expected);
  std::string text;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  for (;;) {
    const std::int64_t count =
        file.read(piece.data(), std::ssize(piece), static_cast<std::int64_t>(text.size()));
    if (count == 0) return text;
    text.append(reinterpret_cast<const char*>(piece.data()), static_cast<std::size_t>(count));
    if (std::memchr(piece.data(), '\0', static_cast<std::size_t>(count)) != nullptr) {
      file.refuse("is not text, expected ", kind.expected);
    }
    if (text.size() > kind.most_bytes) {
      file.refuse("is larger than ", kind.most_bytes >> 20, " MiB, expected ", kind.expected);
    }
  }
}

std::string read_start(const std::string& path, std::size_t bytes, const std::string& prefix) {
  FileSource file(path, prefix);
  std::string start(bytes, '\0');
  start.resize(static_cast<std::size_t>(
      file.read(reinterpret_cast<std::byte*>(start.data()), static_cast<std::int64_t>(bytes), 0)));
  return start;
}

}  // namespace convgrad
