// faults_of_inputs.cpp - see faults.hpp: images that are others', numbers that are not what they
// were, memory that is taken for another layout, and parts of the image that do not see their
// neighbours. Each add_ function adds one kind of fault.
#include <algorithm>

#include "base/integers.hpp"
#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

// What happens to x and dy, or to one of them.
struct Which {
  bool x, dy;
  const char *are, *names;
};
constexpr Which kWhich[] = {{true, true, "x and dy are ", "input and out_backprop"},
                            {true, false, "x alone is ", "input"},
                            {false, true, "dy alone is ", "out_backprop"}};

// Adds a fault whose tensors read as set(tensor, of_x) says, where that returns true.
template <typename Text, typename Set>
void add_of_tensors(FaultList& to, const std::string& name, const char* cause, bool rare,
                    const Text& text, const Set& set) {
  for (const Which& which : kWhich) {
    Reading reading = to.plain;
    bool fits = true;
    for (const bool of_x : {true, false}) {
      if (of_x ? which.x : which.dy) fits = set(reading.tensor(of_x), of_x) && fits;
    }
    if (fits) to.add(name, text(which, reading), cause, reading, rare);
  }
}

using Scale = std::function<void(TensorReading&, const Facts::Largest&, const TreatmentKind&)>;

void add_treatment(FaultList& to, const Facts& facts, const TreatmentKind& kind,
                   const std::string& scaled, const Scale& scale) {
  const std::string after = scaled + " before they are multiplied";
  const auto treat = [&](TensorReading& t, bool of_x, const TreatmentKind& by) {
    t.treatment = by.treatment;
    if (scale) scale(t, of_x ? facts.x : facts.dy, by);
    return true;
  };
  const auto text = [&](const Which& which, const Reading&) {
    return cat(which.are, kind.text, after);
  };
  add_of_tensors(to, kind.fault, kind.cause, kind.rare, text,
                 [&](TensorReading& t, bool of_x) { return treat(t, of_x, kind); });
  // 8-bit training has x in e4m3 and dy in e5m2, scaled alike.
  if (kind.treatment != Treatment::e4m3) return;
  Reading mixed = to.plain;
  treat(mixed.x, true, kind);
  treat(mixed.dy, false,
        *std::ranges::find(treatments(), Treatment::e5m2, &TreatmentKind::treatment));
  to.add(kind.fault, cat(kWhich[0].are, kind.text, " and e5m2", after), kind.cause, mixed, true);
}

bool has_scale(const TreatmentKind& kind) { return kind.bits > 0 && kind.bits < 5; }

// Numbers that have a scale for each of `each`; blocks have so many.
struct Scales {
  Scaled by;
  std::string each;
  std::int64_t block = 0;
  bool power = false, e4m3 = false;  // scales are powers of two, or numbers of that type
};

// Adds a type with scales: of the largest number to the type's.
void add_scaled(FaultList& to, const Facts& facts, const TreatmentKind& kind, const Scales& s) {
  const char* const scale = s.power  ? "a power of two as scale (MX)"
                            : s.e4m3 ? "a scale in e4m3 (NVFP4)"
                                     : "a scale";
  add_treatment(to, facts, kind, cat(", with ", scale, " for each ", s.each),
                [&](TensorReading& tensor, const Facts::Largest& largest, const TreatmentKind& by) {
                  tensor.by = s.by;
                  tensor.block = s.block;
                  tensor.power = s.power;
                  tensor.parameter = s.block > 0 ? by.most : largest.all / by.most;
                  if (s.by == Scaled::channels) tensor.scales = largest.channels;
                  if (s.by == Scaled::images) tensor.scales = largest.images;
                  if (s.e4m3) tensor.scales = {largest.all / 448};
                  // A channel of zeros needs none.
                  for (double& own : tensor.scales) own = own > 0 ? own / by.most : 1;
                });
}

void add_treatments(FaultList& to, const Facts& facts) {
  for (const TreatmentKind& kind : treatments()) {
    if (!changes(kind, to.pb.dtype)) continue;
    // Floats of 8 bits are used with a scale, shorter ones and whole numbers never without.
    if (!has_scale(kind) || kind.exponent < -2) add_treatment(to, facts, kind, "", nullptr);
    if (!has_scale(kind) || !(facts.x.all > 0 && facts.dy.all > 0)) continue;
    add_scaled(to, facts, kind, {Scaled::tensor, "tensor"});
    add_scaled(to, facts, kind, {Scaled::channels, "channel"});
    add_scaled(to, facts, kind, {Scaled::images, "image"});
  }
}

