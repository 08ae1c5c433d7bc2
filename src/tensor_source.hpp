// tensor_source.hpp - opens a tensor, whatever form its name has.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "byte_source.hpp"
#include "convgrad/npy.hpp"

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
