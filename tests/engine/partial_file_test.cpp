// partial_file_test.cpp - files of partial sums give the tree of all slices.
#include "engine/partial_file.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "base/task_pool.hpp"
#include "engine/run.hpp"
#include "support/cases.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("a header says all of the problem") {
  for (const ProblemSpec& spec : basic_problems()) {
    for (const DType dtype : kDTypes) {
      const WgradProblem problem = make(spec, dtype, dtype != DType::f16);
      CAPTURE(describe(problem));
      PartialHeader header;
      header.problem = problem;
      header.algorithm = "direct";
      header.program = "convgrad \"x\"";
      header.of_slices = 9;
      header.images = {0, problem.N};
      header.slices = {2, 9};
      const PartialHeader back = parse_partial_header(partial_header_text(header), "a.npz");
      CHECK(back.problem == problem);
      CHECK(back.images == header.images);
      CHECK(back.slices == header.slices);
      CHECK(partial_difference(header, back, "a", "b").empty());
      PartialHeader other = back;
      other.problem.axis[2].pad_before += 1;
      CHECK(partial_difference(header, other, "a", "b").starts_with("b: problem "));
    }
  }
}

TEST_CASE("parts in files give the bits of the whole in every algorithm") {
  const TempDir folder;
  for (const DType dtype : kDTypes) {
    for (const ProblemSpec& spec :
         std::vector<ProblemSpec>{{"3x3", "conv2d", 7, 6, 10, 1, {{46, 3}, {43, 3}}},
                                  {"depthwise", "depthwise", 40, 8, 8, 8, {{15, 3}, {14, 3}}}}) {
      const WgradProblem problem = make(spec, dtype, true);
      const auto x = filled(dtype, problem.x_count(), Fill::normal, 11);
      const auto dy = filled(dtype, problem.dy_count(), Fill::normal, 12);
      CAPTURE(describe(problem));
      for_each_kernel_here(problem, [&](const Kernel& kernel) {
        const PlanOptions options{.algorithm = std::string(kernel.name), .in_memory = true};
        const auto sum_of = [&](const PlanOptions& o, const auto& use) {
          const Plan plan = make_plan(problem, this_machine(), o);
          TaskPool pool(plan.threads);
          const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
          MemorySource source(x.data(), dy.data());
          sum_blocks(plan, source, *sum);
          use(plan, *sum);
        };
        std::vector<double> whole;
        sum_of(options, [&](const Plan& plan, BlockSum& sum) {
          CHECK(plan.schedule.nodes.size() == 1);
          const double* dw = sum.finish();
          whole.assign(dw, dw + problem.dw_count());
        });
        std::vector<PartialFile> files;
        for (std::int64_t part = 0; part < 3; ++part) {
          PlanOptions o = options;
          o.batch = {{}, part, 3};
          o.threads = static_cast<int>(part) + 1;
          sum_of(o, [&](const Plan& plan, BlockSum& sum) {
            std::vector<const double*> sums;
            for (std::size_t node = 0; node < plan.schedule.nodes.size(); ++node) {
              sums.push_back(sum.finish(node));
            }
            const std::string path = folder.file(cat(part, ".npz"));
            write_partial(path, partial_header(plan, "test"), sums, {});
            files.push_back(open_partial(path));
          });
        }
        check_partials(files);
        const Buffer sums = add_partials(files);
        CHECK(std::memcmp(sums.data(), whole.data(), whole.size() * 8) == 0);
      });
    }
  }
}
