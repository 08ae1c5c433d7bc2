// faults_of_inputs.cpp - see faults.hpp: images that are others', and numbers that are not what
// they were. Each add_ function adds one kind of fault.
#include <algorithm>

#include "base/integers.hpp"
#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

constexpr const char* kBatchOffset = "an offset of the batch that is missing or one off";

class InputFaults : FaultList {
 public:
  InputFaults(const WgradProblem& problem, const Facts& facts)
      : FaultList(problem), facts_(facts) {}

  std::vector<Fault> take() {
    add_treatments();
    add_products();
    if (pb_.N > 1) add_images();
    add_strides();
    return std::move(list_);
  }

 private:
  using Scale = std::function<void(TensorReading&, const Facts::Largest&)>;

  void add_treatment(const TreatmentKind& kind, const std::string& scaled, const Scale& scale) {
    for (const auto& [x, dy, what] :
         {std::tuple{true, true, "x and dy are "}, std::tuple{true, false, "x alone is "},
          std::tuple{false, true, "dy alone is "}}) {
      Reading reading = plain_;
      for (const bool of_x : {true, false}) {
        if (!(of_x ? x : dy)) continue;
        TensorReading& tensor = reading.tensor(of_x);
        tensor.treatment = kind.treatment;
        if (scale) scale(tensor, of_x ? facts_.x : facts_.dy);
      }
      add_reading(kind.fault, cat(what, kind.text, scaled, " before they are multiplied"),
                  kind.cause, reading, kind.rare);
    }
  }

  // Adds types of 8 bits with scales: of the largest number to the type's, or of two for each
  // block.
  void add_scaled(const TreatmentKind& kind) {
    add_treatment(kind, ", with a scale for each tensor",
                  [&](TensorReading& tensor, const Facts::Largest& largest) {
                    tensor.parameter = largest.all / kind.most;
                  });
    for (const Scaled by : {Scaled::channels, Scaled::images}) {
      const bool channels = by == Scaled::channels;
      add_treatment(kind, cat(", with a scale for each ", channels ? "channel" : "image"),
                    [&](TensorReading& tensor, const Facts::Largest& largest) {
                      tensor.by = by;
                      tensor.scales = channels ? largest.channels : largest.images;
                      // A channel of zeros needs none.
                      for (double& s : tensor.scales) s = s > 0 ? s / kind.most : 1;
                    });
    }
    if (kind.bits < 3) return;
    for (const Scaled by : {Scaled::channel_blocks, Scaled::pixel_blocks}) {
      // Blocks of pixels that lie in two images are not looked for.
      const bool whole = pixels_of(extents_of(pb_, true)) % kScaleBlock == 0 &&
                         pb_.out_pixels() % kScaleBlock == 0;
      if (by == Scaled::pixel_blocks && !whole) continue;
      add_treatment(kind,
                    cat(", with a scale for each 32 ", by == Scaled::channel_blocks
                                                           ? "channels of a pixel (MX)"
                                                           : "pixels of a channel (MX)"),
                    [&](TensorReading& tensor, const Facts::Largest&) {
                      tensor.by = by;
                      tensor.parameter = std::ilogb(kind.most);
                    });
    }
  }

  void add_treatments() {
    for (const TreatmentKind& kind : treatments()) {
      if (!changes(kind, pb_.dtype)) continue;
      // Types of 8 bits are used with a scale, int8 never without.
      const bool scaled = kind.bits > 0 && kind.bits < 5;
      const bool always =
          kind.treatment == Treatment::int8 || kind.treatment == Treatment::int8_wide;
      if (!always) add_treatment(kind, "", nullptr);
      if (scaled && facts_.x.all > 0 && facts_.dy.all > 0) add_scaled(kind);
    }
  }

  void add_products() {
    struct Row {
      Product product;
      const char* name;
      const char* text;
      const char* cause;
    };
    const Row rows[] = {
        {Product::flushed, "subnormals_flushed",
         "products are flushed to 0 where they are subnormal",
         "-ftz=true, or TensorFlow's CPU ops"},
        {Product::bf16, "product_precision",
         "products are rounded to bfloat16 before they are added", "a multiplication in bfloat16"},
        {Product::f16, "product_precision", "products are rounded to float16 before they are added",
         "a multiplication in float16 (__hmul2)"},
        {Product::without_low, "input_precision",
         "x and dy are split into two bfloat16 numbers each, and the product of the lower ones is "
         "left out",
         "three products of bfloat16 numbers (bf16x3) for one of float32"}};
    for (const Row& row : rows) {
      if (row.product == Product::without_low && unit_roundoff(pb_.dtype) >= 0x1p-17) continue;
      Reading reading = plain_;
      reading.product = row.product;
      add_reading(row.name, row.text, row.cause, reading, row.product != Product::flushed);
    }
  }

