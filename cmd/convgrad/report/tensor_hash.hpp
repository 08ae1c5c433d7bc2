// tensor_hash.hpp - a name for the values of an array, by which two runs can tell whether they had
// the same data.
#pragma once

#include <nettle/sha2.h>

#include <cstddef>
#include <string>

namespace convgrad::cli {

// Computes SHA-256 of the values in C order, little-endian. The form of the file (byte order,
// Fortran order, format version) does not enter, nor do dtype and shape: in Python, for a
// little-endian array, it is hashlib.sha256(array.tobytes()).
class TensorHash {
 public:
  TensorHash();
  // Adds the next values, little-endian.
  void add(const void* bytes, std::size_t count);
  // Returns "sha256:" and 64 hexadecimal digits. It may be called once, after the last add().
  std::string text();

 private:
  sha256_ctx state_;
};

// Returns the hash of all values of a .npy file.
std::string hash_of_values(const std::string& path);

// Returns that of all bytes of a file, as sha256sum prints them. Throws Error(input) if it is no
// regular file or cannot be opened, and Error(runtime) if reading fails.
std::string hash_of_file(const std::string& path);

}  // namespace convgrad::cli
