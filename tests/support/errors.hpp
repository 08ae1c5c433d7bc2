// errors.hpp - what a call is refused with.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "convgrad/error.hpp"

namespace convgrad::testing {

// The Error that f throws; nothing if it throws none. Any other exception fails the test.
template <typename Function>
std::optional<Error> error_of(Function&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// f throws an Error of that kind, whose one line of sensible length starts with a name and a colon,
// if there is a name, and has the text.
template <typename Function>
void check_error(ErrorKind kind, std::string_view name, std::string_view text, Function&& f) {
  const std::optional<Error> error = error_of(f);
  CHECK_MESSAGE(error.has_value(), "no error, expected: ", std::string(text));
  if (!error) return;
  const std::string message = error->what();
  CAPTURE(message);
  CAPTURE(text);
  CHECK(error->kind() == kind);
  if (!name.empty()) CHECK(message.starts_with(cat(name, ": ")));
  CHECK(std::ranges::none_of(message, [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  CHECK(message.size() < 1000);
  CHECK(message.find(text) != std::string::npos);
}

}  // namespace convgrad::testing
