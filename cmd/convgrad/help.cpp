// help.cpp - see help.hpp.
#include "help.hpp"

#include "version.hpp"

namespace convgrad::cli {

std::string version_text() {
  return std::string("convgrad ") + kVersion + " (" + kGitRevision + ", " + kCompiler + ", " +
         kBuildType + ")";
}

std::string compute_footer() {
  return R"(Number lists take 1 value (all spatial axes), the spatial axes, or every axis in
data-format order; "2,2", "2 2" and "[2,2]" are the same. Hyphens and underscores in
option names are the same. Options other than --json can also come from CONVGRAD_*
variables (CONVGRAD_THREADS=2) or the --config file; flags win over variables, those over
the file.

Examples:
  convgrad --op conv2d -i x.npy -g dy.npy -o dw.npy -k 3 -s 2 -p same
  convgrad --op conv2d -i x.npy -g dy.npy -o dw.npy --filter-sizes 3,3,3,8 --strides 1,2,2,1 --padding SAME
  convgrad --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --dry-run
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy

Exit status: 0 done, or match; 1 mismatch; 2 usage; 3 bad input (file, dtype, shape,
attribute); 4 not available here; 5 failed while running; 128 + n ended by signal n
(130 interrupted, 143 terminated).)";
}

std::string verify_footer() {
  return R"(Without --result the chosen backend and algorithm compute the gradient that is judged.
By default an element passes if |got-want| <= u_out*|want| + 4*sqrt(L)*u_acc*sum|x||dy|,
L terms, u the unit roundoffs of the result's and the accumulator's dtype. On a mismatch
known faults are tried, from a flipped filter to a missing image, and those that explain it
are named (docs/verify.md).

Examples:
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --golden dw.npy --bitwise
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy --sample 100
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --reference adjoint --repeat-check 3
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --golden golden.npy --update-golden
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy --save-repro failing

Exit status: 0 match; 1 mismatch; 2 or more: no verdict.)";
}

std::string bench_footer() {
  return R"(A run is the whole gradient from tensors in memory: packing, partial sums, their tree and
the rounding; nothing is kept from run to run. The problem is --op, --input-shape and a
filter, or two files (-i, -g), or a --suite. --json=FILE writes a report that a later run
can take as its --baseline.

Examples:
  convgrad bench --op conv2d --input-shape 8,28,28,64 --filter-sizes 3,3,64,64 -p same
  convgrad bench --op depthwise --input-shape 2,28,28,64 -k 3 -p same --dtype all --min-time 0.1 --format csv
  convgrad bench --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --algorithm all --min-time 0.1 --json

Exit status: 0 measured; 1 slower than the baseline; 2 or more: no verdict.)";
}

std::string inspect_footer() {
  return R"(Examples:
  convgrad inspect x.npy dy.npy
  convgrad inspect --json x.npy)";
}

std::string info_footer() {
  return R"(Examples:
  convgrad info
  convgrad info --json
  convgrad info --peaks --threads 1)";
}

}  // namespace convgrad::cli
