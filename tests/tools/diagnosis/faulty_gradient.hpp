// faulty_gradient.hpp - gradients of random problems, right or with something done otherwise, from
// the definition: nothing of the library's kernels or checks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"

namespace convgrad::testing {

using Values = std::vector<double>;
using Random = std::mt19937_64;

double normal(Random& random);
// TF32 numbers, and those of narrow types, cut off or rounded.
double bits_kept(double value, int bits, bool cut);
// A float of so many bits, with its least exponent and its largest number.
double small_float(double value, int bits, int least, double most);
// The quotient as kernels and numpy form it of such data: in float32 but for float64.
double quotient(DType dtype, double value, double scale);

struct Case {
  WgradProblem pb;
  Values x, dy;  // [n][d][h][w][c]
};

// What is done otherwise than by the definition.
struct Wrong {
  std::array<SpatialAxis, 3> axis;
  std::function<double(double)> x, dy, product;
  std::function<double(std::int64_t)> weight;  // of a pixel
  // What position o of an axis of dy sees in the place of position i of x: -1 for none.
  std::function<std::int64_t(std::size_t axis, std::int64_t o, std::int64_t i)> sees;
  // The place in x along an axis of what lies outside it: -1 for none, -2 for a 0.
  std::function<std::int64_t(std::int64_t, std::int64_t)> outside;
  std::function<double(double, double)> add;  // to the sum
  std::function<double(double)> part;         // of the sum, where it ends
  std::function<double(double)> total;        // of the parts so far
  std::set<std::int64_t> ends;                // of the parts
  bool backwards = false;                     // from the last pixel on
};

Wrong right(const Case& c);  // nothing
// dw[t][r][s][c][k], rounded to the problem's output dtype.
Values gradient(const Case& c, const Wrong& wrong);
Values rounded_all(const WgradProblem& pb, Values values);

// Of x or dy as files of the problem's layout and dtype have them.
std::vector<std::byte> bytes_of(const WgradProblem& pb, const Values& values,
                                std::int64_t channels);
// A tensor whose memory is taken for the other data format.
Values other_format(const WgradProblem& pb, const Values& values, std::int64_t channels);

// A small problem with data of one of three kinds, times scale.
Case random_case(Random& random, double scale);
// The problems of a folder that scripts/capture_layers.py made, of at most so many multiply-adds.
std::vector<Case> captured_cases(const std::string& folder, double most);

}  // namespace convgrad::testing
