#include "engine/partial_file.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/messages.hpp"
#include "convgrad/array_file.hpp"
#include "convgrad/npy.hpp"
#include "engine/machine.hpp"
#include "files/json.hpp"
#include "files/npz_writer.hpp"

namespace convgrad {
namespace {

// A damaged file must not ask for much memory.
constexpr std::int64_t kMostHeaderBytes = 1 << 16;

const Hint kAgain("compute the file again with --batch-range");

std::vector<std::int64_t> sums_shape(const WgradProblem& problem, std::int64_t nodes) {
  return {nodes, problem.taps(), problem.group_c(), problem.K};
}

// Opens one array of the file, whose dtype and rank are known.
NpyReader open_member(const std::string& path, const char* member, std::string_view descr,
                      std::size_t rank) {
  NpyReader reader(cat(path, ":", member));
  const NpyHeader& header = reader.header();
  const bool fits = header.descr.substr(0, descr.size()) == descr && header.shape.size() == rank &&
                    !header.fortran_order;
  if (!fits) {
    bad_input(reader.name(), ": is an array of dtype '", header.descr, "' and rank ",
              header.shape.size(), ", expected '", descr, "' and rank ", rank, kAgain);
  }
  return reader;
}

NpyReader open_sums(const PartialFile& file) {
  NpyReader reader = open_member(file.path, "sums", "<f8", 4);
  if (reader.header().shape != sums_shape(file.header.problem, std::ssize(file.nodes))) {
    bad_input(reader.name(), ": another shape than its problem's and slices'", kAgain);
  }
  return reader;
}

// Walks down the tree to the nodes that files hold, left to right, and adds up on the way back.
class TreeSum {
 public:
  explicit TreeSum(const std::vector<PartialFile>& files)
      : files_(files), count_(files[0].header.problem.dw_count()) {}

  Buffer of(Range node) {
    while (row_ == std::ssize(files_[file_].nodes)) {
      ++file_;
      row_ = 0;
    }
    if (files_[file_].nodes[static_cast<std::size_t>(row_)] == node) return read_next();
    const auto [left, right] = tree_children(node);
    Buffer sums = of(left);
    const Buffer other = of(right);
    for (std::int64_t i = 0; i < count_; ++i) sums.as<double>()[i] += other.as<double>()[i];
    return sums;
  }

 private:
  Buffer read_next() {
    const PartialFile& file = files_[file_];
    if (row_ == 0) reader_.emplace(open_sums(file));
    Buffer sums(count_ * 8, "the sums of partial gradients");
    const std::vector<std::int64_t> begin = {row_++, 0, 0, 0};
    std::vector<std::int64_t> end = reader_->header().shape;
    end[0] = row_;
    reader_->read_box(begin, end, sums.data());
    if (row_ == std::ssize(file.nodes)) reader_->finish();
    return sums;
  }

