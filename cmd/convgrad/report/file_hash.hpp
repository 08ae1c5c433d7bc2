// file_hash.hpp - SHA-256 of files, and whether a file is still what was hashed.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace convgrad::cli {

// "sha256:" and 64 hexadecimal digits, as sha256sum prints them.
std::string hash_of_text(std::string_view text);

// The same of all bytes of a file. Error(input) if it is no regular file or cannot be opened,
// Error(runtime) if reading fails.
std::string hash_of_file(const std::string& path);

// A hash of a file, and what the system said of the file before it was taken.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path);

  const std::string& hash() const { return hash_; }
  // False if the file was changed or replaced since. A file that was written just before it was
  // hashed is read again, since times of change are not exact.
  bool unchanged() const;

 private:
  struct Stamp {
    unsigned long long device = 0, inode = 0;
    long long size = -1;
    long long modified_s = 0, modified_ns = 0, changed_s = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::string& path);

  std::string path_;
  Stamp stamp_;
  std::time_t taken_;
  std::string hash_;
};

}  // namespace convgrad::cli
