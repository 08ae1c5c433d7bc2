// error.hpp - the one exception type of the library.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace convgrad {

// The kind says why a call failed. The values are the program's exit statuses.
enum class ErrorKind {
  usage = 2,        // the request itself: unknown name, flags that exclude each other
  input = 3,        // a file, dtype, shape or attribute
  unavailable = 4,  // legal, but not on this machine or in this build
  runtime = 5,      // memory, device or disk, while running
};

// Writes control bytes (a file name may hold any) as \xNN, so that text stays one printable line.
std::string one_line(std::string_view text);

// Streams of the standard take missing memory for the end of the text, and leave the rest out: half
// a header, half a file's name. These pass std::bad_alloc on.
class TextWriter : public std::ostringstream {
 public:
  TextWriter() { exceptions(std::ios_base::badbit); }
};
class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text) : std::istringstream(text) {
    exceptions(std::ios_base::badbit);
  }
};

// Joins the arguments as operator<< writes them (g++ 12 has no std::format). Words and whole
// numbers need no stream, which takes longer to make than a small gradient to sum.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  const auto add = [&text]<typename Part>(const Part& part) {
    if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
      text += std::string_view(part);
    } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > sizeof(char)) {
      text += std::to_string(part);
    } else {
      TextWriter out;
      out << part;
      text += std::move(out).str();
    }
  };
  (add(parts), ...);
  return text;
}

// Says in an error's message how to fix it, behind "; ". Without parts it says nothing.
class Hint {
 public:
  Hint() = default;
  template <typename First, typename... Parts>
  explicit Hint(const First& first, const Parts&... parts) : text_(cat(first, parts...)) {}
  const std::string& text() const { return text_; }
  friend std::ostream& operator<<(std::ostream& out, const Hint& hint) {
    return hint.text_.empty() ? out : out << "; " << hint.text_;
  }

 private:
  std::string text_;
};

// what() is one line, the parts joined: what was found, what was expected, which flag or file, how
// to fix it. Parts that are hints, or errors with hints, make hint().
class Error : public std::runtime_error {
 public:
  template <typename... Parts>
  explicit Error(ErrorKind kind, const Parts&... parts)
      : std::runtime_error(one_line(cat(parts...))), kind_(kind) {
    (add(parts), ...);
  }
  ErrorKind kind() const { return kind_; }
  const std::string& hint() const { return hint_; }  // "" where none of the parts has one
  friend std::ostream& operator<<(std::ostream& out, const Error& error) {
    return out << error.what();
  }

 private:
  template <typename Part>
  void add(const Part& part) {
    std::string more;
    if constexpr (std::is_same_v<Part, Hint>) more = one_line(part.text());
    if constexpr (std::is_base_of_v<Error, Part>) more = part.hint();
    if (!more.empty()) hint_ += (hint_.empty() ? "" : "; ") + more;
  }

  ErrorKind kind_;
  std::string hint_;
};

// Holds a value, or why there is none, for a choice that another one may follow.
template <typename T>
class Feasible {
 public:
  Feasible(T value) : value_(std::move(value)) {}
  Feasible(Error why_not) : value_(std::move(why_not)) {}
  explicit operator bool() const { return value_.index() == 0; }
  const T& operator*() const { return std::get<0>(value_); }
  const Error& why_not() const { return std::get<1>(value_); }
  T or_throw() && {
    if (!*this) throw why_not();
    return std::get<0>(std::move(value_));
  }

 private:
  std::variant<T, Error> value_;
};

}  // namespace convgrad
