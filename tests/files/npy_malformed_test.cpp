// npy_malformed_test.cpp - headers that are wrong: each gives an Error of one line, none a crash.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

void check_refused(const std::string& bytes, std::string_view text) {
  check_error(ErrorKind::input, "x.npy", text, [&] { parse(bytes); });
}

struct BadText {
  std::string text;
  std::string message;
};

TEST_CASE("headers that are no dictionary as programs write it") {
  const std::string rest = "'fortran_order': False, 'shape': (2,)}";
  const std::string noise = std::string(300, '\n') + std::string(300, '\x1b');
  const std::vector<BadText> cases = {
      {"", "it ends too early at character 0, expected '{'"},
      {"   \n", "it ends too early at character 4, expected '{'"},
      {"{'descr'", "it ends too early at character 8, expected ':'"},
      {"{'descr':", "it ends too early at character 9, expected a string in quotes"},
      {"{'descr': '<f4'", "it ends too early at character 15, expected ',' or '}'"},
      {"{'descr': '<f4", "found \"'<f4\" at character 10, expected a string in quotes"},
      {"{'descr': '<f4' " + rest, "expected ',' or '}'"},
      {"{'descr' = '<f4', " + rest, "at character 9, expected ':'"},
      {"{'descr': '<f4', " + rest + "}", "found \"}\" at character 55, expected nothing after"},
      {"{'descr': '<f4', " + rest + "\v", "found \"\\x0b\" at character 55, expected nothing"},
      {"{'descr': '<f4', " + rest + std::string(1, '\0'), "found \"\\x00\""},
      {"\xef\xbb\xbf{'descr': '<f4', " + rest, "found \"\\xef\\xbb\\xbf{'descr'"},
      {"{'''descr''': '<f4', " + rest, "expected ':'"},
      {"{u'descr': '<f4', " + rest, "expected a string in quotes"},
      {"{'descr': ('<f4', (2,)), " + rest, "expected a string in quotes"},
      {"{'descr': '<f4', 'fortran_order': Falsely, 'shape': (2,)}", "expected ',' or '}'"},
      {std::string(60000, '{'), "expected a string in quotes"},
      {"{'descr': " + std::string(60000, '['), "' is a structured type"},
      {noise, "expected '{'"},
      {"{'" + noise, "expected a string in quotes"},
      {"{'" + noise + "': 3}", "unknown key '"},
      {"{'descr': '" + noise + "', " + rest, "which is no dtype"},
  };
  for (const BadText& bad : cases) {
    CAPTURE(bad.text.substr(0, 100));
    for (const int major : {1, 2, 3}) check_refused(header_bytes(bad.text, major), bad.message);
  }
}

TEST_CASE("keys that are missing, misspelt or too many") {
  const std::vector<std::pair<std::string, std::string>> entries = {
      {"descr", "'<f4'"}, {"fortran_order", "False"}, {"shape", "(2,)"}};
  const auto text = [&](const std::string& key, const std::string& instead) {
    std::string dict = "{";
    for (const auto& [name, value] : entries) {
      if (name != key) dict += cat("'", name, "': ", value, ", ");
      if (name == key && !instead.empty()) dict += cat(instead, ": ", value, ", ");
    }
    return header_bytes(dict + "}");
  };
  CHECK_FALSE(error_of([&] { parse(text("", "")); }).has_value());
  for (const auto& entry : entries) {
    const std::string& key = entry.first;
    const std::string& value = entry.second;
    CAPTURE(key);
    check_refused(text(key, ""), cat("no key '", key, "', expected the keys descr, fortran_order"));
    std::string upper = key;
    upper[0] = static_cast<char>(upper[0] - 32);
    for (const std::string& wrong : {upper, key + "s", key + " ", key.substr(1), std::string()}) {
      check_refused(text(key, "'" + wrong + "'"), cat("unknown key '", wrong, "'"));
    }
    check_refused(text(key, "'\xc3\xa9'"), "unknown key '\\xc3\\xa9'");
    check_refused(text(key, "1"), "expected a string in quotes");
    check_refused(header_bytes(cat("{'", key, "': ", value, ", '", key, "': ", value, "}")),
                  cat("two keys '", key, "', expected the keys"));
  }
  check_refused(header_bytes("{}"), "no key 'descr'");
  check_refused(header_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}"),
                "unknown key 'x'");
}

