// inspect.cpp - what .npy files and archives hold: how the header reads, a look at the numbers, and
// their hash.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "commands.hpp"
#include "engine/partial_file.hpp"
#include "files/tensor_source.hpp"
#include "options/arguments.hpp"
#include "report/values.hpp"

namespace convgrad::cli {
namespace {

// Wide holds every 64-bit integer, and sums of float64 that leave float64's range.
using Wide = long double;

struct Statistics {
  std::int64_t nan = 0, inf = 0, zero = 0, subnormal = 0, finite = 0;
  Wide min = 0, max = 0, sum = 0, lost = 0;  // lost: what the sum's roundings have cut off

  // `smallest_normal` is 0 for integers.
  void add(Wide value, Wide smallest_normal) {
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      zero += value == 0 ? 1 : 0;
      subnormal += value != 0 && std::fabs(value) < smallest_normal ? 1 : 0;
      min = finite == 0 ? value : std::min(min, value);
      max = finite == 0 ? value : std::max(max, value);
      const Wide total = sum + value;
      lost += std::fabs(sum) >= std::fabs(value) ? (sum - total) + value : (value - total) + sum;
      sum = total;
      ++finite;
    }
  }
  Wide mean() const { return finite > 0 ? (sum + lost) / static_cast<Wide>(finite) : 0; }
};

template <typename Value>
void add_all(Statistics& statistics, const std::byte* bytes, std::int64_t count,
             Wide smallest_normal) {
  const auto* values = reinterpret_cast<const Value*>(bytes);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<Value>) {
      statistics.add(values[i], 0);
    } else {
      statistics.add(to_double(values[i]), smallest_normal);
    }
  }
}

void add_float8s(Statistics& statistics, DType dtype, const std::byte* bytes, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  auto* const room = reinterpret_cast<std::byte*>(values.data());
  std::memcpy(room + count * (dtype_bytes(DType::f32) - 1), bytes, values.size());
  widen_in_place(dtype, DType::f32, count, room);
  add_all<float>(statistics, room, count, smallest_normal(dtype));
}

// Reads the array once, in parts.
Statistics read_values(NpyReader& reader, TensorHash& hash) {
  const NpyHeader& header = reader.header();
  Statistics statistics;
  read_parts(reader, [&](const std::byte* bytes, const ArrayPart& part) {
    hash.add(bytes, static_cast<std::size_t>(part.count * header.item_bytes));
    if (is_integer(header)) {
      return with_integer(header, [&](auto integer) {
        add_all<decltype(integer)>(statistics, bytes, part.count, 0);
      });
    }
    const DType dtype = float_dtype(header, reader.name());
    if (is_float8(dtype)) return add_float8s(statistics, dtype, bytes, part.count);
    with_scalar(dtype, [&](auto scalar) {
      add_all<decltype(scalar)>(statistics, bytes, part.count, smallest_normal(dtype));
    });
  });
  return statistics;
}

class InspectReport final : public Report {
 public:
  int exit_status() const override { return worst; }
  std::string text() const override { return lines; }
  Json json() const override {
    Json json = {{"files", files}};
    if (last_error) {
      json["error"] =
          error_json(static_cast<int>(last_error->kind()), last_error->what(), last_error->hint());
    }
    return json;
  }

  std::string lines;
  Json files = Json::array();
  int worst = 0;  // status of an error
  std::optional<Error> last_error;
};

std::string text_of(const NpyReader& reader, const std::string& dtype, const Statistics& values) {
  const NpyHeader& header = reader.header();
  const int digits = is_integer(header) ? 20 : 6;
  std::string text = cat(reader.name(), ": ", dtype, " ", shape_text(header.shape), ", ",
                         header.fortran_order ? "Fortran" : "C", " order, '", header.descr, "', ",
                         header.big_endian ? "big" : "little", " endian, format ",
                         format_name(header), ", ", format_bytes(header.payload_bytes), "\n");
  text += values.finite == 0
              ? "  no finite values"
              : cat("  min ", general(values.min, digits), ", max ", general(values.max, digits),
                    ", mean ", general(values.mean(), 6));
  return cat(text, ", ", values.nan, " NaN, ", values.inf, " Inf, ", counted(values.zero, "zero"),
             ", ", values.subnormal, " subnormal\n");
}

