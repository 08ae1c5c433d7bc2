#include "tools/ways.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

namespace convgrad::simulated {
namespace {

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
  // XLA on a CPU: p, q, n with accumulators for even and odd n; 4 where registers allow.
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
  // SIMD lanes and unrolled accumulators over pixels; threads that take rows or images in turns.
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

// All pixels, a walk's innermost letter first. Without z in a name, p goes over planes and rows.
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

}  // namespace

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

}  // namespace convgrad::simulated
