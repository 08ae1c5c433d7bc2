// npy_number.hpp - the numbers among Python's literals (npy_literal.hpp): one token of letters,
// digits, points, and signs behind an exponent's e.
#pragma once

#include <string_view>

#include "files/npy_literal.hpp"

namespace convgrad::npy {

bool is_digit(char c);  // '0' to '9'

// Of hexadecimal digits, in either case; 99 of anything else.
int digit_value(char c);

// Whether the token is an integer of any base; its value goes to result.integer or, from 2^63 on,
// result.fits is false. Leading zeros are octal in Python 2 and an error in Python 3: no integer.
bool parse_integer(std::string_view token, Literal& result);

// Whether it has the form of a float, one with the j of an imaginary number included. The form
// alone, of decimal integers too.
bool is_float(std::string_view token);

}  // namespace convgrad::npy