// Adds an array, as its header reads and what its numbers are.
void add_array(const std::string& path, NpyReader reader, InspectReport& report) {
  const NpyHeader& header = reader.header();
  const std::string dtype = dtype_text(reader);
  TensorHash hash;
  const Statistics values = read_values(reader, hash);
  const TensorReport tensor = {path, header, hash.text()};
  // What sha256sum prints and manifests name; "" for streams and members of archives.
  const bool whole = path != "-" && !split_tensor_name(path).member && is_regular(path);
  const std::string file_hash = whole ? hash_of_file(path) : "";
  report.lines += cat(text_of(reader, dtype, values), "  ", *tensor.hash, " values\n");
  if (!file_hash.empty()) report.lines += cat("  ", file_hash, " file\n");

  const bool any = values.finite > 0, integers = is_integer(header);
  Json json = tensor.json();
  json["dtype"] = dtype;
  json["format"] = format_name(header);
  json["big_endian"] = header.big_endian;
  json["data_offset"] = header.data_offset;
  json["values"] = {{"count", header.element_count},
                    {"nan", values.nan},
                    {"inf", values.inf},
                    {"zero", values.zero},
                    {"subnormal", values.subnormal},
                    {"min", any ? number(values.min, integers) : Json()},
                    {"max", any ? number(values.max, integers) : Json()},
                    {"mean", any ? number(static_cast<double>(values.mean())) : Json()}};
  if (!file_hash.empty()) json["file_hash"] = file_hash;
  report.files.push_back(std::move(json));
}

// Adds what a file of --batch-range says of itself.
void add_part(const PartialFile& part, InspectReport& report) {
  const PartialHeader& header = part.header;
  report.lines += cat(
      part.path, ": a part of a gradient, images ", header.images.begin, ":", header.images.end,
      " of ", header.problem.N, ", for convgrad reduce\n  ", describe(header.problem),
      "\n  slices ", header.slices.begin, ":", header.slices.end, " of ", header.of_slices, " in ",
      counted(part.nodes.size(), "node"), ", ", header.algorithm, ", ", header.program, "\n");
  report.files.push_back({{"file", part.path},
                          {"problem", describe(header.problem)},
                          {"part", part_json(header, part.nodes.size())},
                          {"algorithm", header.algorithm},
                          {"program", header.program}});
}

// Calls look(). Where it throws, the other files and arrays are still worth a look; one of an
// archive's arrays may be no numbers.
void try_to(const std::function<void()>& look, const InspectOptions& options,
            const std::string& path, bool is_member, InspectReport& report) {
  try {
    look();
  } catch (const Error& error) {
    report.files.push_back({{"file", path}, {"error", error.what()}});
    if (is_member && dynamic_cast<const NotNumbers*>(&error) != nullptr) {
      report.lines += cat(error, "\n");
      return;
    }
    say(options, "error", error.what());
    report.worst = std::max(report.worst, static_cast<int>(error.kind()));
    report.last_error = error;
  }
}

// Looks at each array of an archive, or at the file of a part, whose description is no array.
void add_archive(const InspectOptions& options, const std::string& path, InspectReport& report) {
  const TensorArchive archive(path);
  Words names = archive.names();
  if (names.empty()) return NpyReader(path).finish();  // says what it is
  const auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
  if (names.size() == 2 && has("problem") && has("sums")) {
    try_to([&] { add_part(open_partial(path), report); }, options, path, false, report);
    std::erase(names, "problem");
  }
  for (const std::string& name : names) {
    const std::string member = cat(path, ":", name);
    try_to([&] { add_array(member, NpyReader(archive.open(name)), report); }, options, member, true,
           report);
  }
}

}  // namespace

ReportPointer inspect(const InspectOptions& options) {
  if (options.paths.empty()) misuse("inspect: no file is named, expected one or more .npy files");
  auto report = std::make_unique<InspectReport>();
  for (const std::string& path : options.paths) {
    const auto look = [&] {
      if (is_archive(path)) return add_archive(options, path, *report);
      add_array(path, NpyReader(path), *report);
    };
    try_to(look, options, path, false, *report);
  }
  return report;
}

}  // namespace convgrad::cli