  const std::vector<PartialFile>& files_;
  const std::int64_t count_;
  // What is read next: a row of a file, and its reader once the first row is read.
  std::size_t file_ = 0;
  std::int64_t row_ = 0;
  std::optional<NpyReader> reader_;
};

std::string images_text(Range images) {
  return images.size() == 1 ? cat("image ", images.begin)
                            : cat("images ", images.begin, " to ", images.end - 1);
}

constexpr const char* kFormat = "convgrad.partial/4";

Json range_json(Range range) { return {range.begin, range.end}; }
Range range_from(const Json& json) {
  const auto numbers = json.get<std::array<std::int64_t, 2>>();
  return {numbers[0], numbers[1]};
}

// Returns everything that files of one run share, in the order in which differences are looked for.
Json shared_json(const PartialHeader& header) {
  return {{"problem", describe(header.problem)},
          {"algorithm", header.algorithm},
          {"schedule", header.schedule},
          {"program", header.program},
          {"blas", header.blas},
          {"of_slices", header.of_slices}};
}

bool is_within(Range range, std::int64_t count) {
  return 0 <= range.begin && range.begin <= range.end && range.end <= count;
}

}  // namespace

std::int64_t partial_file_bytes(const Plan& plan) {
  constexpr std::int64_t kHeaders = 4096;
  return kHeaders +
         checked_mul(std::ssize(plan.schedule.nodes), plan.problem.dw_count() * 8, "the output");
}

void check_partial_output(const std::string& path, const OutputOptions& options) {
  check_output(path, options);
  check_archive_is_kept(path, {"problem", "sums"});
}

void write_partial(const std::string& path, const PartialHeader& header,
                   std::span<const double* const> sums, const OutputOptions& options) {
  check_partial_output(path, options);
  OutputFile file(path, options);
  NpzWriter archive(file);
  const auto add = [&](const char* name, const std::string& npy_header, std::uint64_t bytes) {
    archive.begin(name, npy_header.size() + bytes);
    archive.append(std::as_bytes(std::span(npy_header)));
  };
  const std::string text = partial_header_text(header);
  add("problem", npy_header_text(cat("|S", text.size()), {}), text.size());
  archive.append(std::as_bytes(std::span(text)));
  const auto count = static_cast<std::size_t>(header.problem.dw_count());
  add("sums", npy_header_text("<f8", sums_shape(header.problem, std::ssize(sums))),
      sums.size() * count * 8);
  for (const double* node : sums) archive.append(std::as_bytes(std::span(node, count)));
  archive.finish();
  file.commit();
}

PartialFile open_partial(const std::string& path) {
  NpyReader problem = open_member(path, "problem", "|S", 0);
  const std::int64_t bytes = problem.header().payload_bytes;
  if (bytes > kMostHeaderBytes) {
    bad_input(problem.name(), ": has ", bytes, " bytes, expected at most ", kMostHeaderBytes,
              kAgain);
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  problem.read_all(text.data());
  const PartialHeader header = parse_partial_header(text, path);
  PartialFile file{path, header, tree_nodes(header.of_slices, header.slices)};
  if (!file.nodes.empty()) open_sums(file);  // checks their shape
  return file;
}

void check_partials(std::vector<PartialFile>& files) {
  for (const PartialFile& file : files) {
    const std::string difference =
        partial_difference(files[0].header, file.header, files[0].path, file.path);
    if (!difference.empty()) {
      bad_input(difference,
                Hint("give files of one problem, computed by one build and one --algorithm"));
    }
  }
  std::ranges::stable_sort(files, {}, [](const PartialFile& file) {
    return std::pair(file.header.slices.begin, file.header.slices.end);
  });
  const PartialHeader& any = files[0].header;
  const auto missing = [&](Range images) {
    bad_input(images_text(images), " of ", any.problem.N, images.size() == 1 ? " is" : " are",
              " in none of the files",
              Hint("compute with --batch-range ", images.begin, ":", images.end));
  };
  const PartialFile none = {};
  const PartialFile* before = &none;
  for (const PartialFile& file : files) {
    const PartialHeader &header = file.header, &seen = before->header;
    if (header.slices.size() == 0) continue;
    if (header.slices.begin < seen.slices.end) {
      bad_input(
          images_text({header.images.begin, std::min(header.images.end, seen.images.end)}), " of ",
          file.path,
          before->path == file.path ? " are given twice" : cat(" are in ", before->path, " too"),
          ", expected each image once", Hint("leave one of the files out"));
    }
    if (header.slices.begin > seen.slices.end) missing({seen.images.end, header.images.begin});
    before = &file;
  }
  const PartialHeader& last = before->header;
  if (last.slices.end < any.of_slices) missing({last.images.end, any.problem.N});
}

Buffer add_partials(const std::vector<PartialFile>& files) {
  return TreeSum(files).of({0, files[0].header.of_slices});
}

PartialHeader partial_header(const Plan& plan, const std::string& program) {
  PartialHeader header;
  header.problem = plan.problem;
  header.algorithm = algorithm_name(plan);
  header.program = program;
  // The bits of OpenBLAS depend on its version and on the processor whose kernels it chose.
  if (plan.cpu() && plan.cpu()->kernel->by_blas) {
    const BlasInfo blas = blas_info();
    header.blas = cat(blas.config, ", ", blas.core);
  }
  header.of_slices = plan.schedule.slices.count();
  header.images = plan.schedule.part.images;
  header.slices = plan.schedule.slices.slices_of(plan.schedule.part.partitions);
  return header;
}

std::string partial_header_text(const PartialHeader& header) {
  Json json = {{"format", kFormat},
               {"images", range_json(header.images)},
               {"slices", range_json(header.slices)}};
  json.update(shared_json(header));
  return json_text(json);
}

PartialHeader parse_partial_header(const std::string& text, const std::string& name) {
  try {
    const Json json = read_json(text);
    const auto format = json.at("format").get<std::string>();
    if (format != kFormat) bad_input("format ", format, ", expected ", kFormat);
    PartialHeader header;
    header.problem = make_problem(parse_problem(json.at("problem").get<std::string>()));
    header.algorithm = json.at("algorithm").get<std::string>();
    header.schedule = json.at("schedule").get<int>();
    header.program = json.at("program").get<std::string>();
    header.blas = json.at("blas").get<std::string>();
    header.of_slices = json.at("of_slices").get<std::int64_t>();
    header.images = range_from(json.at("images"));
    header.slices = range_from(json.at("slices"));
    const bool fits = is_within(header.images, header.problem.N) && header.of_slices > 0 &&
                      is_within(header.slices, header.of_slices);
    if (!fits) bad_input("images and slices do not fit the problem");
    return header;
  } catch (const Error& error) {
    bad_input(name, ": damaged: ", error.what(), Hint("compute it again with --batch-range"));
  } catch (const Json::exception&) {  // a key is missing, or has another type of value
    bad_input(name, ": damaged: its problem is not what --batch-range writes",
              Hint("compute it again"));
  }
}

std::string partial_difference(const PartialHeader& a, const PartialHeader& b,
                               const std::string& name_a, const std::string& name_b) {
  const Json first = shared_json(a), second = shared_json(b);
  for (const auto& [key, value] : first.items()) {
    const Json& other = second.at(key);
    if (value == other) continue;
    return cat(name_b, ": ", key, " ", json_text(other), ", expected ", json_text(value), " as in ",
               name_a);
  }
  return "";
}

}  // namespace convgrad
