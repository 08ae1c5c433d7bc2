#include "convgrad/gradient_file.hpp"

#include <algorithm>

#include "base/buffer.hpp"
#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/npy.hpp"
#include "files/array.hpp"

namespace convgrad {
namespace {

// Returns where the entry at `index` of [tap][c][k] is in the order of dw_shape().
std::int64_t place_in_file(const WgradProblem& problem, std::int64_t index) {
  const std::int64_t taps = problem.taps(), c_count = problem.group_c(), K = problem.K;
  const std::int64_t k = index % K, c = index / K % c_count, tap = index / K / c_count;
  if (problem.filter_format == FilterFormat::oihw) return (k * c_count + c) * taps + tap;
  return problem.filter_format == FilterFormat::ohwi ? (k * taps + tap) * c_count + c : index;
}

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

// Rounds dw, whose sums are of this dtype, where they are not yet of out_dtype, and writes it.
void write_elements(const std::string& path, const WgradProblem& problem, DType dtype,
                    const void* dw, const OutputOptions& options) {
  ArrayFile file(path, problem.out_dtype, dw_shape(problem), options);
  const std::int64_t count = problem.dw_count(), item = dtype_bytes(problem.out_dtype);
  // An element takes 8 bytes before it is rounded and at most 8 after it.
  const std::int64_t step = std::min<std::int64_t>(count, kOutputStagingBytes / 16);
  const bool rounds = dtype != problem.out_dtype;
  const Buffer bytes(step * item, "the output buffer");
  const Buffer sums(rounds ? step * dtype_bytes(dtype) : 0, "the output buffer");
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const std::int64_t n = std::min(step, count - begin);
    gather_gradient(problem, dtype, dw, begin, n, rounds ? sums.data() : bytes.data());
    if (rounds) round_to(problem.out_dtype, sums.as<double>(), n, bytes.data());
    file.write(bytes.data(), static_cast<std::size_t>(n * item));
  }
  file.commit();
}

// Says what the shape is, where it is the gradient's in another order or reshaped.
Hint shape_hint(WgradProblem problem, const std::vector<std::int64_t>& shape) {
  const std::vector<std::int64_t> own = dw_shape(problem);
  std::string names;
  for (const FilterFormat other : {FilterFormat::hwio, FilterFormat::oihw, FilterFormat::ohwi}) {
    problem.filter_format = other;
    if (dw_shape(problem) == shape) {
      names += cat(names.empty() ? "" : " or ", filter_format_name(problem));
    }
  }
  if (!names.empty()) return Hint("this is ", names, ": add --filter-format ", names);
  const bool is_reshaped =
      shape.size() < own.size() && checked_product(shape) == checked_product(own);
  return is_reshaped ? Hint("it has as many elements: reshape it") : Hint();
}

// Opens a file of floats that has the shape of the problem's gradient, to be read as float64.
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
  reader.widen_to(DType::f64);
  return reader;
}

}  // namespace

void gather_gradient(const WgradProblem& problem, DType dtype, const void* dw, std::int64_t begin,
                     std::int64_t count, void* destination) {
  with_scalar(dtype, [&]<typename Scalar>(Scalar) {
    gather(problem, static_cast<const Scalar*>(dw), begin, count,
           static_cast<Scalar*>(destination));
  });
}

void write_gradient(const std::string& path, const WgradProblem& problem, const double* dw,
                    const OutputOptions& options) {
  write_elements(path, problem, DType::f64, dw, options);
}

void write_rounded_gradient(const std::string& path, const WgradProblem& problem, const void* dw,
                            const OutputOptions& options) {
  write_elements(path, problem, problem.out_dtype, dw, options);
}

std::vector<std::int64_t> position_in_file(const WgradProblem& problem, std::int64_t index) {
  return position_of(dw_shape(problem), place_in_file(problem, index));
}

GradientFile read_gradient_entries(const std::string& path, const WgradProblem& problem,
                                   std::span<const std::int64_t> indices) {
  GradientFile result;
  NpyReader reader = open_gradient(path, problem, result.dtype);
  // Entries are read in any order, which a stream cannot do.
  reader.hold();
  for (const std::int64_t index : indices) {
    const std::vector<std::int64_t> begin = position_in_file(problem, index);
    std::vector<std::int64_t> end = begin;
    for (std::int64_t& position : end) ++position;
    reader.read_box(begin, end, &result.values.emplace_back());
  }
  reader.finish();
  return result;
}

GradientFile read_gradient(const std::string& path, const WgradProblem& problem) {
  GradientFile result;
  NpyReader reader = open_gradient(path, problem, result.dtype);
  result.values.resize(static_cast<std::size_t>(problem.dw_count()));
  reader.read_all(result.values.data());
  if (problem.filter_format == FilterFormat::hwio) return result;
  const std::vector<double> in_file = result.values;
  for (std::size_t i = 0; i < in_file.size(); ++i) {
    const std::int64_t place = place_in_file(problem, static_cast<std::int64_t>(i));
    result.values[i] = in_file[static_cast<std::size_t>(place)];
  }
  return result;
}

}  // namespace convgrad
