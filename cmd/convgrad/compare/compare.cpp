// compare.cpp - are two arrays equal, or all of two archives or folders? They are read once, in
// parts, so they may be larger than memory.
#include "compare/compare.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "check/array_compare.hpp"
#include "convgrad/array_file.hpp"
#include "files/array.hpp"
#include "files/tensor_name.hpp"
#include "files/tensor_source.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"
#include "report/values.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

// What is found, in numpy's words and as JSON.
class CompareReport final : public Report {
 public:
  int exit_status() const override { return match() ? 0 : 1; }
  const char* status() const override { return match() ? "match" : "mismatch"; }
  std::string text() const override;
  Json json() const override;

  bool match() const { return refused.empty() && comparison.match(); }

  Tensors tensors;        // got and want
  std::string got, want;  // names of the files
  std::vector<std::int64_t> got_shape, want_shape;
  std::string got_dtype, want_dtype;  // as they are called
  DType coarser_dtype = DType::f32;   // of the two, whose defaults are taken
  bool integers = false;              // or booleans; there is no dtype of floats then
  ArrayTolerance tolerance;
  bool by_default = false;  // the tolerance is the dtype's
  // Says why no element need be looked at: "shapes (2,), (3,) differ"; or is empty.
  std::string refused;
  bool saves_difference = false;  // a file of differences was asked for
  ArrayComparison comparison{{}};
};

std::string criterion_text(const CompareReport& r) {
  const Tolerance& t = r.tolerance.tolerance;
  if (r.integers && r.by_default) return "every value equal";
  switch (t.criterion) {
    case Criterion::max_ulp:
      return cat("at most ", t.max_ulp, " ULP of ", dtype_name(r.tolerance.ulp_dtype));
    case Criterion::bitwise:
      return "every bit equal";
    default:
      return cat(
          "rtol=", general(t.rtol, 6), ", atol=", general(t.atol, 6),
          r.by_default ? cat(" (defaults of ", dtype_name(r.coarser_dtype), ")") : std::string());
  }
}

std::string dtypes_and_shape(const CompareReport& r) {
  std::string text = r.got_dtype;
  if (r.got_dtype != r.want_dtype) text += cat(" and ", r.want_dtype);
  return cat(text, " ", shape_text(r.got_shape));
}

std::string place(const CompareReport& r, const PairError& error) {
  const int digits = r.integers ? 20 : 9;  // as many as any integer has
  return cat(" at ", bracketed(position_of(r.got_shape, error.index)), ": got ",
             general(error.got, digits), ", want ", general(error.want, digits));
}

// Returns a line on the largest difference of all, and one on that of mismatches if it is another.
std::string worst_lines(const CompareReport& r, const char* what, PairError LargestErrors::*of) {
  std::string text;
  const bool relative = of == &LargestErrors::rel;
  const ArrayComparison& c = r.comparison;
  for (const LargestErrors* largest : {&c.failing, &c.all}) {
    const bool failing = largest == &c.failing;
    const PairError& error = largest->*of;
    if (failing && (c.match() || error.index == (c.all.*of).index)) continue;
    text += cat("Max ", what, " difference", failing ? " among mismatches" : "",
                relative && largest->zero_wants > 0 ? " of elements where want is not 0: " : ": ",
                general(error.value, 6), error.index < 0 ? "" : place(r, error), "\n");
  }
  return text;
}

std::string nonfinite_text(const NonFinite& counts) {
  return cat(counts.nan, " NaN, ", counts.inf, " Inf");
}

Json error_json(const CompareReport& r, const PairError& error) {
  Json json = {{"value", number(error.value)}};
  if (error.index >= 0) {
    json["index"] = position_of(r.got_shape, error.index);
    json["got"] = number(error.got, r.integers);
    json["want"] = number(error.want, r.integers);
  }
  return json;
}

Json largest_json(const CompareReport& r, const LargestErrors& largest) {
  Json json = {{"max_abs", error_json(r, largest.abs)}, {"max_rel", error_json(r, largest.rel)}};
  if (!r.integers) json["max_ulp"] = error_json(r, largest.ulp);
  if (largest.zero_wants > 0) json["zero_wants"] = largest.zero_wants;
  return json;
}

// Returns "1 / 36 (2.78 %)".
std::string part_text(std::int64_t part, std::int64_t whole) {
  const double percent =
      whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
  return cat(part, " / ", whole, " (", general(percent, 3), " %)");
}

