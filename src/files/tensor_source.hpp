// tensor_source.hpp - opens a tensor, whatever form its name has.
#pragma once

#include <memory>
#include <optional>
#include <string>

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

}  // namespace convgrad
