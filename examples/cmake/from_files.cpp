// from_files.cpp - from_files X.npy DY.npy DW.npy TAPS STRIDE: a conv2d gradient with padding SAME,
// block by block, in at most 512 MiB; what convgrad itself does, without its command line.
#include <convgrad/convgrad.hpp>
#include <convgrad/machine.hpp>
#include <convgrad/task_pool.hpp>
#include <cstdio>
#include <cstdlib>

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

  PlanOptions options;
  options.memory_limit_bytes = std::int64_t{512} << 20;
  const Plan plan = make_plan(problem, this_machine(), options);
  std::printf("%s\n%s\n", describe(problem).c_str(), describe(plan).c_str());

  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  NpySource source(x, dy);
  sum_blocks(plan, source, *sum);
  write_gradient(dw_file, problem, sum->finish(), nullptr, {});  // complete or not at all
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
