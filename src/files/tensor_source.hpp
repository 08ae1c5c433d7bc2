// tensor_source.hpp - opens a tensor, whatever form its name has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/npy.hpp"
#include "files/byte_source.hpp"

namespace convgrad {

struct TensorSource {
  std::unique_ptr<ByteSource> bytes;
  // Of a .safetensors member; otherwise the bytes begin with a .npy header and are nothing else.
  std::optional<NpyHeader> header;
};

// argument as split_tensor_name() takes it. Error(input) that lists the names there are, with a
// suggestion, where an archive has no such array.
TensorSource open_tensor(const std::string& argument);

// What the archive in a file holds, names of arrays without .npy; nothing unless the file is there,
// a regular one, and an archive. Error(input) if it is damaged.
std::vector<std::string> members_of_archive(const std::string& file);

}  // namespace convgrad
