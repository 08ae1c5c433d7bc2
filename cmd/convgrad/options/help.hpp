// help.hpp - the texts around --help, and that of --version.
#pragma once

#include <string>

namespace convgrad::cli {

// Returns "convgrad 1.2.3 (revision, compiler, build type)".
std::string version_text();

inline constexpr const char* kComputeFooter =
    R"(A tensor that is read is FILE.npy, FILE.npz:NAME, FILE.safetensors:NAME, or - for standard
input (one of them). --output is written as its name says: .npy, .npz and .safetensors archives
of this one array (called dw, or NAME in FILE.npz:NAME), or its elements alone with --raw.

Number lists take 1 value (all spatial axes), the spatial axes, or every axis in
data-format order; "2,2", "2 2", "2x2" and "[2,2]" are the same. Numbers in --padding are 1
or the spatial axes, the same on both sides, or pairs: "1", "0,1", "[[0,0],[1,1],[0,1],[0,0]]".
Hyphens and underscores in option names are the same. Options other than --json can also come
from CONVGRAD_* variables (CONVGRAD_THREADS=2); flags win over these.

Examples:
  convgrad --op conv2d -i x.npy -g dy.npy -o dw.npy -k 3 -s 2 -p same
  convgrad --op conv2d -i x.npy -g dy.npy -o dw.npy --filter-sizes 3,3,3,8 --strides 1,2,2,1 --padding SAME
  convgrad --op conv2d -i layer.npz:x -g layer.npz:dy -o dw.npy -k 3 -s 2 -p same
  cat x.npy | convgrad --op conv2d -i - -g dy.npy -o - -k 3 -s 2 -p same > dw.npy
  convgrad --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --dry-run
  convgrad --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --batch-range 1/2 -o part1.npz
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy

Exit status: 0 done, or match; 1 mismatch; 2 usage; 3 bad input (file, dtype, shape,
attribute); 4 not available here; 5 failed while running; 128 + n ended by signal n
(130 interrupted, 143 terminated).)";

inline constexpr const char* kVerifyFooter =
    R"(Without --result the chosen backend and algorithm compute the gradient that is judged.
By default errors are compared with those that rounding makes in a right sum of the same terms:
at most 3 times as large, as root mean square over the gradient, each tap and each channel, and
little more in each element. --criterion bound takes the worst case, |got-want| <= u_out*|want|
+ 4*sqrt(L)*u_acc*sum|x||dy|, L terms, u the unit roundoffs of the result and the accumulator.
On a mismatch known faults are tried, from a flipped filter to bfloat16 inputs, and those that
explain it are named. A match says which faults it would have seen (docs/faults.md).

Examples:
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --golden dw.npy --bitwise
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy --sample 100
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --sample 5000
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --golden golden.npy --update-golden
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy --result golden.npy
  convgrad verify --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --result dw.npy --show 5 --save-diff d.npy

Exit status: 0 match; 1 mismatch; 2 or more: no verdict.)";

inline constexpr const char* kCompareFooter =
    R"(Shapes must be equal, without broadcasting. Values of two dtypes are compared as they are, by
the defaults and in the steps of the coarser one; with --bitwise dtypes must be equal. How a file
stores an array (byte order, Fortran order) does not matter. An infinity equals one of its sign.
Integers and booleans are compared with each other, by value and exactly.
Without --rtol, --atol, --max-ulp and --bitwise the tolerance follows from the dtype:
  float16 rtol 0.001, bfloat16 0.016, float32 1.3e-6, all with atol 1e-5; float64 1e-7 for both

Examples:
  convgrad compare dw.npy golden.npy
  convgrad compare dw.npy golden.npy --rtol 1e-5 --atol 1e-8 --save-diff d.npy
  convgrad compare layer.npz layer.npz
  convgrad --op conv2d -i x.npy -g dy.npy -o - -k 3 -s 2 -p same | convgrad compare - dw.npy --bitwise -q

Exit status: 0 equal; 1 different; 2 or more: no verdict.)";

inline constexpr const char* kBatchFooter =
    R"(A job is a JSON object. Its fields are the options of the command that it stands for (input,
