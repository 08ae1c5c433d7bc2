// text_file.hpp - files of text that are read whole: manifests, states, suites.
#pragma once

#include <cstddef>
#include <string>

namespace convgrad {

struct TextFile {
  std::string prefix;                               // of messages: "--suite: ", or ""
  std::string expected;                             // "a report"
  std::size_t most_bytes = std::size_t{256} << 20;  // an endless device is none
};

// Reads all of a file, or of standard input ("-"). A read that fails is an Error(runtime) and never
// taken for the file's end; Error(input) for a folder, a zero byte, and what is too large.
std::string read_text(const std::string& path, const TextFile& kind);

// Reads no more than the first bytes of a file, whatever they are; its errors are those of
// read_text(), all prefixed.
std::string read_start(const std::string& path, std::size_t bytes, const std::string& prefix);

}  // namespace convgrad
