// tensor_name.hpp - the forms in which an argument names a tensor: FILE.npy, FILE.npz:NAME,
// FILE.safetensors:NAME, - (standard input), or FILE:DTYPE[EXTENTS] (elements alone; FILE may be
// -).
#pragma once

#include <optional>
#include <string>

namespace convgrad {

struct TensorName {
  std::string file;  // the whole argument if there is no member
  // An archive's array is a member, "" in "FILE.npz:"; so are the dtype and shape of a raw file.
  std::optional<std::string> member;
};

// Tells whether name is a raw file's, x.bin:bfloat16[16,56,56,64], and not an archive's array.
bool is_raw(const TensorName& name);

// An existing file whose name is the whole argument wins, then the longest existing regular file
// before a ':', then one that is missing, a stream or - where an archive's ending or DTYPE[EXTENTS]
// shows what is meant. Looks at names alone, opens nothing.
TensorName split_tensor_name(const std::string& argument);

// Tells whether argument is - or, of a raw tensor, -:DTYPE[EXTENTS].
bool is_standard_input(const std::string& argument);

// Tells whether file ends with .npz or .safetensors.
bool is_archive_name(const std::string& file);

}  // namespace convgrad