out_backprop, op, kernel, strides, padding, output, golden, rtol, ...), or problem, a line of a
report's attrs; paths are relative to the manifest. A job with "golden" or "result" verifies, one with
"output" alone computes; none may read what another writes. A jobs.jsonl:
  {"name": "layer1", "op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 3, "strides": 2, "padding": "same", "output": "layer1.npy"}
  {"name": "check1", "op": "conv2d", "input": "x.npy", "out_backprop": "dy.npy", "kernel": 3, "strides": 2, "padding": "same", "result": "dw.npy"}

Examples:
  convgrad batch jobs.jsonl
  convgrad batch jobs.jsonl --jobs 2 --keep-going --junit report.xml
  convgrad batch jobs.jsonl --resume --match layer
  convgrad batch jobs.jsonl --shard 1/2 --junit 1.xml
  convgrad batch jobs.jsonl --shard 2/2 --junit 2.xml
  convgrad batch jobs.jsonl --dry-run

Exit status: the worst of all jobs: 0 done, or match; 1 mismatch; 3 bad input, a malformed
line too; 4 not available here; 5 failed while running. 2 is the command line itself.)";

inline constexpr const char* kBenchFooter =
    R"(A run is the whole gradient from tensors in memory: packing, partial sums, their tree and
the rounding; what is kept from run to run are idle threads and a little memory. The
problem is --op, --input-shape and a filter, or two files (-i, -g), or a line (--problem), or
a --suite.

Examples:
  convgrad bench --op conv2d --input-shape 8,28,28,64 --filter-sizes 3,3,64,64 -p same
  convgrad bench --op depthwise --input-shape 2,28,28,64 -k 3 -p same --dtype all --min-time 0.1
  convgrad bench --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --algorithm all --min-time 0.1 --json
  convgrad bench --problem mb2ic64ih28oc64oh28kh3ph1 --min-time 0.1 --tag run=7
  convgrad bench --network resnet50 --batch 1 --only /12 --min-time 0.1)";

inline constexpr const char* kGenerateFooter =
    R"(The gradient is the float64 reference's, rounded once; of --dist int it is exact, and so is
every partial sum in float32, in any order. uniform is in [-1, 1), normal has mean 0 and variance 1;
adversarial mixes channels whose numbers cancel, differ much in size, or are subnormal.

Examples:
  convgrad generate conv2d --shape 2,8,8,3 --filter-sizes 3,3,3,8 -s 2 -p same -o made
  convgrad generate depthwise --shape 2,9,9,4 -k 3 --multiplier 2 -p valid --dtype bfloat16 --dist adversarial --seed 7 -o hard --json
  convgrad generate conv3d --shape 1,4,6,6,2 -k 2 --out-channels 4 -p same --dist normal -o made --clobber
  convgrad generate --problem "conv -n 2 -c 4 -H 9 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1" -o driver)";

inline constexpr const char* kReduceFooter =
    R"(The files must be of one problem and computed by one build and algorithm, and have each image
once. The bits of the gradient are those of one run over all images. --batch-range K/R cuts the
batch into R parts that are as even as its sums allow; parts that are already there need not be
computed again.

Examples:
  convgrad --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --batch-range 1/2 -o part1.npz
  convgrad --op conv2d -i x.npy -g dy.npy -k 3 -s 2 -p same --batch-range 2/2 -o part2.npz
  convgrad reduce part1.npz part2.npz -o dw.npy

Exit status: 0 done; 3 a file that is damaged, or does not belong to the others.)";

inline constexpr const char* kInspectFooter = R"(Examples:
  convgrad inspect x.npy dy.npy
  convgrad inspect layer.npz
  convgrad inspect --json x.npy)";

inline constexpr const char* kInfoFooter = R"(Examples:
  convgrad info
  convgrad info --json
  convgrad info --peaks --threads 1)";

inline constexpr const char* kCompletionFooter =
    R"TEXT(The script completes commands, options, their values, and files. It is for a shell's
start-up file, or for the folder from which the shell takes such files:
  bash  eval "$(convgrad completion bash)" in ~/.bashrc
  zsh   a file _convgrad in a folder of $fpath, or the same eval after compinit in ~/.zshrc
An installed package has them in place.

Examples:
  convgrad completion bash >convgrad.bash
  eval "$(convgrad completion bash)"
  convgrad completion zsh >_convgrad)TEXT";

}  // namespace convgrad::cli
