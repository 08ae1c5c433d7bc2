// failure.hpp - whose fault a failed system call is.
#pragma once

#include <cerrno>

#include "convgrad/error.hpp"

namespace convgrad {

// `error` is an errno. Missing space, memory or descriptors and a failing disk are runtime errors,
// all others are input errors.
inline ErrorKind kind_of_failure(int error) {
  for (const int machine : {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM}) {
    if (error == machine) return ErrorKind::runtime;
  }
  return ErrorKind::input;
}

}  // namespace convgrad
