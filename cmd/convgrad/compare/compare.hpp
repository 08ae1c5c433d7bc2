// compare.hpp - how two arrays differ, or those of two archives or folders.
#pragma once

#include <algorithm>

#include "check/array_compare.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// What is found, in numpy's words and as JSON.
class CompareReport final : public MatchReport {
 public:
  std::string text() const override;
  Json json() const override;
  bool matches() const override { return refused.empty() && comparison.match(); }

  Tensors tensors;                    // got and want
  std::string got, want;              // names of the files
  std::vector<std::int64_t> shape;    // of got
  std::string got_dtype, want_dtype;  // as they are called
  bool integers = false;              // or booleans; there is no dtype of floats then
  ArrayTolerance tolerance;
  bool by_default = false;  // the tolerance is that of the coarser dtype
  // Says why no element need be looked at: "shapes (2,), (3,) differ"; or is empty.
  std::string refused;
  bool saves_difference = false;  // a file of differences was asked for
  ArrayComparison comparison{{}};
};

// What is found of all names: those that both have, and those of one side.
class CollectionReport final : public MatchReport {
 public:
  std::string text() const override;
  Json json() const override;
  bool matches() const override {
    return only_got.empty() && only_want.empty() &&
           std::ranges::all_of(arrays, [](const auto& one) { return one.second.matches(); });
  }

  std::string got, want;  // names of the archives or folders
  std::vector<std::pair<std::string, CompareReport>> arrays;
  Words only_got, only_want;
};

ReportPointer compare(const CompareOptions& options);

}  // namespace convgrad::cli
