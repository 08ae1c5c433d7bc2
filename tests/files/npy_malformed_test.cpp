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

TEST_CASE("headers that are no Python dictionary") {
  const std::string rest = "'fortran_order': False, 'shape': (2,)}";
  const std::vector<BadText> cases = {
      {"", "it ends too early"},
      {"   \n", "it ends too early"},
      {"# only a comment", "it ends too early"},
      {"{", "it ends too early"},
      {"{'descr'", "expected ',' or '}'"},
      {"{'descr':", "it ends too early"},
      {"{'descr': '<f4'", "expected ',' or '}'"},
      {"{'descr': '<f4',", "it ends too early"},
      {"{'descr': '<f4", "a string is not closed"},
      {"{'descr': '<f4\n', " + rest, "a string is not closed on its line"},
      {"{'descr': '''<f4', " + rest, "a string is not closed"},
      {"{'descr': '<f4\\", "a string is not closed"},
      {"{'descr': '<f4' " + rest, "expected ',' or '}'"},
      {"{'descr': '<f4',, " + rest, "unexpected character"},
      {"{, 'descr': '<f4', " + rest, "unexpected character"},
      {"{'descr' = '<f4', " + rest, "expected ',' or '}'"},
      {"{'descr': '<f4', " + rest + "}", "something follows"},
      {"{'descr': '<f4', " + rest + " x", "something follows"},
      {"{'descr': '<f4', " + rest + " {}", "something follows"},
      {"{'descr': '<f4', " + rest + ";", "something follows"},
      {"{'descr': '<f4', " + rest + "\\", "something follows"},
      {"{'descr': '<f4', " + rest + "\v", "something follows"},
      {"{'descr': '<f4', " + rest + ",", "something follows"},
      {"({'descr': '<f4', " + rest + ",)", "is not a dictionary"},
      {"[('descr', '<f4')]", "is not a dictionary"},
      {"{'descr', 'fortran_order', 'shape'}", "is not a dictionary"},
      {"{'descr': '<f4', 'shape'}", "expected ':'"},
      {"{'descr', 'shape': (2,)}", "expected ',' or '}'"},
      {"'descr'", "is not a dictionary"},
      {"7", "is not a dictionary"},
      {"None", "is not a dictionary"},
      {"dict(descr='<f4')", "unknown word"},
      {"{**{}, 'descr': '<f4', " + rest, "unexpected character"},
      {"{'descr': f'<f4', " + rest, "unknown word"},
      {"{'descr': ur'<f4', " + rest, "unknown word"},
      {"{'descr': <f4, " + rest, "unexpected character"},
      {"{'descr': '<f4' b'', " + rest, "bytes and text side by side"},
      {"{'descr': '\\x3', " + rest, "an escape sequence is too short"},
      {"{'descr': '\\u003', " + rest, "an escape sequence is too short"},
      {"{'descr': '\\U00110000', " + rest, "an escape sequence is no character"},
      {"{'descr': '\\N{LESS-THAN SIGN}f4', " + rest, "\\N{...} is not understood"},
      {"{'descr': '<f4', 'fortran_order': false, 'shape': (2,)}", "unknown word"},
      {"{'descr': '<f4', 'fortran_order': not True, 'shape': (2,)}", "unknown word"},
      {"{'descr': '<f4', 'fortran_order': Falsely, 'shape': (2,)}", "unknown word"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,]}", "unexpected character"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,}", "unexpected character"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", "expected ',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3 4)}", "expected ',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "unexpected character"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,,)}", "unexpected character"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)\\ }", "expected ',' or '}'"},
      {"{'descr': '<f4', " + rest + std::string(1, '\0'), "bytes that are no text"},
      {"{'descr': '<f\0004', " + rest + std::string(1, '\0'), "bytes that are no text"},
      {"\xef\xbb\xbf{'descr': '<f4', " + rest, "unknown word"},
      {std::string(60000, '('), "nested too deeply"},
      {std::string(60000, '['), "nested too deeply"},
      {std::string(60000, '{'), "nested too deeply"},
      {std::string(60000, '-'), "nested too deeply"},
      {"{'descr': " + std::string(1000, '(') + "'<f4'" + std::string(1000, ')') + ", " + rest,
       "nested too deeply"},
      {std::string(60000, '\''), "is not a dictionary"},
  };
  for (const BadText& bad : cases) {
    CAPTURE(bad.text.substr(0, 100));
    for (const int major : {1, 2, 3}) check_refused(header_bytes(bad.text, major), bad.message);
  }
  check_refused(header_bytes("{'\xff': 1}", 3), "bytes that are no text");
  check_refused(header_bytes("{'\xc3': 1}", 3), "bytes that are no text");
  check_refused(header_bytes("{'\xc3\xa9': 1}", 3), "unknown key");
  check_refused(header_bytes("{'\xff': 1}", 1), "unknown key '\\xff'");
}

