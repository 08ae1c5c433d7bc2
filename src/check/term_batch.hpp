// term_batch.hpp - the reference's innermost loop: some terms of many elements that lie side by
// side, and what they say of rounding.
#pragma once

#include <cstdint>
#include <vector>

namespace convgrad {

// Terms are added eight at a time, so that the sums of an element are loaded and stored once for
// eight of them. The order of each element's terms is that of the pixels all the same.
inline constexpr std::int64_t kBatchPixels = 8;
// A sum on its way is looked at once in so many terms, and after each of them where they are fewer
// than kLookedAtEach.
inline constexpr std::int64_t kLookedAtEach = 1024;

struct TermBatch {
  std::int64_t pixels = 0;           // at most kBatchPixels
  std::int64_t count = 0;            // elements
  const double* dy = nullptr;        // [pixels][count]
  const float* dy_plain = nullptr;   // the same in float32
  bool every = false, last = false;  // whether the walk is looked at after each term, or the last
  bool zeros = true;                 // of dy, if there may be any
};

// Where the sums of the first element are; reference.hpp says what they are. compensation is null
// but for float64 data, magnitude and what follows if values alone are asked for.
struct TermSums {
  double* sum = nullptr;
  double* compensation = nullptr;
  double* magnitude = nullptr;
  double* squares = nullptr;
  double* walk = nullptr;
  double* terms = nullptr;
  float* plain = nullptr;         // null for float64 data
  double* plain_error = nullptr;  // the largest |plain - sum| at the end of a batch
};

// sums += x[pixel] * dy[pixel][element]. The same bits on every processor.
void add_batch(const TermBatch& batch, const double* x, const TermSums& sums);

// Numbers that lie side by side, in float64 and in float32; true if one of them is 0.
bool widen(const float* values, std::int64_t count, double* wide, float* plain);

using AddBatch = void (*)(const TermBatch& batch, const double* x, const TermSums& sums);
// What this processor can run: the portable code, and what was compiled for more instructions; the
// last one is what add_batch() takes.
std::vector<AddBatch> batch_variants();

}  // namespace convgrad
