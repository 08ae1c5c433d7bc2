// crop_test.cpp - a part of a problem gives the same part of the gradient.
#include "check/crop.hpp"

#include <doctest/doctest.h>

#include "convgrad/gradient_file.hpp"
#include "support/cases.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

void save(const std::string& path, DType dtype, const std::vector<std::int64_t>& shape,
          const std::vector<std::byte>& bytes) {
  OutputFile file(path);
  const std::string header = npy_header_text(dtype, shape);
  file.write(header.data(), header.size());
  file.write(bytes.data(), bytes.size());
  file.commit();
}

std::vector<std::int64_t> shape_of(const WgradProblem& pb, bool x) {
  std::vector<std::int64_t> shape = {pb.N};
  if (!pb.channels_last) shape.push_back(x ? pb.C : pb.K);
  for (int a = 3 - pb.spatial_rank(); a < 3; ++a) {
    const SpatialAxis& axis = pb.axis[static_cast<std::size_t>(a)];
    shape.push_back(x ? axis.in : axis.out);
  }
  if (pb.channels_last) shape.push_back(x ? pb.C : pb.K);
  return shape;
}

// Both tensors in files, and the reference on any part of them.
struct Files {
  Files(const WgradProblem& problem, Fill fill) : pb(problem) {
    x = filled(pb.dtype, pb.x_count(), fill, 3);
    dy = filled(pb.dtype, pb.dy_count(), fill, 4);
    save(folder.file("x.npy"), pb.dtype, shape_of(pb, true), x);
    save(folder.file("dy.npy"), pb.dtype, shape_of(pb, false), dy);
  }
  std::vector<double> reference(const CroppedProblem& part, std::int64_t block_bytes) const {
    PlanOptions options;
    options.backend = Backend::reference;
    options.block_bytes = block_bytes;
    const Plan plan = make_plan(part.problem, this_machine(), options);
    NpyReader x_file(folder.file("x.npy")), dy_file(folder.file("dy.npy"));
    NpySource source(x_file, dy_file, part.origin);
    TaskPool pool(2);
    ReferenceSum sum(part.problem, pool);
    Timing timing;
    stream_blocks(
        plan, source, [&](const Block& block, std::int64_t) { sum.add(block); }, timing);
    sum.finish();
    return sum.expected().values;
  }

  const WgradProblem pb;
  TempDir folder;
  std::vector<std::byte> x, dy;
};

Range half(Range whole, bool second) {
  const std::int64_t middle = whole.begin + (whole.size() + 1) / 2;
  return second && middle < whole.end ? Range{middle, whole.end} : Range{whole.begin, middle};
}

}  // namespace

TEST_CASE("taps and channels of a part are those of the whole") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    for (const bool last : {true, false}) {
      if (thinned.skips()) continue;
      const WgradProblem pb = make(spec, DType::f32, last);
      if (term_count(pb) == 0 || pb.dw_count() > 20000) continue;
      CAPTURE(describe(pb));
      const Files files(pb, Fill::small_integers);
      const std::vector<double> whole = files.reference({pb, {}}, 0);
      for (const bool second : {false, true}) {
        Crop crop = whole_crop(pb);
        for (Range& taps : crop.taps) taps = half(taps, second);
        crop.groups = half(crop.groups, second);
        if (crop.groups.size() == 1) {
          crop.c = half(crop.c, second);
          crop.k = half(crop.k, !second);
        }
        const auto part = cropped(pb, crop);
        if (!part) continue;
        for (const std::int64_t block_bytes : {0, 1}) {
          const std::vector<double> values = files.reference(*part, block_bytes);
          REQUIRE(static_cast<std::int64_t>(values.size()) == part->problem.dw_count());
          bool same = true;
          for (std::size_t i = 0; i < values.size(); ++i) {
            const std::int64_t at =
                whole_index(pb, crop, part->problem, static_cast<std::int64_t>(i));
            same = same && values[i] == whole[static_cast<std::size_t>(at)];
          }
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("the gradients of images and output positions add up") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    if (thinned.skips()) continue;
    const WgradProblem pb = make(spec, DType::f64, true);
    if (term_count(pb) == 0 || pb.dw_count() > 20000) continue;
    CAPTURE(describe(pb));
    const Files files(pb, Fill::small_integers);
    const std::vector<double> whole = files.reference({pb, {}}, 0);
    // Each range alone: images, then z, p and q.
    for (int which = 0; which < 4; ++which) {
      std::vector<double> sum(whole.size());
      const Range all =
          which == 0 ? Range{0, pb.N} : Range{0, pb.axis[static_cast<std::size_t>(which - 1)].out};
      if (all.size() < 2) continue;
      for (const bool second : {false, true}) {
        Crop crop = whole_crop(pb);
        (which == 0 ? crop.images : crop.out[static_cast<std::size_t>(which - 1)]) =
            half(all, second);
        const auto part = cropped(pb, crop);
        if (!part) continue;  // it sees only padding, and adds nothing
        const std::vector<double> values = files.reference(*part, 0);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      CHECK(sum == whole);
    }
  }
}

TEST_CASE("a part is a problem that the validator accepts") {
  const WgradProblem pb =
      make({"3x3", "conv2d", 2, 4, 6, 2, {{9, 3, 2, 2}, {8, 3}}}, DType::f32, true);
  Crop crop = whole_crop(pb);
  crop.out[1] = {1, 3};
  crop.taps[1] = {0, 2};
  crop.groups = {1, 2};
  const auto part = cropped(pb, crop);
  REQUIRE(part);
  const auto& [d, h, w] = part->problem.axis;
  WgradAttributes a;
  a.op = "conv2d";
  a.kernel = {h.taps, w.taps};
  a.strides = {h.stride, w.stride};
  a.dilations = {h.dilation, w.dilation};
  a.explicit_paddings = {h.pad_before, h.pad_after, w.pad_before, w.pad_after};
  const WgradProblem made = make_problem({"x", DType::f32, {2, h.in, w.in, 2}},
                                         {"dy", DType::f32, {2, h.out, w.out, 3}}, a);
  CHECK(made == part->problem);
  crop.out[1] = {0, 1};
  crop.taps[1] = {0, 1};
  CHECK_FALSE(
      cropped(make({"3x3", "conv2d", 1, 1, 1, 1, {{4, 3}, {4, 3}}}, DType::f32, true), crop));
}
