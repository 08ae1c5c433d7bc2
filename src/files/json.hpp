// json.hpp - JSON, and a strict reader of what others wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convgrad/error.hpp"

namespace convgrad {

// Memory that is missing for JSON ends the program by std::terminate(), whose handler says so: in
// nlohmann 3.11, an object for which it is missing crashes when it is destroyed.
template <typename T>
struct JsonAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = JsonAllocator<U>;
  };
  JsonAllocator() = default;
  template <typename U>
  JsonAllocator(const JsonAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) noexcept { return std::allocator<T>::allocate(count); }
};
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                  std::int64_t, std::uint64_t, double, JsonAllocator>;

// Returns it as text: on one line, or on many with an indent of at least 0. Paths and messages may
// hold bytes that are not UTF-8: they are replaced.
inline std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Says what read_json() has found. Callers put it in words of their own.
struct JsonError : Error {
  enum class Fault { syntax, number_too_large, key_twice, too_deep, too_many };

  JsonError(Fault found, std::int64_t bytes)
      : Error(ErrorKind::input, "is not JSON that is read here"), fault(found), byte(bytes) {}
  Fault fault;
  std::int64_t byte, line = 1, column = 1;  // where it is, counted from 1
  std::string key = {};                     // that is there twice
};

// Takes an element of the outermost list (then its key is "") or object, and the line on which it
// begins.
using TakeElement =
    std::function<void(const std::string& key, std::int64_t line, const Json& element)>;

// Returns the one value that the text is. With `take`, the elements of an outermost list or object
// are handed over one by one, as soon as each is read, and are not kept. Throws JsonError for what
// nlohmann takes in silence too: keys that are there twice, more than 32 levels, a zero behind the
// value, and so many values in an element, or without `take` in all, that they fill memory.
Json read_json(const std::string& text, const TakeElement& take = {});

}  // namespace convgrad
