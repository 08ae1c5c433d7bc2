// simulated_sums - gradients as other programs would sum them: right ways in several orders and
// precisions, and faulty ones. scripts/measure_power.py and scripts/measure_false_alarms.py judge
// them by `convgrad verify`.
//
//   simulated_sums X.npy DY.npy OUT.npy right conv2d 3,3 1,1 1,1 1,1,1,1 2
//
// that is ways, op, taps, strides, dilations, explicit paddings and groups. Ways are right, faulty,
// or names, with commas between them. OUT has one gradient after the other, [way][tap][c][k], not
// yet rounded to an output's dtype: float64 of float64 data, else float32. Standard output has the
// names, one a line. Tensors are channels last.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "convgrad/dtype.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"
#include "tools/ways.hpp"

namespace {

using namespace convgrad;
using namespace convgrad::simulated;

template <typename A>
A narrowed(A value, Narrow dtype) {
  return dtype ? static_cast<A>(rounded(*dtype, value)) : value;
}

template <typename A>
A flushed(A value) {
  return std::abs(value) < std::numeric_limits<A>::min() ? A{} : value;
}

// What one tap sees of one group: x[pixel][c] and y[pixel][k].
template <typename A>
struct Terms {
  Count L, C, K;
  std::vector<A> x, y;

  Terms(const WgradProblem& p, const std::vector<A>& all_x, const std::vector<A>& all_y,
        Count group, const std::array<Count, 3>& tap)
      : L(term_count(p)), C(p.group_c()), K(p.group_k()), x(L * C), y(L * K) {
    const auto& [d, h, w] = p.axis;
    for (Count l = 0; l < L; ++l) {
      const std::array<Count, 3> out{l / (h.out * w.out) % d.out, l / w.out % h.out, l % w.out};
      std::copy_n(&all_y[l * p.K + group * K], K, &y[l * K]);
      Count pixel = l / p.out_pixels();
      bool inside = true;
      for (int i = 0; i < 3; ++i) {
        const SpatialAxis& axis = p.axis[i];
        const Count at = out[i] * axis.stride - axis.pad_before + tap[i] * axis.dilation;
        inside = inside && at >= 0 && at < axis.in;
        pixel = pixel * axis.in + at;
      }
      if (inside) std::copy_n(&all_x[pixel * p.C + group * C], C, &x[l * C]);
    }
  }
};

template <typename A>
void add_pixel(const Terms<A>& terms, Count pixel, const Way& way, A* sums) {
  const A* y = &terms.y[pixel * terms.K];
  for (Count c = 0; c < terms.C; ++c) {
    const A x = terms.x[pixel * terms.C + c];
    if (x == 0) continue;
    A* sum = sums + c * terms.K;
    if (way.step) {
      for (Count k = 0; k < terms.K; ++k) {
        sum[k] = narrowed<A>(sum[k] + narrowed<A>(x * y[k], way.step), way.step);
      }
    } else if (way.mode == Mode::flushed) {
      for (Count k = 0; k < terms.K; ++k) sum[k] = flushed(sum[k] + flushed(x * y[k]));
    } else if (way.mode == Mode::fma) {
      for (Count k = 0; k < terms.K; ++k) sum[k] = std::fma(x, y[k], sum[k]);
    } else {
      for (Count k = 0; k < terms.K; ++k) sum[k] += x * y[k];
    }
  }
}

// Kahan's sums: what rounding loses is kept.
template <typename A>
void add_compensated(const Terms<A>& terms, std::span<const Count> pixels, std::vector<A>& sums) {
  std::vector<A> lost(sums.size());
  for (const Count pixel : pixels) {
    for (std::size_t m = 0; m < sums.size(); ++m) {
      const A product =
          terms.x[pixel * terms.C + m / terms.K] * terms.y[pixel * terms.K + m % terms.K];
      const A term = product - lost[m], sum = sums[m] + term;
      lost[m] = (sum - sums[m]) - term;
      sums[m] = sum;
    }
  }
}

// The sums in the way of a tensor core: 16 exact products are added to the sum, then cut.
template <typename A>
void add_cut(const Terms<A>& terms, std::span<const Count> pixels, std::vector<A>& sums) {
  std::vector<double> exact(sums.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    for (std::size_t m = 0; m < sums.size(); ++m) {
      exact[m] += double{terms.x[pixels[i] * terms.C + m / terms.K]} *
                  terms.y[pixels[i] * terms.K + m % terms.K];
    }
    if (i % 16 != 15 && i + 1 != pixels.size()) continue;
    for (std::size_t m = 0; m < sums.size(); ++m) {
      const double sum = sums[m] + std::exchange(exact[m], 0);
      const A nearest = static_cast<A>(sum);
      sums[m] = std::abs(nearest) > std::abs(sum) ? std::nextafter(nearest, A{}) : nearest;
    }
  }
}

template <typename A>
void add_to(std::vector<A>& sums, const std::vector<A>& more) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

template <typename A>
std::vector<A> part_sum(const Terms<A>& terms, const Way& way, std::span<const Count> pixels) {
  std::vector<A> sums(terms.C * terms.K);
  if (way.mode == Mode::cut) {
    add_cut(terms, pixels, sums);
  } else if (way.mode == Mode::compensated) {
    add_compensated(terms, pixels, sums);
  } else {
    for (const Count pixel : pixels) add_pixel(terms, pixel, way, sums.data());
  }
  for (A& sum : sums) sum = narrowed<A>(sum, way.partial);
  return sums;
}

template <typename A>
std::vector<A> summed(const Terms<A>& terms, const Way& way, const Order& order) {
  std::vector<A> total(terms.C * terms.K);
  std::vector<std::vector<A>> open;  // of 2^i parts each, for the bits of how many there are
  const std::size_t parts = order.ends.size();
  const std::size_t tile = way.tile == 0 ? std::max<std::size_t>(1, parts) : way.tile;
  Count begin = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const Count end = order.ends[i];
    open.push_back(part_sum(terms, way, std::span(order.pixels).subspan(begin, end - begin)));
    begin = end;
    const std::size_t count = i % tile + 1;
    const bool ends = count == tile || i + 1 == parts;
    for (std::size_t rest = count; open.size() > 1 && (ends || rest % 2 == 0); rest /= 2) {
      const std::vector<A> last = std::move(open.back());
      open.pop_back();
      add_to(open.back(), last);
    }
    if (!ends) continue;
    add_to(total, open.front());
    for (A& sum : total) sum = narrowed<A>(sum, way.step);
    open.clear();
  }
  return total;
}

