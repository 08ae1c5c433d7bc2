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
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "convgrad/dtype.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"

namespace {

using namespace convgrad;
using Count = std::int64_t;

enum class Mode { rounded, fma, cut, compensated, flushed };
using Narrow = std::optional<DType>;  // what is rounded to

struct Pixel {
  Count n, z, p, q;
  Count number, row;  // in the order n, z, p, q, among all
  Count inside;       // its number in its image
  Count position;     // in the way's walk
};

// How one gradient is summed: pixels fall into parts, and each part is summed in the order of the
// walk, whose last letter is innermost. `tile` parts are added pairwise (0: all), and tiles one
// after the other.
struct Way {
  std::string name;
  std::string walk = "nzpq";
  std::function<Count(const Pixel&)> part = {};  // empty: one part
  Mode mode = Mode::rounded;
  Count tile = 1;
  Narrow step = {};     // each product and each sum
  Narrow partial = {};  // a part's sum

  bool right() const { return !step && !partial && mode != Mode::flushed; }
};

constexpr Count ceil_div(Count a, Count b) { return (a + b - 1) / b; }

// Orders that kernels have, each with what has it.
std::vector<Way> right_ways(const WgradProblem& problem) {
  using P = const Pixel&;
  const Count L = term_count(problem), S = problem.out_pixels();
  std::vector<Way> ways{
      {"plain"},
      {.name = "fma", .mode = Mode::fma},
      {.name = "compensated", .mode = Mode::compensated},
      {"reverse", "reverse"},
      {"random", "random"},
      // numpy, and libraries' GEMMs that split their depth
      {.name = "pairwise", .part = [](P at) { return at.number / 32; }, .tile = 0},
      {.name = "pairwise8", .part = [](P at) { return at.number / 8; }, .tile = 0},
      // a thread per image (oneDNN) or row, and the sums added up
      {.name = "images", .part = [](P at) { return at.n; }},
      {.name = "images pairwise", .part = [](P at) { return at.n; }, .tile = 0},
      {.name = "rows", .part = [](P at) { return at.row; }},
      {.name = "rows fma", .part = [](P at) { return at.row; }, .mode = Mode::fma}};
  // XLA on a CPU: p, q, n with an accumulator for even n and one for odd n; 4 where registers
  // allow.
  for (const Count m : {2, 4}) {
    const auto part = [m](P at) { return at.n % m; };
    ways.push_back({"pqn n mod " + std::to_string(m), "pqn", part, Mode::fma});
  }
  for (const char* walk : {"nqp", "pnq", "pqn", "qnp", "qpn"}) ways.push_back({walk, walk});
  ways.push_back({"pqn fma", "pqn", {}, Mode::fma});
  if (problem.axis[0].out > 1) {
    for (const char* walk : {"znpq", "pnzq"}) ways.push_back({walk, walk});
  }
  for (const Count splits : {2, 8, 16, 64}) {  // split-K
    const Count block = ceil_div(L, splits);
    ways.push_back({.name = "split" + std::to_string(splits),
                    .part = [block](P at) { return at.number / block; }});
  }
  for (const Count block : {64, 512}) {  // the depth of a GEMM's block
    ways.push_back({.name = "block" + std::to_string(block),
                    .part = [block](P at) { return at.number / block; }});
  }
  for (const Count share : {2, 16}) {  // of every image: a thread for each
    const Count block = ceil_div(S, share);
    ways.push_back({.name = "image in " + std::to_string(share),
                    .part = [block](P at) { return at.inside / block; }});
  }
  // SIMD lanes and unrolled accumulators over pixels; threads or devices that take rows or images
  // in turns.
  for (const Count m : {2, 3, 4, 5, 6, 7, 8, 10, 16, 24, 32}) {
    const std::string mod = " mod " + std::to_string(m);
    const auto pixels = [m](P at) { return at.number % m; };
    ways.push_back({.name = "pixel" + mod, .part = pixels, .tile = 0});
    if (m >= 8) ways.push_back({"pixel" + mod + " fma", "nzpq", pixels, Mode::fma, 0});
    ways.push_back({.name = "row" + mod, .part = [m](P at) { return at.row % m; }});
    ways.push_back({.name = "image" + mod, .part = [m](P at) { return at.n % m; }});
  }
  // Tiles of outputs, as Winograd's transforms have them.
  for (const Count m : {2, 4}) {
    ways.push_back({.name = "place in " + std::to_string(m) + "x" + std::to_string(m) + " tiles",
                    .part = [m](P at) { return at.p % m * m + at.q % m; }});
  }
  // Tiles, waves and curves over the places of an image, image by image or of all images at once,
  // in one sum; tiles with a sum each, which a block of threads has.
  for (const char* places : {"tiles 4", "tiles 8", "tiles 16", "wave", "diagonals", "diagonals 3",
                             "bands 8", "morton", "hilbert"}) {
    ways.push_back({places, places});
    ways.push_back({std::string(places) + " of all", std::string(places) + " of all"});
  }
  for (const Count m : {4, 8, 16}) {
    const Count across = ceil_div(problem.axis[2].out, m);
    const Count tiles = across * ceil_div(problem.axis[1].out * problem.axis[0].out, m);
    ways.push_back({.name = std::to_string(m) + "x" + std::to_string(m) + " tiles",
                    .part = [=, &problem](P at) {
                      return at.n * tiles + (at.z * problem.axis[1].out + at.p) / m * across +
                             at.q / m;
                    }});
    ways.push_back({.name = std::to_string(m) + "x" + std::to_string(m) + " tiles of all",
                    .part = [=, &problem](P at) {
                      return (at.z * problem.axis[1].out + at.p) / m * across + at.q / m;
                    }});
  }
  ways.push_back({"image mod 2 fma", "nzpq", [](P at) { return at.n % 2; }, Mode::fma});
  // CUTLASS's sliced-K: warps of a block take runs of the depth in turns.
  for (const Count run : {8, 16, 32}) {
    for (const Count warps : {2, 4}) {
      const auto part = [=](P at) { return at.number / run % warps; };
      ways.push_back({"run of " + std::to_string(run) + " mod " + std::to_string(warps), "nzpq",
                      part, run == 8 ? Mode::fma : Mode::rounded});
    }
  }
  // A dot product over q in lanes, for each row or image anew.
  for (const Count lanes : {4, 8, 16}) {
    const auto part = [=](P at) { return at.row * lanes + at.q % lanes; };
    ways.push_back({"row's lanes " + std::to_string(lanes), "nzpq", part, Mode::rounded, lanes});
  }
  ways.push_back(
      {"image's lanes 4", "nzpq", [](P at) { return at.n * 4 + at.inside % 4; }, Mode::rounded, 4});
  // A warp per image, lanes stride over its pixels: PyTorch's depthwise kernel with 8 warps in a
  // block; a warp for every image.
  ways.push_back(
      {"8 warps", "nzpq", [](P at) { return at.n % 8 * 32 + at.inside % 32; }, Mode::rounded, 0});
  ways.push_back({"warps", "nzpq", [](P at) { return at.n * 32 + at.inside % 32; }, Mode::fma, 32});
  std::vector<Count> turns(static_cast<std::size_t>(ceil_div(L, 32)));  // atomics
  std::iota(turns.begin(), turns.end(), 0);
  std::shuffle(turns.begin(), turns.end(), std::mt19937_64(2));
  ways.push_back({.name = "atomics32", .part = [turns](P at) { return turns[at.number / 32]; }});
  if (dtype_bytes(problem.dtype) != 2) return ways;
  // Tensor cores cut what they add; 4096 terms is the longest such run that is granted.
  ways.push_back({"cut4096", "nzpq", [](P at) { return at.number / 4096; }, Mode::cut});
  ways.push_back({"cut4096 pqn", "pqn", [](P at) { return at.position / 4096; }, Mode::cut});
  ways.push_back({"cut4096 run of 16 mod 2", "nzpq",
                  [](P at) { return at.number / 8192 * 2 + at.number / 16 % 2; }, Mode::cut});
  return ways;
}

std::vector<Way> ways_of(const WgradProblem& problem) {
  std::vector<Way> ways = right_ways(problem);
  ways.push_back({.name = "flushed", .mode = Mode::flushed});
  const auto rounding = [&](const char* name, Count block, Narrow step, Narrow partial) {
    const auto part = [=](const Pixel& at) { return at.number / block; };
    ways.push_back({name, "nzpq", part, Mode::rounded, 1, step, partial});
  };
  const Count L = std::max<Count>(1, term_count(problem)), image = problem.out_pixels();
  rounding("bfloat16_images", image, {}, DType::bf16);
  rounding("float16_images", image, {}, DType::f16);
  rounding("bfloat16_split4", ceil_div(L, 4), {}, DType::bf16);
  rounding("bfloat16_split32", ceil_div(L, 32), {}, DType::bf16);
  rounding("bfloat16_split256", ceil_div(L, 256), {}, DType::bf16);
  rounding("float16_sums", L, DType::f16, {});
  rounding("bfloat16_sums", L, DType::bf16, {});
  if (problem.dtype == DType::f64) {
    rounding("float32_images", image, {}, DType::f32);
    rounding("float32_sums", L, DType::f32, {});
  }
  return ways;
}

// Where a walk of places reaches the place in row p and column q: the lesser first.
Count turn_of(const std::string& places, Count m, Count p, Count q) {
  constexpr Count kFar = 1 << 20;  // beyond any extent here
  if (places == "tiles") return p / m * kFar + q / m;
  if (places == "bands") return q / m;
  if (places == "wave") return p + q;
  if (places == "diagonals") return m == 0 ? p - q : (p + q) % m;
  Count turn = 0;  // along a curve: two bits a level
  for (Count side = kFar / 2; side > 0; side /= 2) {
    const Count down = (p & side) != 0, right = (q & side) != 0;
    turn = turn * 4 + (places == "morton" ? down * 2 + right : (3 * down) ^ right);
    if (places == "morton" || right == 1) continue;
    if (down == 1) p = side - 1 - p % side, q = side - 1 - q % side;  // a quarter is turned over
    std::swap(p, q);
  }
  return turn;
}

// Walks with names such as "tiles 8" and "tiles 8 of all": planes are below each other.
std::vector<Count> walk_of_places(const WgradProblem& problem, const std::string& name) {
  std::istringstream words(name);
  std::string places, of;
  Count m = 0;
  words >> places;
  if (!(words >> m)) words.clear();
  words >> of;
  const Count across = problem.axis[2].out, S = problem.out_pixels();
  std::vector<std::pair<Count, Count>> turns;
  for (Count i = 0; i < S; ++i) turns.push_back({turn_of(places, m, i / across, i % across), i});
  std::sort(turns.begin(), turns.end());
  std::vector<Count> walk;
  for (Count i = 0; i < problem.N * S; ++i) {
    const auto [n, place] =
        of == "of" ? std::pair{i % problem.N, i / problem.N} : std::pair{i / S, i % S};
    walk.push_back(n * S + turns[static_cast<std::size_t>(place)].second);
  }
  return walk;
}

// All pixels, those of a walk's innermost letter first. Without z in a name, p goes over planes and
// their rows.
std::vector<Count> walk_of(const WgradProblem& problem, const std::string& name) {
  if (!std::all_of(name.begin(), name.end(), [](char c) { return std::strchr("nzpq", c); }) &&
      name != "reverse" && name != "random") {
    return walk_of_places(problem, name);
  }
  const SpatialAxis &d = problem.axis[0], &h = problem.axis[1], &w = problem.axis[2];
  const bool planes = name.find('z') != std::string::npos;
  const auto axis = [&](char which) {  // extent and distance
    switch (which) {
      case 'n':
        return std::pair{problem.N, problem.out_pixels()};
      case 'z':
        return std::pair{d.out, h.out * w.out};
      case 'p':
        return std::pair{planes ? h.out : d.out * h.out, w.out};
      default:
        return std::pair{w.out, Count{1}};
    }
  };
  std::vector<Count> walk(static_cast<std::size_t>(term_count(problem)));
  std::iota(walk.begin(), walk.end(), 0);
  if (name == "reverse") {
    std::reverse(walk.begin(), walk.end());
  } else if (name == "random") {
    std::shuffle(walk.begin(), walk.end(), std::mt19937_64(1));
  } else {
    for (Count& pixel : walk) {
      Count rest = std::exchange(pixel, 0);
      for (auto letter = name.rbegin(); letter != name.rend(); ++letter) {
        const auto [extent, distance] = axis(*letter);
        pixel += rest % extent * distance;
        rest /= extent;
      }
    }
  }
  return walk;
}

// Numbers of pixels, part by part, and where each part ends.
struct Order {
  std::vector<Count> pixels, ends;
};

Order order_of(const WgradProblem& problem, const Way& way) {
  const auto& [d, h, w] = problem.axis;
  Order order{walk_of(problem, way.walk), {}};
  if (!way.part) {
    order.ends = {static_cast<Count>(order.pixels.size())};
    return order;
  }
  std::vector<std::pair<Count, Count>> parts;  // of each pixel
  Count position = 0;
  for (const Count l : order.pixels) {
    parts.push_back(
        {way.part({l / problem.out_pixels(), l / (h.out * w.out) % d.out, l / w.out % h.out,
                   l % w.out, l, l / w.out, l % problem.out_pixels(), position++}),
         l});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    order.pixels[i] = parts[i].second;
    // A part without pixels is one all the same: tiles count them.
    order.ends.resize(static_cast<std::size_t>(parts[i].first + 1), static_cast<Count>(i));
    order.ends.back() = static_cast<Count>(i + 1);
  }
  return order;
}

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