// Adds wide numbers as sums of short ones: so many bits below the largest number of a channel.
void add_slices(FaultList& to, const Facts& facts) {
  for (const int bits : {14, 16, 21, 24, 28, 32, 35, 40, 42, 48, 49}) {
    if (std::ldexp(1.0, -bits) <= unit_roundoff(to.pb.dtype)) return;
    const std::string text = cat("cut off ", bits, " bits below the largest of each channel");
    add_treatment(to, facts,
                  {.treatment = Treatment::whole_cut,
                   .text = text.c_str(),
                   .cause = "float64 or float32 by slices of integers (Ozaki's scheme)",
                   .rare = true},
                  "",
                  [&](TensorReading& tensor, const Facts::Largest& largest, const TreatmentKind&) {
                    tensor.by = Scaled::channels;
                    tensor.scales = largest.channels;
                    for (double& s : tensor.scales) {
                      s = s > 0 ? std::exp2(std::ceil(std::log2(s)) - bits) : 1;
                    }
                  });
  }
}

void add_products(FaultList& to) {
  const auto add = [&](Treatment product, const char* name, const char* text, const char* cause) {
    Reading reading = to.plain;
    reading.product = product;
    to.add(name, text, cause, reading, product != Treatment::flushed);
  };
  add(Treatment::flushed, "subnormals_flushed",
      "products are flushed to 0 where they are subnormal", "-ftz=true, or TensorFlow's CPU ops");
  add(Treatment::bf16, "product_precision",
      "products are rounded to bfloat16 before they are added", "a multiplication in bfloat16");
  add(Treatment::f16, "product_precision", "products are rounded to float16 before they are added",
      "a multiplication in float16 (__hmul2)");
  if (unit_roundoff(to.pb.dtype) >= 0x1p-17) return;
  add(Treatment::bf16_three, "input_precision",
      "x and dy are split into two bfloat16 numbers each, and the product of the lower ones is "
      "left out",
      "three products of bfloat16 numbers (bf16x3) for one of float32");
}

// Adds images that are others', of x and of dy; of x alone where only the order of both matters.
void add_others(FaultList& to, const std::string& before, const std::string& after, bool of_each,
                const Fault::Map& from) {
  for (const bool x : {true, false}) {
    if (!x && !of_each) break;
    Reading reading = to.plain;
    for (std::int64_t n = 0; n < to.pb.N; ++n) reading.tensor(x).images.push_back(from(n));
    to.add("image_order", cat(before, x ? "input" : "out_backprop", after),
           "an offset of the batch that is missing or one off", reading, true);
  }
}

void add_images(FaultList& to) {
  const std::int64_t N = to.pb.N;
  const char* const for_all = " is taken for all images";
  add_others(to, "image 0 of ", for_all, true, [](std::int64_t) { return 0; });
  add_others(to, "the last image of ", for_all, true, [N](std::int64_t) { return N - 1; });
  for (const std::int64_t by : {-1, 1}) {
    const std::string off = cat(" is one image ", by < 0 ? "behind" : "ahead");
    add_others(to, "", off, false, [N, by](std::int64_t n) { return (n + by + N) % N; });
    add_others(to, "", cat(off, ", and its ", by < 0 ? "first" : "last", " image is read twice"),
               true,
               [N, by](std::int64_t n) { return std::clamp<std::int64_t>(n + by, 0, N - 1); });
  }
  for (const std::int64_t parts : {2, 3, 4, 8}) {
    const std::int64_t by = ceil_div(N, parts);
    add_others(to, "", cat(" begins again at image 0 after every ", by, " images"), true,
               [by](std::int64_t n) { return n % by; });
  }
}

// Adds memory that is taken for an order, or turned to it and then taken for what it was.
void add_order(FaultList& to, const std::string& layout, bool turned, bool rare = false) {
  const char* const cause = rare ? "a layout of a library's own: oneDNN's blocks, or CHWN"
                                 : "a wrong data format, or a transposition that is missing";
  const auto text = [&](const Which& which, const Reading& reading) {
    const std::string& name = (which.x ? reading.x : reading.dy).order->name;
    return cat("the memory of ", which.names, " is ", turned ? "turned to " : "taken for ", name,
               turned ? " and then taken for " : ", not ", data_format_name(to.pb));
  };
  add_of_tensors(to, "tensor_layout", cause, rare, text, [&](TensorReading& t, bool of_x) {
    t.order = tensor_order(to.pb, of_x, layout);
    t.turned = turned;
    return t.order.has_value();
  });
}

