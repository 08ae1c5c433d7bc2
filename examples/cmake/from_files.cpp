// from_files.cpp - from_files X.npy DY.npy DW.npy TAPS STRIDE: a conv2d gradient with padding SAME,
// block by block, in at most 512 MiB; what convgrad itself does, without its command line.
#include <convgrad/convgrad.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void compute(const char* x_file, const char* dy_file, const char* dw_file, long taps, long stride) {
  using namespace convgrad;
  NpyReader x(x_file), dy(dy_file);
  WgradAttributes attributes;
  attributes.op = "conv2d";
  attributes.kernel = {taps};
  attributes.strides = {stride};
  attributes.padding = "SAME";
  const auto info = [](const NpyReader& reader) {
    return TensorInfo{reader.name(), float_dtype(reader.header(), reader.name()),
                      reader.header().shape};
  };
  const WgradProblem problem = make_problem(info(x), info(dy), attributes);

  GradientOptions options;
  options.memory_limit_bytes = std::int64_t{512} << 20;
  const std::vector<double> sums = filter_gradient(problem, x, dy, options);
  write_gradient(dw_file, problem, sums.data(), {});  // rounded; complete or not at all
  std::printf("%s\n", describe(problem).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: from_files X.npy DY.npy DW.npy TAPS STRIDE\n");
    return 2;
  }
  try {
    compute(argv[1], argv[2], argv[3], std::atol(argv[4]), std::atol(argv[5]));
    return 0;
  } catch (const convgrad::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
}
