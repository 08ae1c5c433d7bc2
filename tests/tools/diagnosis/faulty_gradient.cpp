// faulty_gradient.cpp - see faulty_gradient.hpp.
#include "tools/diagnosis/faulty_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "check/sample.hpp"
#include "convgrad/npy.hpp"

namespace convgrad::testing {

namespace {

enum class Data : std::uint8_t { normal, relu, positive };

double uniform(Random& random) { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; }
}  // namespace

double normal(Random& random) {
  return std::sqrt(-2 * std::log(uniform(random))) * std::cos(6.283185307179586 * uniform(random));
}

double bits_kept(double value, int bits, bool cut) {
  value = static_cast<double>(static_cast<float>(value));
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(value, &exponent), bits);
  return std::ldexp(cut ? std::trunc(scaled) : std::round(scaled), exponent - bits);
}

double small_float(double value, int bits, int least, double most) {
  if (value == 0) return 0;
  const int unit = std::max(std::ilogb(value), least) + 1 - bits;
  return std::clamp(std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit), -most, most);
}

double quotient(DType dtype, double value, double scale) {
  if (dtype == DType::f64) return value / scale;
  return static_cast<double>(static_cast<float>(value) / static_cast<float>(scale));
}

Values gradient(const Case& c, const Wrong& wrong) {
  const WgradProblem& pb = c.pb;
  const bool wide = pb.dtype == DType::f64;
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  Values dw;
  for (std::int64_t index = 0; index < pb.dw_count(); ++index) {
    const std::int64_t k = index % pb.K, ch = k / Kg * Cg + index / pb.K % Cg;
    std::int64_t tap = index / pb.K / Cg, at[3];
    for (int a = 3; a-- > 0;) {
      at[a] = tap % pb.axis[static_cast<std::size_t>(a)].taps;
      tap /= pb.axis[static_cast<std::size_t>(a)].taps;
    }
    double total = 0, sum = 0;
    std::int64_t pixel = 0;
    const auto end_part = [&] {
      total = wrong.part ? wrong.part(sum) + total : total + sum;
      if (wrong.part && wrong.add) total = wrong.part(total);
      if (wrong.total) total = wrong.total(total);
      sum = 0;
    };
    for (std::int64_t image = 0; image < pb.N; ++image) {
      for (std::int64_t place_in = 0; place_in < pb.out_pixels(); ++place_in, ++pixel) {
        const std::int64_t n = wrong.backwards ? pb.N - 1 - image : image;
        const std::int64_t out = wrong.backwards ? pb.out_pixels() - 1 - place_in : place_in;
        if (wrong.ends.empty() ? pixel % 512 == 0 : wrong.ends.count(pixel) > 0) end_part();
        std::int64_t rest = out, place = n, o[3];
        bool there = true, zero = false;
        for (int a = 3; a-- > 0;) {
          o[a] = rest % pb.axis[static_cast<std::size_t>(a)].out;
          rest /= pb.axis[static_cast<std::size_t>(a)].out;
        }
        for (std::size_t a = 0; a < 3; ++a) {
          const SpatialAxis& axis = wrong.axis[a];
          const std::int64_t in = pb.axis[a].in;
          std::int64_t i = o[a] * axis.stride - axis.pad_before + at[a] * axis.dilation;
          if (i < 0 || i >= in) i = wrong.outside ? wrong.outside(i, in) : -1;
          if (wrong.sees && i >= 0) i = wrong.sees(a, o[a], i);
          there = there && i != -1;
          zero = zero || i == -2;
          place = place * in + std::max<std::int64_t>(i, 0);
        }
        const double weight = wrong.weight ? wrong.weight(pixel) : 1;
        if (!there || weight == 0) continue;
        double x = zero ? 0 : c.x[static_cast<std::size_t>(place * pb.C + ch)];
        double dy = c.dy[static_cast<std::size_t>((n * pb.out_pixels() + out) * pb.K + k)];
        if (wrong.x) x = wrong.x(x);
        if (wrong.dy) dy = wrong.dy(dy);
        double product = x * dy * weight;
        if (wrong.product) product = wrong.product(product);
        if (wrong.add && !wrong.part) {
          sum = wrong.add(sum, product);
        } else {
          sum = wide ? sum + product
                     : static_cast<double>(static_cast<float>(sum) + static_cast<float>(product));
        }
      }
    }
    end_part();
    dw.push_back(rounded(pb.out_dtype, total));
  }
  return dw;
}

Wrong right(const Case& c) {
  Wrong wrong;
  wrong.axis = c.pb.axis;
  return wrong;
}

Values rounded_all(const WgradProblem& pb, Values values) {
  for (double& v : values) v = rounded(pb.out_dtype, v);
  return values;
}

std::vector<std::byte> bytes_of(const WgradProblem& pb, const Values& values,
                                std::int64_t channels) {
  Values ordered = values;
  if (!pb.channels_last) {
    const auto pixels = std::ssize(values) / pb.N / channels;
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const std::int64_t n = i / (pixels * channels), p = i / channels % pixels, c = i % channels;
      ordered[static_cast<std::size_t>((n * channels + c) * pixels + p)] =
          values[static_cast<std::size_t>(i)];
    }
  }
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(pb.dtype)));
  round_to(pb.dtype, ordered.data(), std::ssize(ordered), bytes.data());
  return bytes;
}

