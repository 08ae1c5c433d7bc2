// npy_literal.hpp - the Python literals that a .npy header may hold, as ast.literal_eval reads
// them.
//
// Strings (all prefixes, quotes, escapes, adjacent ones joined), integers, floats, True, False,
// None, tuples, lists, dicts and sets, with comments and white space. Floats and sets are told
// apart but not evaluated: no legal header has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convgrad::npy {

struct Literal {
  enum class Type { string, bytes, integer, number, boolean, none, tuple, list, dict, set };
  Type type = Type::none;
  std::string text = {};            // a string's value as UTF-8
  std::int64_t integer = 0;         // also 1 for True
  bool fits = true;                 // the integer fits in 63 bits
  bool is_signed = false;           // a number with + or - before it
  std::vector<Literal> items = {};  // of a dict: key, value, key, value, ...
  std::size_t begin = 0, end = 0;   // where it stands in the source
};

// The one literal in the source, with nothing but white space and comments around it. name is for
// messages; python2 allows the suffix L of long integers. Error(input) where Python would refuse
// it, and of brackets nested more than 64 deep.
Literal parse_literal(std::string_view source, std::string_view name, bool python2);

// text on one line, in ASCII, cut off after limit characters.
std::string printable(std::string_view text, std::size_t limit = 60);

}  // namespace convgrad::npy
