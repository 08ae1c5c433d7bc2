// names.hpp - how formats are spelled, in the order of their enumerators, channels_last first.
#pragma once

#include <span>

#include "convgrad/problem.hpp"

namespace convgrad {

using Names = std::span<const char* const>;

inline constexpr const char* kDataFormats[][2] = {{"NHWC", "NCHW"}, {"NDHWC", "NCDHW"}};
inline constexpr const char* kFilterFormats[][3] = {{"HWIO", "OIHW", "OHWI"},
                                                    {"DHWIO", "OIDHW", "ODHWI"}};

inline Names data_formats(Op op) { return kDataFormats[op == Op::conv3d ? 1 : 0]; }
inline Names filter_formats(Op op) { return kFilterFormats[op == Op::conv3d ? 1 : 0]; }

}  // namespace convgrad
