// csv.hpp - comma-separated values, strictly by RFC 4180.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convgrad::cli {

struct CsvRow {
  std::int64_t line = 1;  // where it begins, counted from 1
  std::vector<std::string> cells;
  std::string error;  // what is wrong with it, or ""; cells are then incomplete
};

// Every row of a text; empty lines are left out. Lines end in LF or CRLF. A cell in double quotes
// may hold commas, line ends and "" for a quote; a quote anywhere else, text after a closing quote
// and a quote that is never closed are errors of that row. After the last of these nothing is read.
std::vector<CsvRow> parse_csv(std::string_view text);

}  // namespace convgrad::cli
