// array_compare.hpp - compares two arrays, element by element, within a tolerance. No operation is
// known here, so no bound on the error either; compare.hpp knows x and dy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/dtype.hpp"

namespace convgrad {

// The criterion is tolerance, max_ulp or bitwise; the others need terms.
struct ArrayTolerance {
  Tolerance tolerance;
  bool equal_nan = true;         // a NaN is equal to every NaN, whatever the criterion
  DType ulp_dtype = DType::f32;  // in which steps are counted
};

// Returns rtol and atol as torch.testing.assert_close has them: float16 1e-3, bfloat16 1.6e-2,
// float32 1.3e-6 with atol 1e-5; float64 1e-7 for both; 8-bit floats a step between two numbers.
// Two dtypes get the larger ones.
Tolerance default_tolerance(DType got, DType want);

// Returns the dtype of the larger unit roundoff.
DType coarser_dtype(DType a, DType b);

// Indices are in C order, values as they are: a double does not hold every integer of 64 bits.
using PairError = ErrorOf<long double>;

// Holds, of finite pairs that differ, the largest |got - want|, |got - want| / |want| where want is
// not 0, and steps between numbers of ulp_dtype, to which both are rounded first.
struct LargestErrors {
  PairError abs, rel, ulp;
  std::int64_t zero_wants = 0;  // which have no relative error
};

// Takes two arrays in pieces and keeps the worst. Indices count elements in C order.
class ArrayComparison {
 public:
  explicit ArrayComparison(const ArrayTolerance& tolerance) : tolerance_(tolerance) {}

  // Takes the next values of both, as many of each: floats as double, or integers as long double,
  // which holds those of 64 bits and counts no steps. difference, if not empty, gets got - want: 0
  // where the elements are equal, whatever they are, and inf or NaN where arithmetic says so.
  template <typename Value>
  void add(const std::vector<Value>& got, const std::vector<Value>& want,
           std::span<double> difference = {});

  std::int64_t count = 0, mismatches = 0;
  LargestErrors all, failing;
  PairError first_mismatch;  // value: |got - want|
  // These are mismatches where got or want is not finite, and the first of them.
  std::int64_t nonfinite_mismatches = 0;
  PairError first_nonfinite;
  NonFinite got_nonfinite, want_nonfinite;
  bool match() const { return mismatches == 0; }

 private:
  template <typename Value>
  bool add_pair(Value got, Value want);

  ArrayTolerance tolerance_;
};

}  // namespace convgrad