  void add_starts(bool x, const std::vector<std::int64_t>& starts, const std::string& text,
                  const char* cause) {
    Reading reading = plain_;
    reading.tensor(x).starts = starts;
    add_reading("image_order", text, cause, reading, true);
  }

  // Adds images that are others', of x and of dy.
  void add_images_of_each(const std::string& before, const std::string& after,
                          const Fault::Map& from) {
    for (const bool x : {true, false}) {
      add_starts(x, image_starts(pb_, x, from), cat(before, tensor_name(x), after), kBatchOffset);
    }
  }

  // If only the order of both matters, the fault is said of input.
  void add_images_of_input(const std::string& text, const char* cause, const Fault::Map& from) {
    add_starts(true, image_starts(pb_, true, from), text, cause);
  }

  void add_images() {
    const std::int64_t N = pb_.N;
    add_images_of_each("image 0 of ", " is taken for all images", [](std::int64_t) { return 0; });
    add_images_of_each("the last image of ", " is taken for all images",
                       [N](std::int64_t) { return N - 1; });
    for (const std::int64_t by : {-1, 1}) {
      const std::string text = cat("input is one image ", by < 0 ? "behind" : "ahead");
      add_images_of_input(text, kBatchOffset, [N, by](std::int64_t n) { return (n + by + N) % N; });
      add_images_of_input(
          text + ", and none of the first is left", kBatchOffset,
          [N, by](std::int64_t n) { return n + by >= 0 && n + by < N ? n + by : kNowhere; });
      add_images_of_each(
          "",
          cat(" is one image ", by < 0 ? "behind" : "ahead", ", and its ",
              by < 0 ? "first" : "last", " image is read twice"),
          [N, by](std::int64_t n) { return std::clamp<std::int64_t>(n + by, 0, N - 1); });
    }
    for (const std::int64_t parts : {2, 3, 4, 8}) {
      const std::int64_t by = ceil_div(N, parts);
      add_images_of_each("", cat(" begins again at image 0 after every ", by, " images"),
                         [by](std::int64_t n) { return n % by; });
    }
  }

  // Adds images at a wrong distance in memory: products of extents that are another's.
  void add_strides() {
    if (pb_.N < 2) return;
    std::int64_t padded = 1;
    for (const SpatialAxis& axis : pb_.axis) padded *= axis.in + axis.pad_before + axis.pad_after;
    for (const bool x : {true, false}) {
      const Extents image = extents_of(pb_, x);
      const std::int64_t pixels = pixels_of(image), channels = channels_of(pb_, x);
      const std::int64_t other_pixels = pixels_of(extents_of(pb_, !x));
      const std::int64_t other_channels = channels_of(pb_, !x);
      // These are the distances of a kernel that takes the other tensor's extents, a group's
      // channels, one channel or a padded image.
      const std::int64_t others[] = {other_pixels * channels,
                                     pixels * other_channels,
                                     other_pixels * other_channels,
                                     pixels * channels / pb_.groups,
                                     pixels,
                                     padded * channels};
      for (const std::int64_t by : others) {
        if (by < 1 || by == pixels * channels) continue;
        std::vector<std::int64_t> starts;
        for (std::int64_t n = 0; n < pb_.N; ++n) starts.push_back(n * by);
        add_starts(x, starts,
                   cat("images of ", tensor_name(x), " begin every ", by, " elements, not every ",
                       pixels * channels),
                   "a distance of images from another tensor's extents");
      }
    }
  }

  const Facts& facts_;
};

}  // namespace

std::vector<Fault> roundings(const WgradProblem& problem) {
  std::vector<Fault> result = faults_of_inputs(problem, {});
  std::erase_if(result, [](const Fault& fault) {
    const Treatment x = fault.reading.x.treatment, dy = fault.reading.dy.treatment;
    const bool usual = !fault.rare || x == Treatment::tf32_even || dy == Treatment::tf32_even;
    return !rounds_inputs(fault.reading) || !usual;
  });
  return result;
}

std::vector<Fault> faults_of_inputs(const WgradProblem& problem, const Facts& facts) {
  return InputFaults(problem, facts).take();
}

}  // namespace convgrad::diagnosis
