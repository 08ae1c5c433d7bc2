// npy_literal_test.cpp - Python's literals, as ast.literal_eval reads them.
#include "files/npy_literal.hpp"

#include <doctest/doctest.h>

#include "convgrad/error.hpp"

using namespace convgrad;
using npy::Literal;

namespace {

Literal parse_literal(std::string_view source, bool python2 = false) {
  return npy::parse_literal(source, "x.npy", python2);
}

struct Text {
  std::string source, text;
};

struct Integer {
  std::string source;
  std::int64_t value;
};

void check_refused(std::string_view source, std::string_view reason) {
  CAPTURE(source);
  try {
    parse_literal(source);
    FAIL_CHECK("is not refused");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.find(reason) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("strings are what Python makes of them") {
  const std::vector<Text> cases = {
      {R"('')", ""},
      {R"('a\\b')", R"(a\b)"},
      {R"('\'\"')", "'\""},
      {R"('\a\b\f\n\r\t\v')", "\a\b\f\n\r\t\v"},
      {R"('\q\8\9')", R"(\q\8\9)"},
      {R"('\1\18\101\1012\7')",
       "\x01\x01"
       "8AA2\x07"},
      {R"(r'\x41\n\'')", R"(\x41\n\')"},
      {R"(R'\u0041')", R"(\u0041)"},
      {R"(u'a')", "a"},
      {"'a\\\nb'", "ab"},
      {"'a\\\r\nb'", "ab"},
      {"'a\\\rb'", "ab"},
      {R"('\x7e\x80\xff')", "~\xc2\x80\xc3\xbf"},
      {R"('\u07ff\u0800\uffff')", "\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
      {R"('\U00010000\U0010ffff')", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
      {"'''a'b''c\nd'''", "a'b''c\nd"},
      {R"("""a"b""c""")", R"(a"b""c)"},
      {R"('a' "b" '''c''' r'd')", "abcd"},
  };
  for (const Text& c : cases) {
    CAPTURE(c.source);
    const Literal literal = parse_literal(c.source);
    CHECK(literal.type == Literal::Type::string);
    CHECK(literal.text == c.text);
  }
  // Bytes have no escapes of characters.
  const std::vector<Text> bytes = {{R"(b'\N{DIGIT ONE}')", R"(\N{DIGIT ONE})"},
                                   {R"(B'\u0041\x41')", R"(\u0041A)"},
                                   {R"(b'\U0010ffff')", R"(\U0010ffff)"},
                                   {R"(rb'\x')", R"(\x)"},
                                   {R"(bR'\'')", R"(\')"}};
  for (const Text& c : bytes) {
    CAPTURE(c.source);
    CHECK(parse_literal(c.source).type == Literal::Type::bytes);
    CHECK(parse_literal(c.source).text == c.text);
  }
  for (const char* source : {"'\\x4'", "'\\u004'", "'\\U0000004'", "'\\x4g'"}) {
    check_refused(source, "an escape sequence is too short");
  }
  check_refused("'\\U00110000'", "an escape sequence is no character");
  check_refused("'\\N{DIGIT ONE}'", "\\N{...} is not understood");
  check_refused("'''a''", "a string is not closed");
  check_refused("'''a'", "a string is not closed");
  check_refused("'a' b'c'", "bytes and text side by side");
}

TEST_CASE("numbers are what Python takes for numbers") {
  const std::vector<Integer> integers = {
      {"0", 0},     {"00", 0},    {"0_0", 0},     {"7", 7},         {"1_000", 1000}, {"0x1F", 31},
      {"0X1f", 31}, {"0o17", 15}, {"0O17", 15},   {"0b101", 5},     {"0B_1_0", 2},   {"-5", -5},
      {"+5", 5},    {"- 5", -5},  {"-0x10", -16}, {"0xdead", 57005}};
  for (const Integer& c : integers) {
    CAPTURE(c.source);
    const Literal literal = parse_literal(c.source);
    CHECK(literal.type == Literal::Type::integer);
    CHECK(literal.fits);
    CHECK(literal.integer == c.value);
  }
  CHECK(parse_literal("9223372036854775807").fits);
  CHECK_FALSE(parse_literal("9223372036854775808").fits);
  CHECK_FALSE(parse_literal("0xffffffffffffffffffff").fits);
  for (const char* source : {"1e5", "1E5", "1e+5", "1e-5", "1E+05", ".5", "5.", "5.e1", "1.5j",
                             "1J", "1e5j", "1_0.0_1", "0e0", "00.5", "- 1.5", "1."}) {
    CAPTURE(source);
    CHECK(parse_literal(source).type == Literal::Type::number);
  }
  for (const char* source : {"1e", "1e+", "1e-", "1ee5", "1.5.5", "5x", "1__0", "1_", "0x", "0xg",
                             "0b2", "0o8", "1e5_", "5jj", "012", "0b", "0o_", "1e+5x", "5.x"}) {
    check_refused(source, "expected a number");
  }
  // Python 2 has long integers and octal ones.
  CHECK(parse_literal("5L", true).integer == 5);
  CHECK(parse_literal("5l", true).integer == 5);
  check_refused("5L", "the suffix L");
  check_refused("5l", "the suffix L");
  for (const char* source : {"--5", "-+5", "+-5", "+'a'", "-True", "-(5,)", "-None"}) {
    check_refused(source, "a sign without a number");
  }
}
