// tensor_name.hpp - how an argument names a tensor: FILE.npy, FILE.npz:NAME, FILE.safetensors:NAME
// or - (standard input).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace convgrad {

struct TensorName {
  std::string file;                   // the whole argument unless member is set
  std::optional<std::string> member;  // of the archive file; "" in "FILE.npz:"
};

// An existing file whose name is the whole argument wins, then the longest existing regular file
// before a ':', then a file that is missing but called .npz or .safetensors. Looks at names alone,
// opens nothing.
TensorName split_tensor_name(const std::string& argument);

// file ends with .npz or .safetensors: archives, which are only read.
bool is_archive_name(const std::string& file);

// FILE:NAME for each array of an archive (those members of a .npz that end with .npy), the argument
// itself for anything else. Error(input) for an archive that is damaged or holds no array.
std::vector<std::string> tensors_in(const std::string& argument);

}  // namespace convgrad
