// array_names.hpp - what to say about the arrays that an archive has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convgrad {

inline constexpr std::string_view kTorchFile =
    "a torch.save file (save the tensor with safetensors or numpy.save)";

// Error(input): the archive has no array called member. names is what there is.
[[noreturn]] void refuse_missing_array(const std::string& file, const std::string& member,
                                       const std::vector<std::string>& names);

// Error(input): the archive is named without one of its arrays.
[[noreturn]] void refuse_whole_archive(const std::string& file,
                                       const std::vector<std::string>& names);

}  // namespace convgrad
