// file_hash.hpp - SHA-256 of files.
#pragma once

#include <string>

namespace convgrad::cli {

// "sha256:" and 64 hexadecimal digits, as sha256sum prints them, of all bytes of a file.
// Error(input) if it is no regular file or cannot be opened, Error(runtime) if reading fails.
std::string hash_of_file(const std::string& path);

}  // namespace convgrad::cli
