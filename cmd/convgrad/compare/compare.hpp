// compare.hpp - what `convgrad compare` finds, in numpy's words and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/array_compare.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

ReportPointer compare(const CompareOptions& options);

class CompareReport final : public Report {
 public:
  int exit_status() const override { return match() ? 0 : 1; }
  const char* status() const override { return match() ? "match" : "mismatch"; }
  std::string text() const override;
  Json json() const override;

  bool match() const { return refused.empty() && comparison.match(); }

  Tensors tensors;        // got and want
  std::string got, want;  // names of the files
  std::vector<std::int64_t> got_shape, want_shape;
  std::string got_dtype, want_dtype;  // as they are called
  DType coarser_dtype = DType::f32;   // of the two, whose defaults are taken
  bool integers = false;              // or booleans; there is no dtype of floats then
  ArrayTolerance tolerance;
  bool by_default = false;  // the tolerance is the dtype's
  // Says why no element need be looked at: "shapes (2,), (3,) differ"; or is empty.
  std::string refused;
  bool saves_difference = false;  // a file of differences was asked for
  ArrayComparison comparison{{}};
};

// Returns "1 / 36 (2.78 %)".
std::string part_text(std::int64_t part, std::int64_t whole);

}  // namespace convgrad::cli