Values other_format(const WgradProblem& pb, const Values& values, std::int64_t channels) {
  const std::int64_t pixels = std::ssize(values) / pb.N / channels;
  Values result;
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t n = i / (pixels * channels), p = i / channels % pixels, c = i % channels;
    // Where it would be in the other format, and what stands there.
    const std::int64_t at = pb.channels_last ? c * pixels + p : p * channels + c;
    const std::int64_t q = pb.channels_last ? at / channels : at % pixels;
    const std::int64_t d = pb.channels_last ? at % channels : at / pixels;
    result.push_back(values[static_cast<std::size_t>((n * pixels + q) * channels + d)]);
  }
  return result;
}

Case random_case(Random& random, double scale) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + draw(random, high - low + 1);
  };
  while (true) {
    WgradAttributes attributes;
    const std::int64_t op = pick(0, 5);
    attributes.op = op < 4 ? "conv2d" : op == 4 ? "depthwise" : "conv3d";
    const std::size_t rank = op == 5 ? 3 : 2;
    const std::int64_t groups = op == 4 ? pick(2, 40) : std::max<std::int64_t>(1, pick(-3, 4));
    const std::int64_t C = op == 4 ? groups : groups * pick(1, groups > 1 ? 6 : 36);
    const std::int64_t K = groups * pick(1, op == 4 ? 3 : groups > 1 ? 8 : 36);
    constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f32,
                                DType::f64, DType::f16, DType::bf16};
    TensorInfo x = {"x", kTypes[pick(0, 5)], {pick(1, 6)}}, dy = {"dy", x.dtype, {}};
    const bool last = pick(0, 1) == 1;
    attributes.data_format = std::string(rank == 3 ? (last ? "NDHWC" : "NCDHW")
                                         : last    ? "NHWC"
                                                   : "NCHW");
    attributes.padding = pick(0, 2) > 0 ? "SAME" : "VALID";
    for (std::size_t a = 0; a < rank; ++a) {
      x.shape.push_back(pick(3, rank == 3 ? 7 : 16));
      attributes.kernel.push_back(pick(1, 3));
      attributes.strides.push_back(pick(1, 2));
      attributes.dilations.push_back(pick(0, 1) == 1 ? pick(1, 3) : 1);
    }
    x.shape.insert(last ? x.shape.end() : x.shape.begin() + 1, C);
    attributes.groups = groups;
    if (op == 4) attributes.groups.reset();
    try {
      dy.shape = out_backprop_shape(x, attributes, K);
      Case c;
      c.pb = make_problem(x, dy, attributes);
      const double work = static_cast<double>(c.pb.dw_count() * term_count(c.pb));
      if (term_count(c.pb) < 20 || c.pb.dw_count() < 12 || work > 3e6) continue;
      if (c.pb.dtype != DType::f64 && pick(0, 3) == 0) c.pb.out_dtype = DType::f32;
      const auto data = static_cast<Data>(pick(0, 2));
      const auto fill = [&](std::int64_t count) {
        Values values;
        for (std::int64_t i = 0; i < count; ++i) {
          double v = data == Data::positive ? 0.1 + uniform(random) : normal(random);
          if (data == Data::relu) v = std::max(v, 0.0);
          values.push_back(rounded(c.pb.dtype, v * scale));
        }
        return values;
      };
      c.x = fill(c.pb.x_count());
      c.dy = fill(c.pb.dy_count());
      if (data == Data::relu) {  // of x alone
        for (double& v : c.dy) v = rounded(c.pb.dtype, normal(random) * scale);
      }
      return c;
    } catch (const Error&) {
      continue;
    }
  }
}

std::vector<Case> captured_cases(const std::string& folder, double most) {
  std::ifstream list(folder + "/problems.jsonl");
  std::vector<Case> cases;
  for (std::string line; std::getline(list, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    NpyReader x(cat(folder, "/", entry.at("input").get<std::string>()));
    NpyReader dy(cat(folder, "/", entry.at("out_backprop").get<std::string>()));
    const auto read = [](NpyReader& reader) {
      const NpyHeader& header = reader.header();
      Values values(static_cast<std::size_t>(header.element_count));
      if (float_dtype(header, reader.name()) != DType::f64) reader.widen_to(DType::f64);
      reader.read_all(values.data());
      return values;
    };
    const DType dtype = float_dtype(x.header(), x.name());
    WgradAttributes attributes;
    attributes.op = entry.at("op");
    entry.at("filter_sizes").get_to(attributes.filter_sizes);
    entry.at("strides").get_to(attributes.strides);
    entry.at("dilations").get_to(attributes.dilations);
    attributes.padding = entry.at("padding");
    entry.at("explicit_paddings").get_to(attributes.explicit_paddings);
    attributes.data_format = entry.at("data_format");
    Case c;
    c.pb =
        make_problem({"x", dtype, x.header().shape}, {"dy", dtype, dy.header().shape}, attributes);
    if (static_cast<double>(c.pb.dw_count() * term_count(c.pb)) > most) continue;
    c.x = read(x);
    c.dy = read(dy);
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace convgrad::testing
