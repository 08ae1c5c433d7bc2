// compare.cpp - are two arrays equal, or all of two archives or folders? They are read once, in
// parts, so they may be larger than memory.
#include "compare/compare.hpp"

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
struct Array {
  explicit Array(const Source& from)
      : source(from), reader(from.open()), integers(is_integer(reader.header())) {
    if (integers) return;
    dtype = float_dtype(reader.header(), reader.name());
    reader.widen_to(DType::f64);
  }

  template <typename Value>
  std::vector<Value> read(const ArrayPart& part) {
    std::vector<Value> values(static_cast<std::size_t>(part.count));
    if constexpr (std::is_same_v<Value, double>) {
      reader.read_box(part.begin, part.end, values.data());
    } else {
      with_integer(reader.header(), [&]<typename Integer>(Integer) {
        std::vector<Integer> found(values.size());
        reader.read_box(part.begin, part.end, found.data());
        std::ranges::copy(found, values.begin());
      });
    }
    return values;
  }

  const Source source;
  NpyReader reader;
  const std::string called = dtype_text(reader);  // its dtype
  const bool integers;
  DType dtype = DType::f64;  // of floats
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
  if (got.integers != want.integers) {
    bad_input(got.reader.name(), " is ", got.called, ", ", want.reader.name(), " is ", want.called,
              ", expected integers or booleans in both, or floats", Hint("convert one of them"));
  }
  if (got.integers && options.max_ulp) {
    misuse("--max-ulp: given for ", got.called, ", expected --atol for integers");
  }
}

void describe_arrays(const CompareOptions& options, const Array& got, const Array& want,
                     CompareReport& r) {
  const auto report_of = [&](const Array& array) {
    return tensor_report(array.source.argument, array.reader.header(), !options.json.empty(),
                         array.source.open);
  };
  r.tensors = {{"got", report_of(got)}, {"want", report_of(want)}};
  r.got = got.reader.name();
  r.want = want.reader.name();
  r.shape = got.reader.header().shape;
  r.got_dtype = got.called;
  r.want_dtype = want.called;
  r.integers = got.integers;
  r.tolerance.tolerance = tolerance_of(options);
  r.tolerance.equal_nan = options.equal_nan;
  r.tolerance.ulp_dtype = coarser_dtype(got.dtype, want.dtype);
  r.by_default = r.tolerance.tolerance.needs_terms();  // none was asked for
  if (r.by_default) {
    r.tolerance.tolerance = r.integers ? Tolerance{.criterion = Criterion::tolerance}
                                       : default_tolerance(got.dtype, want.dtype);
  }
  r.comparison = ArrayComparison(r.tolerance);
  r.refused = refusal(r, want.reader.header().shape);
  r.saves_difference = !options.save_diff.empty();
}

// Compares the elements, and writes the file of their differences.
template <typename Value>
void compare_elements(const CompareOptions& options, Array& got, Array& want, CompareReport& r) {
  const OutputOptions output = {options.execution.no_clobber};
  std::optional<ArrayFile> file;  // of got - want
  const bool wide = got.dtype == DType::f64 || want.dtype == DType::f64;
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
                  static_cast<double>(got.reader.header().element_count));
  });
  got.reader.finish();
  want.reader.finish();
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

using Sources = std::map<std::string, Source>;  // by their names

// An archive is opened once for all its arrays.
void add_archive(const std::string& path, const std::string& prefix, Sources& sources) {
  const auto archive = std::make_shared<const TensorArchive>(path);
  for (const std::string& name : archive->names()) {
    sources.emplace(prefix + name, Source{cat(path, ":", name), [archive, name] {
                                            return NpyReader(archive->open(name));
                                          }});
  }
}

// Returns the arrays of an archive, or those of a folder, of its folders and of the archives in
// them.
Sources sources_of(const std::string& path) {
  Sources sources;
  if (!fs::is_directory(path)) {
    add_archive(path, "", sources);
    return sources;
  }
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const std::string file = entry.path().string();
    const std::string name = entry.path().lexically_relative(path).string();
    if (entry.path().extension() == ".npy") {
      sources.emplace(name, source_of(file));
    } else if (is_archive(file)) {
      add_archive(file, name + ":", sources);
    }
  }
  return sources;
}

// Names those that the other has not.
Words missing_in(const Sources& other, const Sources& sources) {
  Words names;
  for (const auto& [name, source] : sources) {
    if (!other.contains(name)) names.push_back(name);
  }
  return names;
}

bool is_collection(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) || is_archive(path);
}

ReportPointer compare_collections(const CompareOptions& options) {
  if (!options.save_diff.empty()) misuse("--save-diff: expected only with two arrays");
  const Sources got = sources_of(options.got), want = sources_of(options.want);
  auto report = std::make_unique<CollectionReport>();
  report->got = options.got;
  report->want = options.want;
  report->only_got = missing_in(want, got);
  report->only_want = missing_in(got, want);
  if (got.size() == report->only_got.size()) {
    bad_input(options.got, ", ", options.want, ": no name is in both, expected arrays to compare");
  }
  for (const auto& [name, source] : got) {
    const auto other = want.find(name);
    if (other == want.end()) continue;
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