TEST_CASE("shapes that are none") {
  for (const std::string shape :
       {"3",       "(3)",      "[3]",    "[3, 4]", "{}",     "'(3,)'", "None",
        "(2 3)",   "-3",       "(3.0,)", "(3e0,)", "(1.,)",  "(3j,)",  "(1_000,)",
        "(0x1F,)", "(0b101,)", "(3l,)",  "(3LL,)", "(3 L,)", "(1+2,)", "(2**2,)"}) {
    CAPTURE(shape);
    check_refused(header_bytes(dict_text("'<f4'", shape)), "expected a tuple such as (3,)");
  }
  check_refused(header_bytes(dict_text("'<f4'", "(3L,)"), 3), "found \"L,)");
  for (const std::string shape : {"(,)", "(2,,)", "(2,]", "(2,}", "((3),)"}) {
    CAPTURE(shape);
    check_refused(header_bytes(dict_text("'<f4'", shape)), "expected integers from 0 to 2^63 - 1");
  }
  std::vector<std::string> extents = {"-1",  "-0",   "+3",   "00",  "03",   "007",
                                      ".5",  "True", "None", "'3'", "(3,)", "()",
                                      "[3]", "{}",   "\xb3", "_1",  "- 1"};
  for (const std::string huge :
       {"-9223372036854775808", "9223372036854775808", "18446744073709551616",
        "1000000000000000000000000000000000000000000"}) {
    extents.push_back(huge);
  }
  for (const std::string& extent : extents) {
    CAPTURE(extent);
    for (const std::string& shape :
         {"(" + extent + ",)", "(2, " + extent + ")", "(0, " + extent + ", 1)"}) {
      check_refused(header_bytes(dict_text("'<f4'", shape)),
                    "expected integers from 0 to 2^63 - 1");
    }
  }
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  check_refused(header_bytes(dict_text("'<f4'", many + ")")), "expected at most 64 axes");
}

TEST_CASE("shapes whose product does not fit") {
  for (const std::string shape :
       {"(4294967296, 4294967296)", "(9223372036854775807, 2)", "(3037000500, 3037000500)",
        "(2305843009213693952,)", "(9223372036854775807,)", "(65536, 65536, 65536, 65536)",
        "(2, 9223372036854775807, 9223372036854775807)", "(4611686018427387904, 4)"}) {
    CAPTURE(shape);
    check_refused(header_bytes(dict_text("'<f4'", shape)), "more than 2^63 - 1 bytes");
  }
  const std::string largest = header_bytes(dict_text("'|i1'", "(9223372036854775807,)"));
  check_refused(largest, "more than 2^63 - 1 bytes");  // with the header
  CHECK(parse(header_bytes(dict_text("'|i1'", "(9223372036854775000,)"))).payload_bytes ==
        9223372036854775000);
  CHECK(parse(header_bytes(dict_text("'<f4'", "(2305843009213693900,)"))).payload_bytes ==
        9223372036854775600);
}

TEST_CASE("fortran_order that is not True or False") {
  for (const std::string value : {"0", "1", "None", "'False'", "(False,)", "[]", "{}", "1.0"}) {
    CAPTURE(value);
    check_refused(header_bytes(dict_text("'<f4'", "(2,)", value)), "expected True or False");
  }
}

