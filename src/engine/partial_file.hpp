// partial_file.hpp - the sums of a part of the batch in a file, and the gradient from such files.
//
// The file is a .npz archive that numpy.load reads:
//   problem  bytes: a JSON object that says what was summed, and how
//   sums     float64 [nodes, taps, C/groups, K]: the sums of each node of the tree
// The nodes are the largest ones of the tree that lie within the part (tree_nodes()), so files
// whose parts make up the batch give the bits of one run, whoever computed them and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "engine/plan.hpp"
#include "files/output_file.hpp"

namespace convgrad {

// A file says this of itself. All but images and slices must be equal in files that are added.
struct PartialHeader {
  WgradProblem problem;   // the whole, not the part
  std::string algorithm;  // a row of the tables of kernels
  std::string program;    // version and build: another one may round differently
  std::string blas;       // OpenBLAS and the processor it chose kernels for; "" if it has no part
  int schedule = kScheduleVersion;
  std::int64_t of_slices = 1;
  Range images, slices;
};
PartialHeader partial_header(const Plan& plan, const std::string& program);

// Returns a JSON object on one line.
std::string partial_header_text(const PartialHeader& header);
// Throws an Error(input) that begins with name unless the text is what partial_header_text()
// writes, of a problem that make_problem() accepts.
PartialHeader parse_partial_header(const std::string& text, const std::string& name);

// Names the first field in which b differs from a, though it must not, and what each has; or "".
std::string partial_difference(const PartialHeader& a, const PartialHeader& b,
                               const std::string& name_a, const std::string& name_b);

// Returns at least the bytes of the file that a plan's sums will make, and little more.
std::int64_t partial_file_bytes(const Plan& plan);

// Throws what can be seen before computing: the errors of check_output(), and Error(usage) where an
// archive that is no such file would be replaced.
void check_partial_output(const std::string& path, const OutputOptions& options);

// Writes the sums of the part's nodes, each dw_count() values in [tap][c][k] order, to a file that
// appears complete or not at all.
void write_partial(const std::string& path, const PartialHeader& header,
                   std::span<const double* const> sums, const OutputOptions& options);

struct PartialFile {
  std::string path;
  PartialHeader header;
  std::vector<Range> nodes;
};
// Throws Error(input) unless it is such a file, whole, and its arrays fit each other.
PartialFile open_partial(const std::string& path);

// Throws an Error(input) that names both files and what differs unless all are of one problem,
// computed in one way, and each image of it is in exactly one of them. Puts them into the order of
// their images.
void check_partials(std::vector<PartialFile>& files);

// Adds up the gradient, in [tap][c][k] order, of files that have been checked. One is open at a
// time; memory is the gradient once for each level of the tree at most.
Buffer add_partials(const std::vector<PartialFile>& files);

}  // namespace convgrad