void add_orders(FaultList& to) {
  const bool last = to.pb.channels_last;
  for (const bool turned : {false, true}) {
    add_order(to, last ? "NCHW" : "NHWC", turned);
    for (const int block : {16, 8, 4, 32}) add_order(to, cat("nChw", block, "c"), turned, true);
    if (to.pb.N > 1) add_order(to, "CHWN", turned, true);
  }
  add_order(to, last ? "NWHC" : "NCWH", false);
}

void add_parts(FaultList& to, const Axes& axes, const std::string& what, std::int64_t least,
               std::array<std::int64_t, 3> Reading::*cut, std::int64_t size) {
  Reading reading = to.plain;
  for (const std::size_t a : axes) {
    if (std::min(to.pb.axis[a].in, to.pb.axis[a].out) < least) return;
    (reading.*cut)[a] = size;
  }
  for (const auto& [halo, taken, of] : {std::tuple{Halo::zeros, "zeros", "its neighbours'"},
                                        {Halo::edge, "its own edge", "its neighbours'"},
                                        {Halo::zeros_before, "zeros", "the part before's"},
                                        {Halo::zeros_behind, "zeros", "the part behind's"}}) {
    reading.halo = halo;
    to.add("halo_missing",
           cat("out_backprop is summed in ", what, " of ", axis_names(axes), ", and each takes ",
               taken, " for what it needs of ", of, " input"),
           "spatial shards or tiles whose halo is not exchanged", reading, true);
  }
}

// Adds parts of the image that do not see the neighbour's rows of x: slabs, and tiles.
void add_halos(FaultList& to) {
  const auto padded = [](const SpatialAxis& a) {
    return std::min(a.in, a.out) > 1 && (a.taps > 1 || a.stride != 1);
  };
  for (const Axes& axes : subsets(to.pb, padded)) {
    for (const std::int64_t count : {2, 3, 4, 8}) {
      add_parts(to, axes, cat(count, " slabs"), count, &Reading::parts, count);
    }
    for (const std::int64_t tile : {4, 8, 16, 32}) {
      add_parts(to, axes, cat("tiles of ", tile), tile + 1, &Reading::tiles, tile);
    }
  }
}

}  // namespace

std::vector<Fault> roundings(const WgradProblem& problem) {
  FaultList all = {problem};
  for (const TreatmentKind& kind : treatments()) {
    if (has_scale(kind) || !changes(kind, problem.dtype)) continue;
    add_treatment(all, {}, kind, "", nullptr);
  }
  add_products(all);
  std::erase_if(all.list, [](const Fault& fault) { return !rounds_inputs(fault.reading); });
  return std::move(all.list);
}

std::vector<Fault> block_scales(const WgradProblem& pb, const Facts& facts) {
  FaultList to = {pb};
  const auto add = [&](const Scales& scales) {
    for (const TreatmentKind& kind : treatments()) {
      if (!has_scale(kind) || !changes(kind, pb.dtype)) continue;
      add_scaled(to, facts, kind, scales);
      if (scales.power || kind.treatment != Treatment::e2m1) continue;
      add_scaled(to, facts, kind, {scales.by, scales.each, scales.block, false, true});
    }
  };
  for (const std::int64_t size : {16, 32, 64, 128}) {
    for (const bool power : {true, false}) {
      if (size == 16 || size < 2 * std::max(pb.C, pb.K)) {
        add({Scaled::channel_blocks, cat(size, " channels of a pixel"), size, power});
      }
      if (size < 2 * term_count(pb)) {
        add({Scaled::pixel_blocks, cat(size, " pixels of a channel"), size, power});
      }
    }
  }
  return std::move(to.list);
}

void add_faults_of_inputs(FaultList& to, const Facts& facts) {
  add_orders(to);
  add_treatments(to, facts);
  if (facts.x.all > 0 && facts.dy.all > 0) add_slices(to, facts);
  add_products(to);
  if (to.pb.N > 1) add_images(to);
  add_halos(to);
}

}  // namespace convgrad::diagnosis
