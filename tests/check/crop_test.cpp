// crop_test.cpp - a part of a problem gives the same part of the gradient.
#include "check/crop.hpp"

#include <doctest/doctest.h>

#include "check/reference_sum.hpp"
#include "convgrad/gradient_file.hpp"
#include "support/cases.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Both tensors in files, and the reference on them or a part of them.
struct Files {
  Files(const WgradProblem& problem, Fill fill) : pb(problem) {
    const auto x = filled(pb.dtype, pb.x_count(), fill, 3);
    const auto dy = filled(pb.dtype, pb.dy_count(), fill, 4);
    folder.write("x.npy", npy_text(pb.dtype, x_shape(pb), x));
    folder.write("dy.npy", npy_text(pb.dtype, dy_shape(pb), dy));
  }
  std::vector<double> reference(const CroppedProblem& part) const {
    const TempDir there;
    NpyReader x(folder.file("x.npy")), dy(folder.file("dy.npy"));
    write_part(there.file("x.npy"), x, pb.dtype, part.x, x_shape(part.problem));
    write_part(there.file("dy.npy"), dy, pb.dtype, part.dy, dy_shape(part.problem));
    return reference(part.problem, there);
  }
  std::vector<double> reference(const WgradProblem& problem, const TempDir& there) const {
    PlanOptions options;
    options.backend = Backend::reference;
    const Plan plan = make_plan(problem, this_machine(), options);
    NpyReader x(there.file("x.npy")), dy(there.file("dy.npy"));
    NpySource source(x, dy);
    TaskPool pool(2);
    ReferenceSum sum(problem, pool);
    sum_blocks(plan, source, sum);
    sum.finish();
    return sum.expected().values;
  }

  const WgradProblem pb;
  TempDir folder;
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
      const std::vector<double> whole = files.reference(pb, files.folder);
      for (const bool second : {false, true}) {
        Crop crop = element_crop(pb, second ? pb.dw_count() - 1 : pb.dw_count() / 2);
        for (std::size_t a = 0; a < 3; ++a) crop.taps[a] = half({0, pb.axis[a].taps}, second);
        const auto part = cropped(pb, crop);
        if (!part) continue;
        const std::vector<double> values = files.reference(*part);
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

TEST_CASE("the crop of an element is that element") {
  for (const ProblemSpec& spec : basic_problems()) {
    const WgradProblem pb = make(spec, DType::f32, true);
    CAPTURE(describe(pb));
    for (std::int64_t index = 0; index < pb.dw_count(); index += pb.dw_count() / 7 + 1) {
      const Crop crop = element_crop(pb, index);
      const auto part = cropped(pb, crop);
      if (!part) continue;
      CHECK(part->problem.dw_count() == 1);
      CHECK(whole_index(pb, crop, part->problem, 0) == index);
    }
  }
}
