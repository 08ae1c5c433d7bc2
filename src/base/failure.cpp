// failure.cpp - see failure.hpp.
#include "base/failure.hpp"

#include <cerrno>

namespace convgrad {

ErrorKind kind_of_failure(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return ErrorKind::runtime;
    default:
      return ErrorKind::input;
  }
}

}  // namespace convgrad
