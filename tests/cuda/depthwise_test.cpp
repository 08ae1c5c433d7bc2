// depthwise_test.cpp - the rings of depthwise.hpp. Its sums are in device_kernels_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>

#include "cuda/depthwise_choice.hpp"
#include "cuda/emulated_device.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

std::vector<ProblemSpec> both() { return joined(basic_problems(), depthwise_problems()); }

}  // namespace

TEST_CASE("however cuda_streaming copies lines, it has the same bits") {
  for (const ProblemSpec& spec : both()) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const WgradProblem problem = make(spec, dtype, true);
      if (problem.group_c() > 16 || problem.dw_count() == 0) continue;
      CAPTURE(spec.name);
      const Tensors tensors(problem, Fill::normal, 3);
      const Plan plan = plan_with(problem, "cuda_streaming");
      const auto one = emulated_sums(plan, tensors);
      emulated_shared_bytes = 1024;
      CHECK(same_bits(emulated_sums(plan, tensors), one));
      emulated_shared_bytes = kSharedBytes;
      emulated_bulk_copies = false;
      CHECK(same_bits(emulated_sums(plan, tensors), one));
      emulated_bulk_copies = true;
    }
  }
}

TEST_CASE("rings hold what is copied ahead, in any memory, and chains of float32 are short") {
  const std::vector<ProblemSpec> more = {
      {"3x3", "depthwise", 16, 144, 144, 144, {{56, 3}, {56, 3}}},
      {"3x3 s2", "depthwise", 16, 96, 96, 96, {{112, 3, 2}, {112, 3, 2}}},
      {"7x7", "depthwise", 3, 1000, 1000, 1000, {{31, 7, 5}, {700, 7, 1, 9}}},
      {"few outputs", "conv2d", 3, 160, 10, 10, {{31, 3, 7}, {700, 3, 3}}}};
  for (const ProblemSpec& spec : joined(both(), more)) {
    for (const DType dtype : kDTypes) {
      const WgradProblem problem = make(spec, dtype, true);
      if (problem.group_c() > 16 || term_count(problem) == 0) continue;
      CAPTURE(spec.name);
      const cuda::LineLayout l = cuda::depthwise_choice(problem).layout;
      CHECK(l.ring_bytes <= cuda::kRingBytes);
      CHECK(l.x_slots >= l.window);
      CHECK(l.window >= l.rows * l.row_step);
      CHECK(l.x.line_bytes / 16 < 1 << 15);
      cuda::LineLayout small = l;
      copy_none_ahead(small);
      CHECK(small.ring_bytes <= cuda::kLeastRingBytes);
      const cuda::Chunks chunks = cuda::chunks_of(cuda::depthwise_chunks(problem));
      const int strips = cuda::ceil_div(l.strips * l.row_units * l.planes, cuda::kDepthwiseWarps);
      const int steps = cuda::ceil_div(chunks.full[0] * chunks.full[1], l.planes) *
                        cuda::ceil_div(chunks.full[2], l.rows) *
                        cuda::ceil_div(chunks.full[3], l.columns);
      const int pixels = chunks.full[0] * chunks.full[1] * chunks.full[2] * chunks.full[3];
      const int chain = std::min(steps * strips * l.unit_rows * cuda::kStrip, pixels);
      CHECK((chain <= 512 || dtype != DType::f32));
      CHECK(pixels <= cuda::kLongChunkPixels);
    }
  }
}