TEST_CASE("dtypes that are none, or an alias of one") {
  for (const std::string descr :
       {"",    "<",    "4",   "f3x",     "f0",        "f-4",     "<i",  "f4 ",
        " f4", "<<f4", "!f4", "f4,f4",   "2f4",       "x4",      "<z9", "u",
        "z",   "i",    "?",   "half",    "<float32",  "V-1",     "V0",  "S0",
        "|S",  "b2",   "b",   "\\x3cf4", "<bfloat16", "Bfloat16"}) {
    CAPTURE(descr);
    check_refused(
        header_bytes(dict_text("'" + descr + "'", "(2,)")),
        cat("damaged header: descr is '", descr, "', which is no dtype, expected one such"));
  }
  for (const std::string number : {"2222222222222222228", "99999999999999999999"}) {
    check_refused(header_bytes(dict_text("'f" + number + "'", "(2,)")), "which is no dtype");
  }
  check_refused(header_bytes(dict_text("'<f4\n'", "(2,)")), "descr is '<f4\\n', which is no dtype");
  check_refused(header_bytes(dict_text("'\xff\xfe'", "(2,)"), 3), "descr is '\\xff\\xfe', which");
  using std::string_literals::operator""s;
  check_refused(header_bytes(dict_text("'<f4\0'"s, "(2,)")),
                "which is no dtype, expected one such");
  for (const std::string descr :
       {"f3", "<f5", "i3", "i16", "u32", "c7", "V2147483648", "U536870912"}) {
    CAPTURE(descr);
    check_refused(header_bytes(dict_text("'" + descr + "'", "(2,)")),
                  cat("dtype '", descr, "' is "));
  }
}

TEST_CASE("first bytes of something else") {
  using std::string_literals::operator""s;
  check_refused("", "is empty");
  check_refused("\x92NUMPY\x01\x00", "starts with \"\\x92NUMPY\"");
  check_refused("\x93NUMPX\x01\x00"s, "not a .npy file");
  check_refused("PK\x03\x04rest of it", ".npz");
  check_refused("\x1f\x8b\x08 rest", "gunzip");
  check_refused("\x28\xb5\x2f\xfd rest", "zstdcat");
  check_refused("\x89HDF\r\n\x1a\n", "HDF5");
  check_refused("\x80\x04\x95 rest", "pickle");
  check_refused("1.0,2.0,3.0\n", "not a .npy file");
  check_refused(std::string(200, '\0'), "not a .npy file");
}

TEST_CASE("every version but 1.0, 2.0 and 3.0") {
  std::string bytes = header_bytes(dict_text("'<f4'", "(2,)"), 2);
  int accepted = 0;
  for (int major = 0; major < 256; ++major) {
    for (const int minor : {0, 1, 2, 128, 255}) {
      bytes[6] = static_cast<char>(major);
      bytes[7] = static_cast<char>(minor);
      const auto error = error_of([&] { parse(bytes); });
      if (!error) {
        ++accepted;
        continue;
      }
      if (major == 1 && minor == 0) continue;  // with 4 bytes of length: some other error
      CHECK(std::string(error->what()).find(cat("format ", major, ".", minor, ", expected 1.0")) !=
            std::string::npos);
    }
  }
  CHECK(accepted == 2);
}

TEST_CASE("header lengths that are wrong") {
  const std::string dict = dict_text("'<f4'", "(2, 3)");
  for (const int major : {1, 2, 3}) {
    const TempDir dir;
    const auto write = [&](std::size_t length) {
      return dir.write("x.npy", header_bytes(dict, major, length) + kPayload);
    };
    const auto refused = [&](std::size_t length, std::string_view text) {
      const std::string path = write(length);
      check_error(ErrorKind::input, path, text, [&] { read_completely(path); });
    };
    CHECK_FALSE(error_of([&] { read_completely(write(dict.size())); }).has_value());
    // One short: the newline becomes payload. One long: a payload byte becomes header.
    refused(dict.size() - 1, "followed by other bytes");
    refused(dict.size() + 1, "expected nothing after the dictionary");
    refused(dict.size() - 2, "it ends too early");
    refused(0, "it ends too early");
    refused(dict.size() + kPayload.size() + 1, "truncated");
    refused(65535, "truncated");
    if (major == 1) continue;
    for (const std::size_t length : {65537u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      refused(length, cat("a header of ", length, " bytes, expected"));
    }
  }
}

TEST_CASE("a header of 64 KiB is read, one byte more is refused") {
  std::string dict = dict_text("'<f4'", "(2,)");
  dict.append(65536 - dict.size(), ' ');
  CHECK(parse(header_bytes(dict, 2)).data_offset == 65548);
  check_refused(header_bytes(dict + " ", 2), "a header of 65537 bytes, expected at most 65536");
}

}  // namespace
}  // namespace convgrad