std::string CompareReport::text() const {
  const CompareReport& r = *this;
  const ArrayComparison& c = comparison;
  std::string text = cat(r.match() ? "MATCH: " : "MISMATCH: ", r.got, " against ", r.want, ": ");
  if (!r.refused.empty()) {
    return cat(text, r.refused, "\n",
               saves_difference ? "No difference is written, since shapes or dtypes differ\n" : "");
  }
  text += dtypes_and_shape(r) + "\n";
  text += cat(r.match() ? "Equal to tolerance " : "Not equal to tolerance ", criterion_text(r),
              r.tolerance.equal_nan ? "" : ", NaN equals nothing", "\n");
  text += cat("Mismatched elements: ", part_text(c.mismatches, c.count), "\n");
  text += worst_lines(r, "absolute", &LargestErrors::abs);
  text += worst_lines(r, "relative", &LargestErrors::rel);
  if (!r.integers) text += worst_lines(r, "ULP", &LargestErrors::ulp);
  if (!c.match()) text += cat("First mismatch", place(r, c.first_mismatch), "\n");
  if (c.nonfinite_mismatches > 0) {
    text += cat("Mismatches that are not finite: ", c.nonfinite_mismatches, ", the first",
                place(r, c.first_nonfinite), "\n");
  }
  const bool all_finite =
      c.got_nonfinite.nan + c.got_nonfinite.inf + c.want_nonfinite.nan + c.want_nonfinite.inf == 0;
  if (!all_finite) {
    text += cat("Not finite: got ", nonfinite_text(c.got_nonfinite), "; want ",
                nonfinite_text(c.want_nonfinite), "\n");
  }
  return text;
}

Json comparison_json(const CompareReport& r) {
  const ArrayComparison& c = r.comparison;
  Json json = {{"verdict", r.match() ? "match" : "mismatch"},
               {"got", r.got},
               {"want", r.want},
               {"criterion", criterion_text(r)},
               {"equal_nan", r.tolerance.equal_nan}};
  if (!r.refused.empty()) {
    json["refused"] = r.refused;
    return json;
  }
  json["count"] = c.count;
  json["mismatches"] = c.mismatches;
  json.update(largest_json(r, c.all));
  if (!c.match()) {
    json["failing"] = largest_json(r, c.failing);
    json["first_mismatch"] = error_json(r, c.first_mismatch);
  }
  json["nonfinite"] = {{"mismatches", c.nonfinite_mismatches},
                       {"got", {{"nan", c.got_nonfinite.nan}, {"inf", c.got_nonfinite.inf}}},
                       {"want", {{"nan", c.want_nonfinite.nan}, {"inf", c.want_nonfinite.inf}}}};
  return json;
}

Json CompareReport::json() const {
  return {{"tensors", tensors_json(tensors)}, {"compare", comparison_json(*this)}};
}

constexpr std::int64_t kPartElements = std::int64_t{1} << 19;

void check_options(const CompareOptions& options) {
  if (options.got.empty() || options.want.empty()) {
    misuse(options.got.empty() ? "GOT and WANT are" : "WANT is",
           " missing, expected two .npy files: convgrad compare GOT WANT");
  }
  if (is_standard_input(options.got) && is_standard_input(options.want)) {
    misuse("- is given twice, expected one array on standard input");
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
    read_dtype_ = is_float8(dtype_) ? DType::f32 : dtype_;
    reader_.widen_to(read_dtype_);
  }

  const Source& source() const { return source_; }
  const std::string& name() const { return reader_.name(); }
  const NpyHeader& header() const { return reader_.header(); }
  const std::string& dtype_name() const { return dtype_name_; }
  DType dtype() const { return dtype_; }  // of floats
  bool is_integers() const { return is_integer(reader_.header()); }

  template <typename Value>
  std::vector<Value> read(const ArrayPart& part) {
    const std::int64_t item =
        is_integers() ? reader_.header().item_bytes : dtype_bytes(read_dtype_);
    const std::int64_t bytes = part.count * item;
    if (bytes_.size_bytes() < bytes) bytes_ = Buffer(bytes, "a part of an array");
    reader_.read_box(part.begin, part.end, bytes_.data());
    std::vector<Value> values(static_cast<std::size_t>(part.count));
    if constexpr (std::is_same_v<Value, double>) {
      with_scalar(read_dtype_, [&](auto scalar) {
        const auto* source = bytes_.as<decltype(scalar)>();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_double(source[i]);
      });
    } else {
      with_integer(reader_.header(), [&](auto integer) {
        const auto* source = bytes_.as<decltype(integer)>();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = source[i];
      });
    }
    return values;
  }
  void finish() { reader_.finish(); }

 private:
  const Source source_;
  NpyReader reader_;
  std::string dtype_name_;
  DType dtype_ = DType::f64, read_dtype_ = DType::f64;
  Buffer bytes_;
};

// Writes got - want to a file.
class DifferenceFile {
 public:
  DifferenceFile(const std::string& path, DType dtype, const std::vector<std::int64_t>& shape,
                 const OutputOptions& options)
      : file_(path, dtype, shape, options), dtype_(dtype) {}
  void add(std::span<const double> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    const std::int64_t bytes = count * dtype_bytes(dtype_);
    if (bytes_.size_bytes() < bytes) bytes_ = Buffer(bytes, "the difference");
    round_to(dtype_, values.data(), count, bytes_.data());
    file_.write(bytes_.data(), static_cast<std::size_t>(bytes));
  }
  void commit() { file_.commit(); }