template <typename A>
std::vector<A> read_all(NpyReader& reader) {
  const NpyHeader& header = reader.header();
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.payload_bytes));
  reader.read_all(bytes.data());
  std::vector<A> values(static_cast<std::size_t>(header.element_count));
  with_scalar(float_dtype(header, reader.name()), [&]<typename Stored>(Stored) {
    const auto* stored = reinterpret_cast<const Stored*>(bytes.data());
    for (A& value : values) value = static_cast<A>(to_double(*stored++));
  });
  return values;
}

template <typename A>
void write_sums(const WgradProblem& problem, NpyReader& x_file, NpyReader& dy_file,
                const std::string& out, const std::vector<Way>& ways) {
  const std::vector<A> x = read_all<A>(x_file), y = read_all<A>(dy_file);
  std::vector<Order> orders;
  for (const Way& way : ways) orders.push_back(order_of(problem, way));
  std::vector<std::vector<A>> results(ways.size(), std::vector<A>(problem.dw_count()));
  const auto& [d, h, w] = problem.axis;
  for (Count tap = 0; tap < problem.taps(); ++tap) {
    const std::array<Count, 3> at{tap / (h.taps * w.taps), tap / w.taps % h.taps, tap % w.taps};
    for (Count group = 0; group < problem.groups; ++group) {
      const Terms<A> terms(problem, x, y, group, at);
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::vector<A> sums = summed(terms, ways[i], orders[i]);
        for (Count c = 0; c < terms.C; ++c) {
          std::copy_n(&sums[c * terms.K], terms.K,
                      &results[i][(tap * terms.C + c) * problem.K + group * terms.K]);
        }
      }
    }
  }
  std::vector<Count> shape = dw_shape(problem);
  shape.insert(shape.begin(), static_cast<Count>(ways.size()));
  std::ofstream file(out, std::ios::binary);
  file << npy_header_text(accumulator_dtype(problem.dtype), shape);
  for (const auto& result : results) {
    file.write(reinterpret_cast<const char*>(result.data()),
               static_cast<std::streamsize>(result.size() * sizeof(A)));
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + out);
  for (const Way& way : ways) std::puts(way.name.c_str());
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

std::vector<Count> numbers_of(const std::string& text) {
  std::vector<Count> numbers;
  for (const std::string& word : words_of(text)) numbers.push_back(std::stoll(word));
  return numbers;
}

void run(const std::vector<std::string>& args) {
  if (args.size() != 10) throw std::runtime_error("10 arguments are needed");
  WgradAttributes attributes;
  attributes.op = args[4];
  attributes.kernel = numbers_of(args[5]);
  attributes.strides = numbers_of(args[6]);
  attributes.dilations = numbers_of(args[7]);
  attributes.padding = "EXPLICIT";
  attributes.explicit_paddings = numbers_of(args[8]);
  attributes.groups = std::stoll(args[9]);
  NpyReader x(args[0]), dy(args[1]);
  const auto info = [](const NpyReader& reader) {
    const NpyHeader& header = reader.header();
    return TensorInfo{reader.name(), float_dtype(header, reader.name()), header.shape};
  };
  const WgradProblem problem = make_problem(info(x), info(dy), attributes);
  std::vector<Way> ways = ways_of(problem);
  const std::vector<std::string> wanted = words_of(args[3]);
  std::erase_if(ways, [&](const Way& way) {
    return std::none_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
      return word == way.name || word == (way.right() ? "right" : "faulty");
    });
  });
  const bool wide = problem.dtype == DType::f64;
  (wide ? write_sums<double> : write_sums<float>)(problem, x, dy, args[2], ways);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated_sums: %s\n", error.what());
    return 1;
  }
}
