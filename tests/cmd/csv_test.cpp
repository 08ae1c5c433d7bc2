// csv_test.cpp - RFC 4180 and nothing else.
#include "batch/csv.hpp"

#include <doctest/doctest.h>

using namespace convgrad::cli;

namespace {

using Cells = std::vector<std::string>;

// The cells of a text of one row.
Cells one(std::string_view text) {
  const std::vector<CsvRow> rows = parse_csv(text);
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].error == "");
  return rows[0].cells;
}

// The error of the only row of a text.
std::string error_of(std::string_view text) {
  const std::vector<CsvRow> rows = parse_csv(text);
  REQUIRE(rows.size() == 1);
  return rows[0].error;
}

}  // namespace

TEST_CASE("cells") {
  CHECK(one("a,b") == Cells{"a", "b"});
  CHECK(one("a,b\n") == Cells{"a", "b"});
  CHECK(one("a,b\r\n") == Cells{"a", "b"});
  CHECK(one(",") == Cells{"", ""});
  CHECK(one("a,,") == Cells{"a", "", ""});
  CHECK(one(" a , b ") == Cells{" a ", " b "});
  CHECK(one("a\rb,c") == Cells{"a\rb", "c"});
}

TEST_CASE("quotes") {
  CHECK(one("\"a,b\",c") == Cells{"a,b", "c"});
  CHECK(one("\"say \"\"a\"\"\"") == Cells{"say \"a\""});
  CHECK(one("\"\"") == Cells{""});
  CHECK(one("\"\",\"\"") == Cells{"", ""});
  CHECK(one("\"\"\"\"") == Cells{"\""});
  CHECK(one("\"a\r\nb\",c\r\n") == Cells{"a\r\nb", "c"});
}

TEST_CASE("rows and their lines") {
  const std::vector<CsvRow> rows = parse_csv("a,b\n\n\"c\nd\",e\r\n\r\nf\n\"\"\n");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].line == 1);
  CHECK(rows[1].line == 3);
  CHECK(rows[1].cells == Cells{"c\nd", "e"});
  CHECK(rows[2].line == 6);
  CHECK(rows[2].cells == Cells{"f"});
  CHECK(rows[3].cells == Cells{""});  // an empty cell in quotes is a row
  CHECK(parse_csv("").empty());
  CHECK(parse_csv("\n\r\n\n").empty());
}

TEST_CASE("what is refused") {
  CHECK(error_of("a\"b\"") ==
        "a quote within a cell, expected the whole cell in quotes and \"\" "
        "for a quote");
  CHECK(error_of("\"a\"b,c") == "text after a closing quote, expected a comma");
  CHECK(error_of("\"a\" ,c") == "text after a closing quote, expected a comma");
  CHECK(error_of("a,\"b\nc\nd") == "a quote that is not closed");
  CHECK(error_of("\"") == "a quote that is not closed");
}

TEST_CASE("a row with an error does not spoil the next") {
  const std::vector<CsvRow> rows = parse_csv("a\"b,c,\"x\ny,z\r\n\"k\"l\n\nm,n");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].error != "");
  CHECK(rows[1].cells == Cells{"y", "z"});
  CHECK(rows[1].line == 2);
  CHECK(rows[2].error != "");
  CHECK(rows[3].cells == Cells{"m", "n"});
  CHECK(rows[3].line == 5);
}
