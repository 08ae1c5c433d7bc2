// gradient_file.cpp - see gradient_file.hpp.
#include "convgrad/gradient_file.hpp"

#include <algorithm>

#include "convgrad/array.hpp"
#include "convgrad/buffer.hpp"
#include "convgrad/npy.hpp"

namespace convgrad {
void gather_gradient(const WgradProblem& problem, const double* dw, std::int64_t begin,
                     std::int64_t count, double* destination) {
  if (problem.filter_format == FilterFormat::hwio) {
    std::copy_n(dw + begin, count, destination);
    return;
  }
  const std::int64_t taps = problem.taps(), c_count = problem.group_c(), K = problem.K;
  const bool taps_last = problem.filter_format == FilterFormat::oihw;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t within = (begin + i) % (taps * c_count), k = (begin + i) / (taps * c_count);
    const std::int64_t tap = taps_last ? within % taps : within / c_count;
    const std::int64_t c = taps_last ? within / taps : within % c_count;
    destination[i] = dw[(tap * c_count + c) * K + k];
  }
}

void write_gradient(const std::string& path, const WgradProblem& problem, const double* dw,
                    const double* addend, const OutputOptions& options) {
  OutputFile file(path, options);
  const std::string header = npy_header_text(problem.out_dtype, dw_shape(problem));
  file.write(header.data(), header.size());
  const std::int64_t count = problem.dw_count(), item = dtype_bytes(problem.out_dtype);
  const std::int64_t step = std::min<std::int64_t>(count, kOutputStagingBytes / 16);
  const Buffer values(step * 8, "the output buffer"), bytes(step * item, "the output buffer");
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const std::int64_t n = std::min(step, count - begin);
    gather_gradient(problem, dw, begin, n, values.as<double>());
    for (std::int64_t i = 0; addend != nullptr && i < n; ++i) {
      values.as<double>()[i] += addend[begin + i];
    }
    round_to(problem.out_dtype, values.as<double>(), n, bytes.data());
    file.write(bytes.data(), static_cast<std::size_t>(n * item));
  }
  file.commit();
}

GradientFile read_gradient(const std::string& path, const WgradProblem& problem,
                           bool dtype_must_match) {
  NpyReader reader(path);
  GradientFile result;
  result.dtype = float_dtype(reader.header(), reader.name());
  const std::vector<std::int64_t> shape = dw_shape(problem);
  if (reader.header().shape != shape) {
    throw Error(ErrorKind::input,
                cat(reader.name(), ": shape ", shape_text(reader.header().shape), ", expected ",
                    shape_text(shape), ", the ", filter_format_name(problem), " filter gradient"));
  }
  if (dtype_must_match && result.dtype != problem.out_dtype) {
    throw Error(ErrorKind::input,
                cat(reader.name(), ": dtype ", dtype_name(result.dtype), ", expected ",
                    dtype_name(problem.out_dtype), "; use --out-dtype ", dtype_name(result.dtype)));
  }
  const Buffer bytes(reader.header().payload_bytes, "a gradient file");
  reader.read_box(std::vector<std::int64_t>(shape.size(), 0), shape, bytes.data());
  reader.finish();
  result.values.resize(static_cast<std::size_t>(problem.dw_count()));
  with_scalar(result.dtype, [&](auto scalar) {
    const auto* source = bytes.as<decltype(scalar)>();
    for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] = to_double(source[i]);
  });
  return result;
}

}  // namespace convgrad
