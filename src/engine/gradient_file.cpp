#include "convgrad/gradient_file.hpp"

#include <algorithm>

#include "base/buffer.hpp"
#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/npy.hpp"
#include "files/array.hpp"

namespace convgrad {
namespace {

template <typename Element>
void gather(const WgradProblem& problem, const Element* dw, std::int64_t begin, std::int64_t count,
            Element* destination) {
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

// Writes what fill(begin, count, bytes) puts there, some elements at a time.
template <typename Fill>
void write_elements(const std::string& path, const WgradProblem& problem,
                    const OutputOptions& options, const Fill& fill) {
  ArrayFile file(path, problem.out_dtype, dw_shape(problem), options);
  const std::int64_t count = problem.dw_count(), item = dtype_bytes(problem.out_dtype);
  // An element takes 8 bytes before it is rounded and at most 8 after it.
  const std::int64_t step = std::min<std::int64_t>(count, kOutputStagingBytes / 16);
  const Buffer bytes(step * item, "the output buffer");
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const std::int64_t n = std::min(step, count - begin);
    fill(begin, n, bytes.data());
    file.write(bytes.data(), static_cast<std::size_t>(n * item));
  }
  file.commit();
}

}  // namespace

void gather_gradient(const WgradProblem& problem, const double* dw, std::int64_t begin,
                     std::int64_t count, double* destination) {
  gather(problem, dw, begin, count, destination);
}

void gather_rounded(const WgradProblem& problem, const void* dw, std::int64_t begin,
                    std::int64_t count, void* destination) {
  with_scalar(problem.out_dtype, [&]<typename Scalar>(Scalar) {
    gather(problem, static_cast<const Scalar*>(dw), begin, count,
           static_cast<Scalar*>(destination));
  });
}

void write_gradient(const std::string& path, const WgradProblem& problem, const double* dw,
                    const double* addend, const OutputOptions& options) {
  const Buffer values(std::min<std::int64_t>(problem.dw_count(), kOutputStagingBytes / 16) * 8,
                      "the output buffer");
  const auto fill = [&](std::int64_t begin, std::int64_t n, std::byte* bytes) {
    gather_gradient(problem, dw, begin, n, values.as<double>());
    for (std::int64_t i = 0; addend != nullptr && i < n; ++i) {
      values.as<double>()[i] += addend[begin + i];
    }
    round_to(problem.out_dtype, values.as<double>(), n, bytes);
  };
  write_elements(path, problem, options, fill);
}

void write_rounded_gradient(const std::string& path, const WgradProblem& problem, const void* dw,
                            const OutputOptions& options) {
  const auto fill = [&](std::int64_t begin, std::int64_t n, std::byte* bytes) {
    gather_rounded(problem, dw, begin, n, bytes);
  };
  write_elements(path, problem, options, fill);
}

std::vector<std::int64_t> position_in_file(const WgradProblem& problem, std::int64_t index) {
  const std::int64_t taps = problem.taps(), c_count = problem.group_c(), K = problem.K;
  const std::int64_t k = index % K, c = index / K % c_count, tap = index / K / c_count;
  if (problem.filter_format == FilterFormat::oihw) index = (k * c_count + c) * taps + tap;
  if (problem.filter_format == FilterFormat::ohwi) index = (k * taps + tap) * c_count + c;
  return position_of(dw_shape(problem), index);
}

namespace {

// Says what the shape is, where it is the gradient's in another order, flattened, with its taps
// exchanged or of each image.
Hint shape_hint(WgradProblem problem, const std::vector<std::int64_t>& shape) {
  const FilterFormat format = problem.filter_format;
  const std::vector<std::int64_t> own = dw_shape(problem);
  std::string names;
  for (const FilterFormat other : {FilterFormat::hwio, FilterFormat::oihw, FilterFormat::ohwi}) {
    problem.filter_format = other;
    if (dw_shape(problem) == shape) {
      names += cat(names.empty() ? "" : " or ", filter_format_name(problem));
    }
  }
  if (!names.empty()) return Hint("this is ", names, ": add --filter-format ", names);
  std::vector<std::int64_t> each = shape;
  if (each.size() > 1 && each[0] == problem.N) {
    each.erase(each.begin());
    if (each == own) {
      return Hint(
          "this has one for each image: make images groups, x and dy as [1,H,W,N*C] with "
          "--groups N");
    }
  }
  std::swap(problem.axis[1], problem.axis[2]);
  problem.filter_format = format;
  if (dw_shape(problem) == shape) return Hint("h and w are exchanged");
  if (shape.size() < own.size() && checked_product(shape) == checked_product(own)) {
    return Hint("it has as many elements: reshape it");
  }
  return {};
}

// Opens a file of floats that has the shape of the problem's gradient.
NpyReader open_gradient(const std::string& path, const WgradProblem& problem, DType& dtype) {
  NpyReader reader(path);
  dtype = float_dtype(reader.header(), reader.name());
  if (is_float8(dtype)) {
    bad_input(reader.name(), ": dtype ", dtype_name(dtype),
              ", expected a gradient in float16, bfloat16, float32 or float64", Hint("convert it"));
  }
  const std::vector<std::int64_t> shape = dw_shape(problem);
  if (reader.header().shape != shape) {
    bad_input(reader.name(), ": shape ", shape_text(reader.header().shape), ", expected ",
              shape_text(shape), ", the ", filter_format_name(problem), " filter gradient",
              shape_hint(problem, reader.header().shape));
  }
  return reader;
}

std::vector<double> as_doubles(DType dtype, const std::byte* bytes, std::size_t count) {
  std::vector<double> values(count);
  with_scalar(dtype, [&](auto scalar) {
    const auto* source = reinterpret_cast<const decltype(scalar)*>(bytes);
    for (std::size_t i = 0; i < count; ++i) values[i] = to_double(source[i]);
  });
  return values;
}

}  // namespace

GradientFile read_gradient_entries(const std::string& path, const WgradProblem& problem,
                                   std::span<const std::int64_t> indices) {
  GradientFile result;
  NpyReader reader = open_gradient(path, problem, result.dtype);
  // Entries are read in any order, which a stream cannot do.
  reader.hold();
  const std::int64_t item = dtype_bytes(result.dtype);
  std::vector<std::byte> bytes(indices.size() * static_cast<std::size_t>(item));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::vector<std::int64_t> begin = position_in_file(problem, indices[i]);
    std::vector<std::int64_t> end = begin;
    for (std::int64_t& position : end) ++position;
    reader.read_box(begin, end, bytes.data() + static_cast<std::int64_t>(i) * item);
  }
  reader.finish();
  result.values = as_doubles(result.dtype, bytes.data(), indices.size());
  return result;
}

GradientFile read_gradient(const std::string& path, const WgradProblem& problem,
                           bool dtype_must_match) {
  GradientFile result;
  NpyReader reader = open_gradient(path, problem, result.dtype);
  if (dtype_must_match && result.dtype != problem.out_dtype) {
    bad_input(reader.name(), ": dtype ", dtype_name(result.dtype), ", expected ",
              dtype_name(problem.out_dtype), Hint("use --out-dtype ", dtype_name(result.dtype)));
  }
  const Buffer bytes(reader.header().payload_bytes, "a gradient file");
  reader.read_all(bytes.data());
  result.values =
      as_doubles(result.dtype, bytes.data(), static_cast<std::size_t>(problem.dw_count()));
  return result;
}

}  // namespace convgrad