TEST_CASE("format 3.0 is UTF-8, which no other bytes are taken for") {
  for (const std::string text : {"\xc3\xa9", "\xdf\xbf", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                 "\xf4\x8f\xbf\xbf", "a\xe2\x82\xac\xc3\xa9z"}) {
    CAPTURE(text);
    check_refused(header_bytes("{'" + text + "': 1}", 3), "unknown key '");
  }
  for (const std::string text :
       {"\x80", "\xbf", "\xc3", "\xc3\xa9\xa9", "\xe2\x82", "\xe2\x82z", "\xf0\x9f\x98",
        "\xc3\xc3\xa9", "\xc0\x80", "\xc1\xbf", "\xf5\x80\x80\x80", "\xfe", "\xff"}) {
    CAPTURE(text);
    check_refused(header_bytes("{'" + text + "': 1}", 3), "bytes that are no text");
    check_refused(header_bytes("{'" + text + "': 1}", 2), "unknown key '");
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
    for (const std::string& wrong :
         {cat("'", upper, "'"), cat("'", key, "s'"), cat("'", key, " '"), cat("b'", key, "'"),
          cat("('", key, "',)"), cat("'", key.substr(1), "'"), std::string("1"),
          std::string("None"), std::string("''")}) {
      check_refused(text(key, wrong), cat("unknown key ", wrong));
    }
    check_refused(header_bytes(cat("{'", key, "': ", value, ", '", key, "': ", value, "}")),
                  "no key '");
  }
  check_refused(header_bytes("{}"), "no key 'descr'");
  check_refused(header_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}"),
                "unknown key 'x'");
}

