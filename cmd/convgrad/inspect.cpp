// inspect.cpp - what .npy files and archives hold: how the header reads, a look at the numbers, and
// their hash.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <vector>

#include "base/format_bytes.hpp"
#include "commands.hpp"
#include "engine/partial_file.hpp"
#include "files/tensor_name.hpp"
#include "options/refuse.hpp"
#include "report/read_parts.hpp"
#include "report/report.hpp"
#include "report/tensor_hash.hpp"

namespace convgrad::cli {
namespace {

// Wide enough for every 64-bit integer, and for sums of float64 that leave its range.
using Wide = long double;

struct Statistics {
  std::int64_t nan = 0, inf = 0, zero = 0, subnormal = 0, finite = 0;
  Wide min = 0, max = 0, sum = 0, lost = 0;  // lost: what the sum's roundings have cut off

  // smallest_normal: 0 for integers.
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

Json statistics_json(const Statistics& s, const NpyHeader& header) {
  const bool any = s.finite > 0, integers = is_integer(header);
  return {{"count", header.element_count},
          {"nan", s.nan},
          {"inf", s.inf},
          {"zero", s.zero},
          {"subnormal", s.subnormal},
          {"min", any ? number(s.min, integers) : Json()},
          {"max", any ? number(s.max, integers) : Json()},
          {"mean", any ? number(static_cast<double>(s.mean())) : Json()}};
}

// What sha256sum prints, and manifests of batch name; empty for streams and members of archives.
std::string hash_of_whole_file(const std::string& path) {
  std::error_code ignored;
  const bool whole = path != "-" && !split_tensor_name(path).member;
  return whole && std::filesystem::is_regular_file(path, ignored) ? hash_of_file(path) : "";
}

void inspect_file(const std::string& path, Json& file, std::ostream& text) {
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  file = tensor_json(path, header);
  file["format"] = format_name(header);
  file["big_endian"] = header.big_endian;
  file["data_offset"] = header.data_offset;
  const std::string dtype = dtype_text(reader);
  file["dtype"] = dtype;
  TensorHash hash;
  const Statistics s = read_values(reader, hash);
  file["values"] = statistics_json(s, header);
  const std::string digest = hash.text();
  file["hash"] = digest;
  const std::string file_digest = hash_of_whole_file(path);
  if (!file_digest.empty()) file["file_hash"] = file_digest;
  text << reader.name() << ": " << dtype << " " << shape_text(header.shape) << ", "
       << (header.fortran_order ? "Fortran" : "C") << " order, '" << header.descr << "', "
       << (header.big_endian ? "big" : "little") << " endian, format " << format_name(header)
       << ", " << format_bytes(static_cast<double>(header.payload_bytes)) << "\n";
  if (s.finite > 0) {
    text << "  min " << std::setprecision(is_integer(header) ? 20 : 6) << s.min << ", max " << s.max
         << ", mean " << std::setprecision(6) << s.mean();
  } else {
    text << "  no finite values";
  }
  text << ", " << s.nan << " NaN, " << s.inf << " Inf, " << s.zero
       << (s.zero == 1 ? " zero" : " zeros") << ", " << s.subnormal << " subnormal\n  " << digest
       << " values\n";
  if (!file_digest.empty()) text << "  " << file_digest << " file\n";
}

// A file of --batch-range: what it says of itself.
void inspect_part(const std::string& path, Json& file, std::ostream& text) {
  const PartialFile part = open_partial(path);
  const PartialHeader& header = part.header;
  file["file"] = path;
  file["problem"] = describe(header.problem);
  file["part"] = {{"images", {header.images.begin, header.images.end}},
                  {"of_images", header.problem.N},
                  {"slices", {header.slices.begin, header.slices.end}},
                  {"of_slices", header.of_slices},
                  {"nodes", part.nodes.size()}};
  file["algorithm"] = header.algorithm;
  file["program"] = header.program;
  text << path << ": a part of a gradient, images " << header.images.begin << ":"
       << header.images.end << " of " << header.problem.N << ", for convgrad reduce\n  "
       << describe(header.problem) << "\n  slices " << header.slices.begin << ":"
       << header.slices.end << " of " << header.of_slices << " in " << part.nodes.size()
       << (part.nodes.size() == 1 ? " node, " : " nodes, ") << header.algorithm << ", "
       << header.program << "\n";
}

// What is looked at: an array, or the file of a part, whose description is no array.
struct Item {
  std::string path;
  bool is_part = false;
};

// An archive is each of its arrays; a damaged one is refused when it is opened.
std::vector<Item> items_of(const Words& files) {
  std::vector<Item> items;
  for (const std::string& file : files) {
    try {
      Words tensors = tensors_in(file);
      const auto has = [&](const char* name) {
        return std::ranges::count(tensors, cat(file, ":", name)) > 0;
      };
      if (tensors.size() == 3 && has("problem") && has("slices") && has("sums")) {
        items.push_back({file, true});
        std::erase(tensors, cat(file, ":problem"));
      }
      for (std::string& tensor : tensors) items.push_back({std::move(tensor)});
    } catch (const Error&) {
      items.push_back({file});
    }
  }
  return items;
}

}  // namespace

int inspect(const InspectOptions& options, Json& report) {
  if (options.paths.empty()) {
    misuse("inspect: no file is named, expected one or more .npy files");
  }
  if (std::ranges::count(options.paths, "-") > 1) {
    misuse("- is given twice, expected one array on standard input");
  }
  report["files"] = Json::array();
  int status = 0;
  for (const auto& [path, is_part] : items_of(options.paths)) {
    Json file;
    TextWriter text;
    try {
      is_part ? inspect_part(path, file, text) : inspect_file(path, file, text);
    } catch (const Error& error) {  // the other files are still worth a look
      say(options, "error", error.what());
      status = std::max(status, static_cast<int>(error.kind()));
      file["file"] = path;
      file["error"] = error.what();
      report["status"] = "error";
      report["error"] = error_json(static_cast<int>(error.kind()), error.what(), options.paths);
    }
    report["files"].push_back(file);
    if (options.json != "-") std::fputs(text.str().c_str(), stdout);
  }
  return status;
}

}  // namespace convgrad::cli
