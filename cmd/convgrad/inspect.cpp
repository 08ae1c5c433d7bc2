// inspect.cpp - what .npy files and archives hold: how the header reads, and a look at the numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>

#include "commands.hpp"
#include "convgrad/buffer.hpp"
#include "convgrad/tensor_name.hpp"
#include "job.hpp"

namespace convgrad::cli {
namespace {

struct Statistics {
  std::int64_t nan = 0, inf = 0, finite = 0;
  double min = 0, max = 0, sum = 0;

  void add(double value) {
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      min = finite == 0 ? value : std::min(min, value);
      max = finite == 0 ? value : std::max(max, value);
      sum += value;
      ++finite;
    }
  }
};

// Reads along the first axis, a few MiB at a time.
Statistics read_statistics(NpyReader& reader, DType dtype) {
  const NpyHeader& header = reader.header();
  Statistics statistics;
  std::vector<std::int64_t> begin(header.shape.size(), 0), end = header.shape;
  if (header.element_count == 0) return statistics;
  const std::int64_t rows = header.shape.empty() ? 1 : header.shape[0];
  const std::int64_t row_bytes = header.payload_bytes / rows;
  const std::int64_t step = std::clamp<std::int64_t>((std::int64_t{8} << 20) / row_bytes, 1, rows);
  const Buffer buffer(step * row_bytes, "a part of the array");
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    if (!header.shape.empty()) {
      begin[0] = row;
      end[0] = row + count;
    }
    reader.read_box(begin, end, buffer.data());
    with_scalar(dtype, [&](auto scalar) {
      const auto* values = buffer.as<decltype(scalar)>();
      const std::int64_t elements = count * (row_bytes / header.item_bytes);
      for (std::int64_t i = 0; i < elements; ++i) statistics.add(to_double(values[i]));
    });
  }
  return statistics;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i > 0 ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

void inspect_file(const std::string& path, Json& file, std::ostringstream& text) {
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  file = tensor_json(path, header);
  file["format"] = format_name(header);
  file["big_endian"] = header.big_endian;
  file["data_offset"] = header.data_offset;
  const DType dtype = float_dtype(header, reader.name());
  file["dtype"] = dtype_name(dtype);
  const Statistics s = read_statistics(reader, dtype);
  reader.finish();
  const double mean = s.finite > 0 ? s.sum / static_cast<double>(s.finite) : 0;
  file["values"] = {{"count", header.element_count},
                    {"nan", s.nan},
                    {"inf", s.inf},
                    {"min", s.finite > 0 ? number(s.min) : Json()},
                    {"max", s.finite > 0 ? number(s.max) : Json()},
                    {"mean", s.finite > 0 ? number(mean) : Json()}};
  text << reader.name() << ": " << dtype_name(dtype) << " " << shape_text(header.shape) << ", "
       << (header.fortran_order ? "Fortran" : "C") << " order, '" << header.descr << "', "
       << (header.big_endian ? "big" : "little") << " endian, format " << format_name(header)
       << ", " << format_bytes(static_cast<double>(header.payload_bytes)) << "\n";
  if (s.finite > 0) {
    text << "  min " << std::setprecision(6) << s.min << ", max " << s.max << ", mean " << mean;
  } else {
    text << "  no finite values";
  }
  text << ", " << s.nan << " NaN, " << s.inf << " Inf\n";
}

// An archive is each of its arrays; a damaged one is refused when it is opened.
Words tensors_of(const Words& files) {
  Words tensors;
  for (const std::string& file : files) {
    try {
      for (std::string& tensor : tensors_in(file)) tensors.push_back(std::move(tensor));
    } catch (const Error&) {
      tensors.push_back(file);
    }
  }
  return tensors;
}

}  // namespace

int inspect(const Options& options, Json& report) {
  if (options.inspect_files.empty()) {
    throw Error(ErrorKind::usage, "inspect: no file is named, expected one or more .npy files");
  }
  report["files"] = Json::array();
  int status = 0;
  for (const std::string& path : tensors_of(options.inspect_files)) {
    Json file;
    std::ostringstream text;
    try {
      inspect_file(path, file, text);
    } catch (const Error& error) {  // the other files are still worth a look
      std::fprintf(stderr, "convgrad: error: %s\n", error.what());
      status = std::max(status, static_cast<int>(error.kind()));
      file["file"] = path;
      file["error"] = error.what();
      report["status"] = "error";
      report["error"] = {{"code", static_cast<int>(error.kind())}, {"message", error.what()}};
    }
    report["files"].push_back(file);
    if (options.json != "-") std::fputs(text.str().c_str(), stdout);
  }
  return status;
}

}  // namespace convgrad::cli
