// spot_check.hpp - a gradient that some of its elements vouch for, before it is written.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/block_sum.hpp"

namespace convgrad {

// So many elements are checked by default where a device computes.
inline constexpr std::int64_t kSpotCheckOnDevice = 16;

// Returns `sum`, which the plan's make_sum() has made, or one that also computes `elements` of the
// gradient or some more, and its corners, by the reference's definition, from the same blocks,
// while a device works on them. Its finish() throws Error(runtime) if one is further off than right
// sums can be: verify's criterion, granted what any order of summing makes.
std::unique_ptr<BlockSum> spot_checked(std::unique_ptr<BlockSum> sum, const Plan& plan,
                                       TaskPool& pool, std::int64_t elements);

}  // namespace convgrad
