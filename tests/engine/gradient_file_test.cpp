// gradient_file_test.cpp - the order of the axes, rounding, and files of the wrong shape.
#include "convgrad/gradient_file.hpp"

#include <doctest/doctest.h>

#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "support/problems.hpp"
#include "support/temp_dir.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Sums that name their place: 1000 * tap + 100 * c + k.
std::vector<double> numbered(const WgradProblem& pb) {
  std::vector<double> dw;
  for (std::int64_t tap = 0; tap < pb.taps(); ++tap)
    for (std::int64_t c = 0; c < pb.group_c(); ++c)
      for (std::int64_t k = 0; k < pb.K; ++k)
        dw.push_back(static_cast<double>(1000 * tap + 100 * c + k));
  return dw;
}

ProblemSpec spec() { return {"3x2", "conv2d", 1, 8, 6, 2, {{4, 3}, {4, 2}}}; }

}  // namespace

TEST_CASE("filter formats order taps, input and output channels") {
  // Of the axes of a file the extents, and what a step along them adds to a sum's number.
  const struct {
    const char* format;
    int extents[3], steps[3];
  } files[] = {{"HWIO", {6, 4, 6}, {1000, 100, 1}},
               {"OIHW", {6, 4, 6}, {1, 100, 1000}},
               {"OHWI", {6, 6, 4}, {1, 1000, 100}}};
  for (const auto& [format, extents, steps] : files) {
    const WgradProblem pb = make(spec(), DType::f32, true, format);
    const std::vector<double> dw = numbered(pb);
    std::vector<double> whole(dw.size()), parts(dw.size());
    gather_gradient(pb, DType::f64, dw.data(), 0, pb.dw_count(), whole.data());
    std::size_t i = 0;
    for (int a = 0; a < extents[0]; ++a)
      for (int b = 0; b < extents[1]; ++b)
        for (int c = 0; c < extents[2]; ++c)
          CHECK(whole[i++] == a * steps[0] + b * steps[1] + c * steps[2]);
    for (std::int64_t begin = 0; begin < pb.dw_count(); begin += 7) {
      gather_gradient(pb, DType::f64, dw.data(), begin,
                      std::min<std::int64_t>(7, pb.dw_count() - begin), parts.data() + begin);
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("a written gradient is read back, rounded to its dtype") {
  TempDir folder;
  const std::string path = folder.path() + "/dw.npy";
  for (const char* format : {"HWIO", "OIHW", "OHWI"}) {
    for (const char* out : {"float16", "bfloat16", "float32", "float64"}) {
      const WgradProblem pb = make(spec(), DType::f32, true, format, out);
      std::vector<double> dw = numbered(pb);
      for (double& value : dw) value += 1.0 / 3;
      write_gradient(path, pb, dw.data(), {});
      const GradientFile file = read_gradient(path, pb);
      CHECK(file.dtype == pb.out_dtype);
      for (std::size_t i = 0; i < dw.size(); ++i) {
        CHECK(file.values[i] == rounded(pb.out_dtype, dw[i]));
      }
      std::vector<std::byte> bits(dw.size() * static_cast<std::size_t>(dtype_bytes(pb.out_dtype)));
      round_to(pb.out_dtype, dw.data(), pb.dw_count(), bits.data());
      write_rounded_gradient(path, pb, bits.data(), {});
      CHECK(read_gradient(path, pb).values == file.values);
    }
  }
}

TEST_CASE("a gradient of another shape, dtype or order of the axes is refused") {
  const TempDir dir;
  const std::string path = dir.file("dw.npy");
  const auto problem = [](const char* format, const char* out) {
    return make(spec(), DType::f32, true, format, out);
  };
  const WgradProblem pb = problem("HWIO", "float32"), oihw = problem("OIHW", "float32");
  const auto refused = [](const std::string& file, const WgradProblem& wanted, const char* text) {
    check_error(ErrorKind::input, "", text, [&] { read_gradient(file, wanted); });
  };
  write_gradient(path, pb, numbered(pb).data(), {});
  refused(path, oihw, "shape (3, 2, 4, 6), expected (6, 4, 3, 2)");
  CHECK(read_gradient(path, problem("HWIO", "float64")).dtype == DType::f32);
  write_gradient(path, oihw, numbered(pb).data(), {});
  refused(path, pb, "this is OIHW: add --filter-format OIHW");
  const std::string bytes =
      dir.write("dw.bin", std::string(static_cast<std::size_t>(pb.dw_count()), ' '));
  refused(bytes + ":float8_e5m2[3,2,4,6]", pb, "dtype float8_e5m2, expected a gradient in");
}

TEST_CASE("a shape that is nearly the gradient's is named") {
  const TempDir dir;
  // 3x2 taps, 8 channels in 2 groups to 6, of 5 images.
  const WgradProblem pb = make({"3x2", "conv2d", 5, 8, 6, 2, {{4, 3}, {4, 2}}}, DType::f32, true);
  const auto refusal = [&](const std::vector<std::int64_t>& shape) -> std::string {
    const std::string path = dir.write("dw.npy", spec_file({shape}));
    const auto error = error_of([&] { read_gradient(path, pb); });
    return error ? error->what() : "";
  };
  const auto says = [&](const std::vector<std::int64_t>& shape, const char* hint) {
    const std::string text = refusal(shape);
    CAPTURE(text);
    CHECK(text.find(hint) != std::string::npos);
  };
  says({24, 6}, "as many elements: reshape it");
  says({144}, "as many elements: reshape it");
  for (const std::vector<std::int64_t>& other :
       {std::vector<std::int64_t>{3, 2, 4, 7}, {5, 3, 2, 4, 6}, {2, 3, 4, 6}, {25, 6}, {5}}) {
    CHECK(refusal(other).ends_with("filter gradient"));
  }
}

TEST_CASE("a gradient larger than the staging buffer is written in parts") {
  TempDir folder;
  const std::string path = folder.path() + "/dw.npy";
  const WgradProblem pb =
      make({"wide", "conv2d", 1, 300, 1100, 1, {{1, 1}, {1, 1}}}, DType::f32, true, "OIHW");
  REQUIRE(pb.dw_count() * 16 > kOutputStagingBytes);
  std::vector<double> dw(static_cast<std::size_t>(pb.dw_count()));
  for (std::size_t i = 0; i < dw.size(); ++i) dw[i] = static_cast<double>(i);
  write_gradient(path, pb, dw.data(), {});
  CHECK(read_gradient(path, pb).values == dw);
}

TEST_CASE("single entries of a file are those of the whole") {
  const ProblemSpec specs[] = {spec(),
                               {"depthwise", "depthwise", 1, 3, 6, 3, {{4, 2}, {4, 3}}},
                               {"3-D", "conv3d", 1, 2, 3, 1, {{3, 2}, {4, 1}, {4, 2}}},
                               {"1-D", "conv1d", 1, 2, 3, 1, {{9, 3}}}};
  for (const ProblemSpec& each : specs) {
    for (const char* format : {"HWIO", "OIHW", "OHWI"}) {
      std::string name = format;
      if (each.axes.size() == 3) name.insert(name.find('H'), "D");
      if (each.axes.size() == 1) name.erase(name.find('H'), 1);
      const WgradProblem pb = make(each, DType::f32, true, name);
      CAPTURE(describe(pb));
      const std::vector<double> dw = numbered(pb);
      const TempDir folder;
      write_gradient(folder.file("dw.npy"), pb, dw.data(), {});
      std::vector<std::int64_t> indices;
      std::vector<double> want;
      for (std::int64_t i = pb.dw_count() - 1; i >= 0; i -= 2) {
        indices.push_back(i);
        want.push_back(dw[static_cast<std::size_t>(i)]);
      }
      const GradientFile some = read_gradient_entries(folder.file("dw.npy"), pb, indices);
      CHECK(some.values == want);
      CHECK(some.dtype == DType::f32);
    }
  }
}