TEST_CASE("shapes that are none") {
  for (const std::string shape : {"3", "(3)", "[3]", "[3, 4]", "{3}", "{}", "'3'", "'(3,)'", "None",
                                  "True", "3.0", "'abc'", "b''", "[]", "{1: 2}", "-3"}) {
    CAPTURE(shape);
    check_refused(header_bytes(dict_text("'<f4'", shape)), "expected a tuple such as (3,)");
  }
  for (const std::string extent : {"-1",
                                   "-9223372036854775808",
                                   "9223372036854775808",
                                   "18446744073709551616",
                                   "0x8000000000000000",
                                   "1000000000000000000000000000000000000000000",
                                   "3.0",
                                   "3e0",
                                   "1e3",
                                   "1.",
                                   ".5",
                                   "3j",
                                   "1_0.5",
                                   "True",
                                   "False",
                                   "None",
                                   "'3'",
                                   "b'3'",
                                   "(3,)",
                                   "()",
                                   "[3]",
                                   "{}",
                                   "{3}",
                                   "'a'"}) {
    CAPTURE(extent);
    for (const std::string& shape :
         {"(" + extent + ",)", "(2, " + extent + ")", "(0, " + extent + ", 1)"}) {
      check_refused(header_bytes(dict_text("'<f4'", shape)),
                    "expected integers from 0 to 2^63 - 1");
    }
  }
  for (const std::string extent :
       {"03",   "007",  "1__0",   "1_",    "0x",    "0x_",   "0xg",  "0b2",       "0o8",
        "0b",   "3e",   "3e+",    "1.2.3", "3x",    "3LL",   "3.0L", "0777L",     "1_e3",
        "1._5", "1e_3", "++3",    "--3",   "-True", "+'3'",  "-()",  "1+2",       "1+2j",
        "2**2", "~1",   "a",      "n",     "3 4",   "*(3,)", "...",  "lambda: 3", "1 if 2 else 3",
        "\xb3", "0_x1", "0x1__2", "_1"}) {
    CAPTURE(extent);
    check_refused(header_bytes(dict_text("'<f4'", "(" + extent + ",)")), "damaged header: ");
  }
  check_refused(header_bytes(dict_text("'<f4'", "(3L,)"), 3), "suffix L");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  check_refused(header_bytes(dict_text("'<f4'", many + ")")), "65 axes, expected at most 64");
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

TEST_CASE("dtypes that numpy does not know") {
  for (const std::string descr : {"''",
                                  "'<'",
                                  "'4'",
                                  "'f'4",
                                  "'f3'",
                                  "'<f5'",
                                  "'f0'",
                                  "'f32'",
                                  "'<i3'",
                                  "'i16'",
                                  "'u16'",
                                  "'b2'",
                                  "'c4'",
                                  "'c7'",
                                  "'M4'",
                                  "'M8[]'",
                                  "'M8['",
                                  "'M8]'",
                                  "'f4[s]'",
                                  "'f-4'",
                                  "'f4 '",
                                  "' f4'",
                                  "'<f4\\n'",
                                  "'<<f4'",
                                  "'!f4'",
                                  "'@f4'",
                                  "'f4f4'",
                                  "'f4,f4'",
                                  "'2f4'",
                                  "'(2,)f4'",
                                  "'<float32'",
                                  "'>half'",
                                  "'Float32'",
                                  "'FLOAT'",
                                  "'float24'",
                                  "'<bfloat16'",
                                  "'V-1'",
                                  "'V99999999999999999999'",
                                  "'V2147483648'",
                                  "'U536870912'",
                                  "'x4'",
                                  "'\\x00'",
                                  "'u'",
                                  "'z'",
                                  "'O3'",
                                  "4",
                                  "None",
                                  "True",
                                  "b'<f4'",
                                  "('<f4',)",
                                  "('<f4', 2, 3)",
                                  "('<f4', -2)",
                                  "('<f4', 'a')",
                                  "('<f4', (2, -1))",
                                  "('<f4', (1.5,))",
                                  "('<f4', (99999999999999999999,))",
                                  "('<f4', (536870912,))",
                                  "'<M8[ns'",
                                  "'<M8[]'",
                                  "('<f4', (9223372036854775807, 2))",
                                  "('<f4', 99999999999)",
                                  "{'names': ['a'], 'formats': ['<f4']}",
                                  "['<f4']",
                                  "[('a',)]",
                                  "[('a', 'q9')]",
                                  "[(1, '<f4')]",
                                  "[['a', '<f4']]",
                                  "[('a', '<f4', -1)]",
                                  "[('a', '<f4', 1, 2)]",
                                  "[('a', 'V2147483647'), ('b', 'V2147483647')]",
                                  "[('a', 'V2147483647', 2)]"}) {
    CAPTURE(descr);
    const auto error = error_of([&] { parse(header_bytes(dict_text(descr, "(2,)"))); });
    REQUIRE(error.has_value());
    const std::string message = error->what();
    CAPTURE(message);
    CHECK(message.find(descr == "'f'4" ? "damaged header" : "is no dtype, expected one such") !=
          std::string::npos);
  }
}

TEST_CASE("first bytes of something else") {
  using std::string_literals::operator""s;
  check_refused("", "is empty");
  check_refused("\x92NUMPY\x01\x00", "starts with \"\\x92NUMPY\"");
  check_refused("\x93NUMPX\x01\x00"s, "not a .npy file");
  check_refused("\x93numpy\x01\x00"s, "not a .npy file");
  check_refused("NUMPY\x01\x00"s, "not a .npy file");
  check_refused("PK\x03\x04rest of it", ".npz");
  check_refused("\x1f\x8b\x08 rest", "gunzip");
  check_refused("\x28\xb5\x2f\xfd rest", "zstdcat");
  check_refused("\x89HDF\r\n\x1a\n", "HDF5");
  check_refused("\x80\x04\x95 rest", "pickle");
  check_refused("1.0,2.0,3.0\n", "not a .npy file");
  check_refused("\n", "not a .npy file");
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
    CHECK_FALSE(error_of([&] { read_completely(write(dict.size())); }).has_value());
    // One short: the newline becomes payload. One long: a payload byte becomes header.
    check_error(ErrorKind::input, write(dict.size() - 1), "followed by other bytes",
                [&] { read_completely(dir.file("x.npy")); });
    check_error(ErrorKind::input, write(dict.size() + 1), "something follows the dictionary",
                [&] { read_completely(dir.file("x.npy")); });
    check_error(ErrorKind::input, write(dict.size() - 2), "it ends too early",
                [&] { read_completely(dir.file("x.npy")); });
    check_error(ErrorKind::input, write(0), "it ends too early",
                [&] { read_completely(dir.file("x.npy")); });
    check_error(ErrorKind::input, write(dict.size() + kPayload.size() + 1), "truncated",
                [&] { read_completely(dir.file("x.npy")); });
    check_error(ErrorKind::input, write(65535), "truncated",
                [&] { read_completely(dir.file("x.npy")); });
    if (major == 1) continue;
    for (const std::size_t length : {65537u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      check_error(ErrorKind::input, write(length), cat("a header of ", length, " bytes, expected"),
                  [&] { read_completely(dir.file("x.npy")); });
    }
  }
}

TEST_CASE("a header of 64 KiB is read, one byte more is refused") {
  std::string dict = dict_text("'<f4'", "(2,)");
  dict.append(65536 - dict.size(), ' ');
  CHECK(parse(header_bytes(dict, 2)).data_offset == 65548);
  check_refused(header_bytes(dict + " ", 2), "a header of 65537 bytes, expected at most 65536");
}

TEST_CASE("messages stay on one line and are not long") {
  const std::string noise = "{'descr': '" + std::string(300, '\n') + std::string(300, '\x1b');
  std::vector<std::string> headers = {noise, noise + "'}"};
  headers.push_back("{'''" + noise + "''': 3}");
  headers.push_back(dict_text("'''" + noise.substr(11) + "'''", "(2,)"));
  headers.push_back(dict_text("'<f4'", "('" + std::string(5000, 'x') + "',)"));
  headers.push_back(dict_text("'<f4'", "(2,)", "'''\n\r\x1b[31m'''"));
  for (const std::string& header : headers) {
    const auto error = error_of([&] { parse(header_bytes(header)); });
    REQUIRE(error.has_value());
    const std::string message = error->what();
    CAPTURE(message);
    CHECK(message.size() < 300);
    for (const char c : message) CHECK((c >= ' ' && c < '\x7f'));
  }
}

}  // namespace
}  // namespace convgrad
