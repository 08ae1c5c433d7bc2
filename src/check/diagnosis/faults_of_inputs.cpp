// faults_of_inputs.cpp - see faults.hpp: images that are others', and numbers that are not what
// they were. Each add_ function adds one kind of fault.
#include <algorithm>

#include "base/integers.hpp"
#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

using Scale = std::function<void(TensorReading&, const Facts::Largest&)>;

void add_treatment(FaultList& to, const Facts& facts, const TreatmentKind& kind,
                   const std::string& scaled, const Scale& scale) {
  for (const auto& [x, dy, what] :
       {std::tuple{true, true, "x and dy are "}, std::tuple{true, false, "x alone is "},
        std::tuple{false, true, "dy alone is "}}) {
    Reading reading = to.plain;
    for (const bool of_x : {true, false}) {
      if (!(of_x ? x : dy)) continue;
      TensorReading& tensor = reading.tensor(of_x);
      tensor.treatment = kind.treatment;
      if (scale) scale(tensor, of_x ? facts.x : facts.dy);
    }
    to.add(kind.fault, cat(what, kind.text, scaled, " before they are multiplied"), kind.cause,
           reading, kind.rare);
  }
}

// Adds types of 8 bits with scales: of the largest number to the type's, or of two for each block.
void add_scaled(FaultList& to, const Facts& facts, const TreatmentKind& kind) {
  // Blocks of pixels that lie in two images are not looked for.
  const bool whole = pixels_of(extents_of(to.pb, true)) % kScaleBlock == 0 &&
                     to.pb.out_pixels() % kScaleBlock == 0;
  for (const auto& [by, each] : {std::pair{Scaled::tensor, "tensor"},
                                 {Scaled::channels, "channel"},
                                 {Scaled::images, "image"},
                                 {Scaled::channel_blocks, "32 channels of a pixel (MX)"},
                                 {Scaled::pixel_blocks, "32 pixels of a channel (MX)"}}) {
    const bool blocks = by >= Scaled::channel_blocks;
    if ((blocks && kind.bits < 3) || (by == Scaled::pixel_blocks && !whole)) continue;
    add_treatment(to, facts, kind, cat(", with a scale for each ", each),
                  [&, by = by](TensorReading& tensor, const Facts::Largest& largest) {
                    tensor.by = by;
                    tensor.parameter = blocks ? std::ilogb(kind.most) : largest.all / kind.most;
                    if (by == Scaled::channels) tensor.scales = largest.channels;
                    if (by == Scaled::images) tensor.scales = largest.images;
                    // A channel of zeros needs none.
                    for (double& s : tensor.scales) s = s > 0 ? s / kind.most : 1;
                  });
  }
}

void add_treatments(FaultList& to, const Facts& facts) {
  for (const TreatmentKind& kind : treatments()) {
    if (!changes(kind, to.pb.dtype)) continue;
    // Types of 8 bits are used with a scale, int8 never without.
    const bool scaled = kind.bits > 0 && kind.bits < 5;
    const bool always = kind.treatment == Treatment::int8 || kind.treatment == Treatment::int8_wide;
    if (!always) add_treatment(to, facts, kind, "", nullptr);
    if (scaled && facts.x.all > 0 && facts.dy.all > 0) add_scaled(to, facts, kind);
  }
}

void add_products(FaultList& to) {
  struct Row {
    Product product;
    const char* name;
    const char* text;
    const char* cause;
  };
  const Row rows[] = {
      {Product::flushed, "subnormals_flushed", "products are flushed to 0 where they are subnormal",
       "-ftz=true, or TensorFlow's CPU ops"},
      {Product::bf16, "product_precision", "products are rounded to bfloat16 before they are added",
       "a multiplication in bfloat16"},
      {Product::f16, "product_precision", "products are rounded to float16 before they are added",
       "a multiplication in float16 (__hmul2)"},
      {Product::without_low, "input_precision",
       "x and dy are split into two bfloat16 numbers each, and the product of the lower ones is "
       "left out",
       "three products of bfloat16 numbers (bf16x3) for one of float32"}};
  for (const Row& row : rows) {
    if (row.product == Product::without_low && unit_roundoff(to.pb.dtype) >= 0x1p-17) continue;
    Reading reading = to.plain;
    reading.product = row.product;
    to.add(row.name, row.text, row.cause, reading, row.product != Product::flushed);
  }
}

void add_starts(FaultList& to, bool x, const std::vector<std::int64_t>& starts,
                const std::string& text, const char* cause) {
  Reading reading = to.plain;
  reading.tensor(x).starts = starts;
  to.add("image_order", text, cause, reading, true);
}

// Adds images that are others', of x and of dy; of x alone where only the order of both matters.
void add_others(FaultList& to, const std::string& before, const std::string& after, bool of_each,
                const Fault::Map& from) {
  for (const bool x : {true, false}) {
    if (!x && !of_each) break;
    add_starts(to, x, image_starts(to.pb, x, from), cat(before, tensor_name(x), after),
               "an offset of the batch that is missing or one off");
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
    add_others(to, "", off + ", and none of the first is left", false,
               [N, by](std::int64_t n) { return n + by >= 0 && n + by < N ? n + by : kNowhere; });
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

// Adds images at a wrong distance in memory: products of extents that are another's.
void add_strides(FaultList& to) {
  std::int64_t padded = 1;
  for (const SpatialAxis& axis : to.pb.axis) padded *= axis.in + axis.pad_before + axis.pad_after;
  for (const bool x : {true, false}) {
    const Extents image = extents_of(to.pb, x);
    const std::int64_t pixels = pixels_of(image), channels = channels_of(to.pb, x);
    const std::int64_t other_pixels = pixels_of(extents_of(to.pb, !x));
    const std::int64_t other_channels = channels_of(to.pb, !x);
    // These are the distances of a kernel that takes the other tensor's extents, a group's
    // channels, one channel or a padded image.
    const std::int64_t others[] = {other_pixels * channels,
                                   pixels * other_channels,
                                   other_pixels * other_channels,
                                   pixels * channels / to.pb.groups,
                                   pixels,
                                   padded * channels};
    for (const std::int64_t by : others) {
      if (by < 1 || by == pixels * channels) continue;
      std::vector<std::int64_t> starts;
      for (std::int64_t n = 0; n < to.pb.N; ++n) starts.push_back(n * by);
      add_starts(to, x, starts,
                 cat("images of ", tensor_name(x), " begin every ", by, " elements, not every ",
                     pixels * channels),
                 "a distance of images from another tensor's extents");
    }
  }
}

}  // namespace

std::vector<Fault> roundings(const WgradProblem& problem) {
  FaultList all = {problem};
  add_faults_of_inputs(all, {});
  std::erase_if(all.list, [](const Fault& fault) {
    const Treatment x = fault.reading.x.treatment, dy = fault.reading.dy.treatment;
    const bool usual = !fault.rare || x == Treatment::tf32_even || dy == Treatment::tf32_even;
    return !rounds_inputs(fault.reading) || !usual;
  });
  return std::move(all.list);
}

void add_faults_of_inputs(FaultList& to, const Facts& facts) {
  add_treatments(to, facts);
  add_products(to);
  if (to.pb.N < 2) return;
  add_images(to);
  add_strides(to);
}

}  // namespace convgrad::diagnosis
