// compare.cpp - are two arrays equal, or all of two archives or folders? They are read once, in
// parts, so they may be larger than memory.
#include "compare/compare.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "convgrad/array_file.hpp"
#include "files/array.hpp"
#include "files/tensor_source.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"
#include "report/values.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPartElements = std::int64_t{1} << 19;

void check_options(const CompareOptions& options) {
  if (options.got.empty() || options.want.empty()) {
    misuse(options.got.empty() ? "GOT and WANT are" : "WANT is",
           " missing, expected two .npy files: convgrad compare GOT WANT");
  }
  check_files_are_kept(options);
  refuse_terminals(options);
  check_difference(options.save_diff);
}

// Names an array as the user does, and opens it, as often as it is called.
struct Source {
  std::string argument;
  std::function<NpyReader()> open;
};

// Reads one of the two arrays in C order: floats as double, integers and booleans as long double,
// which holds every integer of 64 bits.
class Array {
 public:
  explicit Array(const Source& source)
      : source_(source), reader_(source.open()), dtype_name_(dtype_text(reader_)) {
    if (is_integers()) return;
    dtype_ = float_dtype(reader_.header(), reader_.name());
    reader_.widen_to(DType::f64);
  }

  const Source& source() const { return source_; }
  const std::string& name() const { return reader_.name(); }
  const NpyHeader& header() const { return reader_.header(); }
  const std::string& dtype_name() const { return dtype_name_; }
  DType dtype() const { return dtype_; }  // of floats
  bool is_integers() const { return is_integer(reader_.header()); }

  template <typename Value>
  std::vector<Value> read(const ArrayPart& part) {
    std::vector<Value> values(static_cast<std::size_t>(part.count));
    if constexpr (std::is_same_v<Value, double>) {
      reader_.read_box(part.begin, part.end, values.data());
    } else {
      with_integer(reader_.header(), [&]<typename Integer>(Integer) {
        std::vector<Integer> integers(values.size());
        reader_.read_box(part.begin, part.end, integers.data());
        std::ranges::copy(integers, values.begin());
      });
    }
    return values;
  }
  void finish() { reader_.finish(); }

 private:
  const Source source_;
  NpyReader reader_;
  std::string dtype_name_;
  DType dtype_ = DType::f64;
};

// Returns why the arrays differ without a look at their elements, or "" if they may be equal.
std::string refusal(const CompareReport& r, const std::vector<std::int64_t>& want_shape) {
  if (r.shape != want_shape) {
    const bool turned = std::ranges::is_permutation(r.shape, want_shape);
    return cat("shapes ", shape_text(r.shape), ", ", shape_text(want_shape), " differ",
               turned ? " in the order of their axes" : "");
  }
  if (r.tolerance.tolerance.criterion == Criterion::bitwise && r.got_dtype != r.want_dtype) {
    return cat("dtypes ", r.got_dtype, ", ", r.want_dtype, " differ, so their bits do");
  }
  return "";
}

// Integers are compared with integers alone: what a tolerance would mean for others is not known.
void check_kinds(const CompareOptions& options, const Array& got, const Array& want) {
  if (got.is_integers() != want.is_integers()) {
    bad_input(got.name(), " is ", got.dtype_name(), ", ", want.name(), " is ", want.dtype_name(),
              ", expected integers or booleans in both, or floats", Hint("convert one of them"));
  }
  if (got.is_integers() && options.max_ulp) {
    misuse("--max-ulp: given for ", got.dtype_name(), ", expected --atol for integers");
  }
}

void describe_arrays(const CompareOptions& options, const Array& got, const Array& want,
                     CompareReport& r) {
  const auto report_of = [&](const Array& array) {
    const auto& [argument, open] = array.source();
    return tensor_report(argument, array.header(), !options.json.empty(), open);
  };
  r.tensors = {{"got", report_of(got)}, {"want", report_of(want)}};
  r.got = got.name();
  r.want = want.name();
  r.shape = got.header().shape;
  r.got_dtype = got.dtype_name();
  r.want_dtype = want.dtype_name();
  r.integers = got.is_integers();
  r.tolerance.tolerance = tolerance_of(options);
  r.tolerance.equal_nan = options.equal_nan;
  r.tolerance.ulp_dtype = coarser_dtype(got.dtype(), want.dtype());
  r.by_default = r.tolerance.tolerance.needs_terms();  // none was asked for
  if (r.by_default) {
    r.tolerance.tolerance = r.integers ? Tolerance{.criterion = Criterion::tolerance}
                                       : default_tolerance(got.dtype(), want.dtype());
  }
  r.comparison = ArrayComparison(r.tolerance);
  r.refused = refusal(r, want.header().shape);
  r.saves_difference = !options.save_diff.empty();
}