 private:
  ArrayFile file_;
  DType dtype_;
  Buffer bytes_;
};

// Returns why the arrays differ without a look at their elements, or "" if they may be equal.
std::string refusal(const CompareReport& r) {
  if (r.got_shape != r.want_shape) {
    const bool turned = std::ranges::is_permutation(r.got_shape, r.want_shape);
    return cat("shapes ", shape_text(r.got_shape), ", ", shape_text(r.want_shape), " differ",
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
  r.got_shape = got.header().shape;
  r.want_shape = want.header().shape;
  r.got_dtype = got.dtype_name();
  r.want_dtype = want.dtype_name();
  r.coarser_dtype = coarser_dtype(got.dtype(), want.dtype());
  r.integers = got.is_integers();
  r.tolerance.tolerance = tolerance_of(options);
  r.tolerance.equal_nan = options.equal_nan;
  r.tolerance.ulp_dtype = r.coarser_dtype;
  r.by_default = r.tolerance.tolerance.needs_terms();  // none was asked for
  if (r.by_default) {
    r.tolerance.tolerance = r.integers ? Tolerance{.criterion = Criterion::tolerance}
                                       : default_tolerance(got.dtype(), want.dtype());
  }
  r.comparison = ArrayComparison(r.tolerance);
  r.refused = refusal(r);
  r.saves_difference = !options.save_diff.empty();
}

// Compares the elements, and writes the file of their differences.
template <typename Value>
void compare_elements(const CompareOptions& options, Array& got, Array& want, CompareReport& r) {
  const OutputOptions output = {options.execution.no_clobber};
  std::optional<DifferenceFile> difference_file;
  const bool wide = got.dtype() == DType::f64 || want.dtype() == DType::f64;
  if (!options.save_diff.empty()) {
    difference_file.emplace(options.save_diff, wide ? DType::f64 : DType::f32, r.got_shape, output);
  }
  std::vector<double> difference;
  Progress progress("compare");
  for_each_part(r.got_shape, kPartElements, [&](const ArrayPart& part) {
    if (difference_file) difference.resize(static_cast<std::size_t>(part.count));
    const std::vector<Value> got_values = got.read<Value>(part);
    const std::vector<Value> want_values = want.read<Value>(part);
    r.comparison.add(got_values, want_values, difference);
    if (difference_file) difference_file->add(difference);
    progress.show(static_cast<double>(part.first + part.count) /
                  static_cast<double>(got.header().element_count));
  });
  got.finish();
  want.finish();
  if (difference_file) {
    difference_file->commit();
    say_how_to_draw(options.save_diff, "", options);
  }
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

// What is found of all names: those that both have, and those of one side.
class CollectionReport final : public Report {
 public:
  int exit_status() const override { return matches() ? 0 : 1; }
  const char* status() const override { return matches() ? "match" : "mismatch"; }

  std::string text() const override {
    std::string lines;
    std::int64_t equal = 0;
    for (const auto& [name, array] : arrays) {
      equal += array.match() ? 1 : 0;
      lines += cat(array.match() ? "match     " : "mismatch  ", name, "  ");
      if (!array.refused.empty()) {
        lines += cat(array.refused, "\n");
        continue;
      }
      const ArrayComparison& c = array.comparison;
      lines += dtypes_and_shape(array);
      if (!array.match()) {
        lines +=
            cat(", ", part_text(c.mismatches, c.count), ", first", place(array, c.first_mismatch));
      }
      lines += "\n";
    }
    for (const auto& [names, file] : {std::pair(&only_got, &got), std::pair(&only_want, &want)}) {
      for (const std::string& name : *names)
        lines += cat("mismatch  ", name, "  is in ", *file, " alone\n");
    }
    const std::size_t all = arrays.size() + only_got.size() + only_want.size();
    return cat(matches() ? "MATCH: " : "MISMATCH: ", got, " against ", want, ": ", equal, " of ",
               counted(all, "array"), equal == 1 ? " matches\n" : " match\n", lines);
  }

  Json json() const override {
    Json list = Json::array();
    for (const auto& [name, array] : arrays) {
      list.push_back({{"name", name}});
      list.back().update(array.json());
    }
    return {{"compare",
             {{"verdict", status()},
              {"got", got},
              {"want", want},
              {"arrays", list},
              {"only_got", only_got},
              {"only_want", only_want}}}};
  }

  std::string got, want;  // names of the archives or folders
  std::vector<std::pair<std::string, CompareReport>> arrays;
  Words only_got, only_want;

 private:
  bool matches() const {
    return only_got.empty() && only_want.empty() &&
           std::ranges::all_of(arrays, [](const auto& one) { return one.second.match(); });
  }
};

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
