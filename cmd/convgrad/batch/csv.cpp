// csv.cpp - see csv.hpp. Debian's header-only readers want columns that are known when compiling.
#include "batch/csv.hpp"

namespace convgrad::cli {
namespace {

class CsvParser {
 public:
  explicit CsvParser(std::string_view text) : text_(text) {}

  std::vector<CsvRow> rows() {
    std::vector<CsvRow> result;
    while (!at_end()) {
      CsvRow row = next_row();
      const bool empty = row.error.empty() && row.cells.size() == 1 && row.cells[0].empty();
      if (!empty || quoted_) result.push_back(std::move(row));
    }
    return result;
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  bool at_line_end() const {
    return at_end() || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n";
  }

  CsvRow next_row() {
    CsvRow row;
    row.line = line_;
    quoted_ = false;
    for (;;) {
      row.cells.push_back(next_cell(row.error));
      if (!row.error.empty()) {
        while (!at_line_end()) ++at_;
      }
      if (at_line_end()) break;
      ++at_;  // the comma
    }
    if (!at_end()) {
      at_ += text_[at_] == '\r' ? 2 : 1;
      ++line_;
    }
    return row;
  }

  // Ends at a comma, a line's end or an error.
  std::string next_cell(std::string& error) {
    if (at_end() || text_[at_] != '"') {
      const std::size_t begin = at_;
      while (!at_line_end() && text_[at_] != ',' && text_[at_] != '"') ++at_;
      if (!at_line_end() && text_[at_] == '"') {
        error = "a quote within a cell, expected the whole cell in quotes and \"\" for a quote";
      }
      return std::string(text_.substr(begin, at_ - begin));
    }
    quoted_ = true;
    std::string cell;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] == '"') {
        if (text_.substr(at_, 2) != "\"\"") break;
        ++at_;
      }
      if (text_[at_] == '\n') ++line_;
      cell += text_[at_];
    }
    if (at_end()) {
      error = "a quote that is not closed";
      return cell;
    }
    ++at_;  // the closing quote
    if (!at_line_end() && text_[at_] != ',') error = "text after a closing quote, expected a comma";
    return cell;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  bool quoted_ = false;  // in this row
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text) { return CsvParser(text).rows(); }

}  // namespace convgrad::cli
