// failure.hpp - whose fault a failed system call is.
#pragma once

#include "convgrad/error.hpp"

namespace convgrad {

// By an errno: no space, memory or descriptors and a failing disk are runtime, all else is input.
ErrorKind kind_of_failure(int error);

}  // namespace convgrad