// Compares the elements, and writes the file of their differences.
template <typename Value>
void compare_elements(const CompareOptions& options, Array& got, Array& want, CompareReport& r) {
  const OutputOptions output = {options.execution.no_clobber};
  std::optional<ArrayFile> file;  // of got - want
  const bool wide = got.dtype() == DType::f64 || want.dtype() == DType::f64;
  const DType dtype = wide ? DType::f64 : DType::f32;
  if (!options.save_diff.empty()) file.emplace(options.save_diff, dtype, r.shape, output);
  std::vector<double> difference;
  std::vector<std::byte> rounded;
  Progress progress("compare");
  for_each_part(r.shape, kPartElements, [&](const ArrayPart& part) {
    if (file) difference.resize(static_cast<std::size_t>(part.count));
    const std::vector<Value> got_values = got.read<Value>(part);
    const std::vector<Value> want_values = want.read<Value>(part);
    r.comparison.add(got_values, want_values, difference);
    if (file) {
      rounded.resize(static_cast<std::size_t>(part.count * dtype_bytes(dtype)));
      round_to(dtype, difference.data(), part.count, rounded.data());
      file->write(rounded.data(), rounded.size());
    }
    progress.show(static_cast<double>(part.first + part.count) /
                  static_cast<double>(got.header().element_count));
  });
  got.finish();
  want.finish();
  if (file) file->commit();
}

CompareReport compare_arrays(const CompareOptions& options, const Source& of_got,
                             const Source& of_want) {
  Array got(of_got), want(of_want);
  check_kinds(options, got, want);
  CompareReport report;
  describe_arrays(options, got, want, report);
  if (!options.save_diff.empty()) {
    check_array_output(options.save_diff, {options.execution.no_clobber});
  }
  if (report.refused.empty() && report.integers) {
    compare_elements<long double>(options, got, want, report);
  } else if (report.refused.empty()) {
    compare_elements<double>(options, got, want, report);
  }
  return report;
}

Source source_of(const std::string& argument) {
  return {argument, [argument] { return NpyReader(argument); }};
}

// Opens the arrays of an archive, or those of a folder, of its folders and of the archives in them,
// by their names.
class Collection {
 public:
  explicit Collection(const std::string& path) {
    if (!fs::is_directory(path)) {
      add_archive(path, "");
      return;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      const std::string file = entry.path().string();
      const std::string name = entry.path().lexically_relative(path).string();
      if (entry.path().extension() == ".npy") {
        sources_.emplace(name, source_of(file));
      } else if (is_archive(file)) {
        add_archive(file, name + ":");
      }
    }
  }

  const std::map<std::string, Source>& sources() const { return sources_; }
  // Names those that the other has not.
  Words missing_in(const Collection& other) const {
    Words names;
    for (const auto& [name, source] : sources_) {
      if (!other.sources_.contains(name)) names.push_back(name);
    }
    return names;
  }

 private:
  // An archive is opened once for all its arrays.
  void add_archive(const std::string& path, const std::string& prefix) {
    const auto archive = std::make_shared<const TensorArchive>(path);
    for (const std::string& name : archive->names()) {
      sources_.emplace(prefix + name, Source{cat(path, ":", name), [archive, name] {
                                               return NpyReader(archive->open(name));
                                             }});
    }
  }

  std::map<std::string, Source> sources_;
};

bool is_collection(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) || is_archive(path);
}

ReportPointer compare_collections(const CompareOptions& options) {
  if (!options.save_diff.empty()) misuse("--save-diff: expected only with two arrays");
  const Collection got(options.got), want(options.want);
  auto report = std::make_unique<CollectionReport>();
  report->got = options.got;
  report->want = options.want;
  report->only_got = got.missing_in(want);
  report->only_want = want.missing_in(got);
  if (got.sources().size() == report->only_got.size()) {
    bad_input(options.got, ", ", options.want, ": no name is in both, expected arrays to compare");
  }
  for (const auto& [name, source] : got.sources()) {
    const auto other = want.sources().find(name);
    if (other == want.sources().end()) continue;
    report->arrays.emplace_back(name, compare_arrays(options, source, other->second));
  }
  return report;
}

}  // namespace

ReportPointer compare(const CompareOptions& options) {
  check_options(options);
  tolerance_of(options);  // before a file is opened
  if (is_collection(options.got) && is_collection(options.want))
    return compare_collections(options);
  return std::make_unique<CompareReport>(
      compare_arrays(options, source_of(options.got), source_of(options.want)));
}

}  // namespace convgrad::cli
