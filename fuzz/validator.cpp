// validator.cpp - shapes and attributes of all kinds through make_problem() and make_plan().
//
// A request that is taken must be what the definition says, computed here once more in 128 bits;
// the schedule of such a problem must cover it. Whatever is wrong must be one Error.
#include <algorithm>
#include <optional>

#include "engine/plan.hpp"
#include "fuzz.hpp"
#include "problem/draft.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;

namespace {

__extension__ typedef __int128 Wide;
using Numbers = std::vector<std::int64_t>;

// Extents and attributes: mostly small, sometimes where integers end.
std::int64_t number(Choices& choices) {
  static constexpr std::array<std::int64_t, 16> kEdges = {-1,
                                                          0,
                                                          1,
                                                          512,
                                                          513,
                                                          65535,
                                                          65536,
                                                          std::int64_t{1} << 31,
                                                          (std::int64_t{1} << 31) + 1,
                                                          (std::int64_t{1} << 31) - 1,
                                                          std::int64_t{1} << 32,
                                                          (std::int64_t{1} << 40) + 3,
                                                          std::int64_t{1} << 62,
                                                          INT64_MAX,
                                                          INT64_MAX - 1,
                                                          INT64_MIN};
  const std::int64_t kind = choices.byte();
  if (kind < 200) return kind % 8 + 1;
  if (kind < 240) return choices.of(kEdges);
  return kind < 250 ? choices.between(0, 255) : choices.word();
}

Numbers numbers(Choices& choices, std::int64_t most) {
  Numbers result(static_cast<std::size_t>(choices.between(0, most)));
  for (std::int64_t& value : result) value = number(choices);
  return result;
}

std::string word(Choices& choices, std::initializer_list<const char*> known) {
  const std::int64_t index = choices.between(0, static_cast<std::int64_t>(known.size()) + 1);
  if (index < static_cast<std::int64_t>(known.size())) return known.begin()[index];
  return index == static_cast<std::int64_t>(known.size()) ? "" : choices.text(12);
}

WgradAttributes attributes(Choices& choices, std::size_t rank) {
  WgradAttributes a;
  a.op = word(choices, {"conv2d", "depthwise", "conv3d", "conv1d", "Conv3DBackpropFilterV2"});
  const auto list = [&](bool often) {
    if (!often && choices.one_in(2)) return Numbers{};
    Numbers values = numbers(choices, 12);
    // Mostly the right number of them.
    if (!choices.one_in(8)) values.resize(choices.one_in(2) ? rank : 1, number(choices));
    return values;
  };
  switch (choices.between(0, 7)) {
    case 0:
      a.filter_sizes = numbers(choices, 6);
      break;
    case 1:
      a.filter_like = numbers(choices, 6);
      break;
    default:
      a.kernel = list(true);
  }
  a.strides = list(false);
  a.dilations = list(false);
  a.padding = word(choices, {"SAME", "VALID", "EXPLICIT", "same", "SAME_LOWER", "SAME_UPPER"});
  if (choices.one_in(3)) a.explicit_paddings = numbers(choices, 12);
  if (choices.one_in(3)) a.explicit_paddings.resize(2 * rank);
  a.data_format = word(choices, {"", "NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"});
  a.filter_format =
      word(choices, {"", "", "HWIO", "OIHW", "OHWI", "DHWIO", "OIDHW", "ODHWI", "WIO", "OIW"});
  if (choices.one_in(4)) a.groups = number(choices);
  if (choices.one_in(8)) a.out_dtype = word(choices, {"float16", "bf16", "f4", "double"});
  return a;
}

// One axis by the definition; explicit padding may be below 0, which crops.
void check_axis(const SpatialAxis& axis, const WgradAttributes& a, bool empty) {
  const Wide reach = Wide(axis.taps - 1) * axis.dilation + 1;
  require(axis.in >= 0 && axis.out >= 0 && axis.taps >= 1 && axis.stride >= 1 && axis.dilation >= 1,
          "the range of an axis");
  require(!a.explicit_paddings.empty() || (axis.pad_before >= 0 && axis.pad_after >= 0),
          "padding that crops and was not asked for");
  const std::string padding = making::upper(a.padding);
  if (padding.starts_with("SAME")) {
    require(axis.out == (Wide(axis.in) + axis.stride - 1) / axis.stride, "SAME's extent");
    const Wide total = std::max<Wide>(Wide(axis.out - 1) * axis.stride + reach - axis.in, 0);
    if (axis.out > 0) require(Wide(axis.pad_before) + axis.pad_after == total, "SAME's padding");
    const bool lower = padding == "SAME_LOWER" && !empty;
    const std::int64_t uneven = (axis.pad_after - axis.pad_before) * (lower ? -1 : 1);
    require(uneven == 0 || uneven == 1, "the sides of SAME's padding");
    return;
  }
  const Wide room = Wide(axis.in) + axis.pad_before + axis.pad_after - reach;
  if (axis.out == 0) {
    require(room < 0, "an output that is empty");
  } else {
    require(room >= 0 && room / axis.stride + 1 == axis.out, "VALID's extent");
  }
}

void check_problem(const WgradProblem& pb, const TensorInfo& x, const TensorInfo& dy,
                   const WgradAttributes& a) {
  for (const SpatialAxis& axis : pb.axis) {
    if (&axis - pb.axis.data() < 3 - pb.spatial_rank()) continue;
    check_axis(axis, a, std::ranges::count(x.shape, 0) > 0);
  }
  Wide x_count = 1, dy_count = 1;
  for (const std::int64_t n : x.shape) x_count *= n;
  for (const std::int64_t n : dy.shape) dy_count *= n;
  require(pb.x_count() == x_count && pb.dy_count() == dy_count, "the number of elements");
  require(pb.groups >= 1 && pb.C % pb.groups == 0 && pb.K % pb.groups == 0, "the groups");
  Wide dw_count = 1;
  for (const std::int64_t n : dw_shape(pb)) {
    require(n >= 0, "an extent of the gradient");
    dw_count *= n;
  }
  require(pb.dw_count() == dw_count && dw_count <= INT64_MAX / 16, "the gradient's size");
  require(flop_count(pb) >= 0 && term_count(pb) >= 0, "the work");
  require_line(describe(pb));
  require(make_problem(parse_problem(describe(pb))) == pb, "a line that is read back",
          describe(pb));
  require(out_backprop_shape(x, a, pb.K) == dy.shape, "out_backprop_shape()", describe(pb));
  if (a.kernel.empty()) {
    require(out_backprop_shape(x, a) == dy.shape, "out_backprop_shape() by the filter");
  }
}

bool inside(const PixelBox& box, const std::array<std::int64_t, 4>& extent) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (box[i].begin < 0 || box[i].begin >= box[i].end || box[i].end > extent[i]) return false;
  }
  return true;
}

// The first and the last box of everything, and that they cover the whole.
void check_schedule(const Plan& plan) {
  const WgradProblem& pb = plan.problem;
  const ChunkGrid& chunks = plan.schedule.chunks;
  const bool empty = term_count(pb) == 0 || pb.dw_count() == 0;
  require((chunks.count == 0) == empty, "chunks of an empty problem");
  require(plan.schedule.slices.count() >= 1 && plan.schedule.slices.interleave >= 1, "the slices");
  require(plan.memory.total() <= plan.memory_limit_bytes, "a plan over its limit");
  require(plan.memory.total() >= 0 && plan.memory.blocks >= 0 && plan.memory.partials >= 0,
          "memory below 0");
  require_line(describe(plan));
  if (chunks.count == 0) return;
  std::int64_t covered = 0;
  for (const std::int64_t index : {std::int64_t{0}, chunks.count - 1}) {
    const PixelBox box = chunks.box(index);
    require(inside(box, chunks.extent), "a chunk", describe(pb));
    std::int64_t pixels = 1;
    for (const Range& range : box) pixels *= range.size();
    require(pixels <= kMaxLongChunkPixels, "the pixels of a chunk");
    covered = box[0].end;
  }
  require(covered == pb.N, "the last chunk");
  const BlockGrid& blocks = plan.schedule.blocks;
  require(blocks.count >= 1, "the blocks");
  require(blocks.chunk_range(0).begin == 0, "the first chunk of the first block");
  require(blocks.chunk_range(blocks.count - 1).end == chunks.count, "the last chunk of the last");
  for (const std::int64_t index : {std::int64_t{0}, blocks.count - 1}) {
    const PixelBox box = blocks.box(index);
    require(inside(box, chunks.extent), "a block", describe(pb));
    const std::array<Range, 3> input = input_box(pb, box);
    for (std::size_t i = 0; i < 3; ++i) {
      require(
          0 <= input[i].begin && input[i].begin <= input[i].end && input[i].end <= pb.axis[i].in,
          "the input of a block", describe(pb));
    }
  }
}

// Memory is a quarter of a GiB, so that no plan makes millions of tiles.
void plan_it(const WgradProblem& pb, Choices& choices) {
  static const Machine machine = [] {
    Machine result = this_machine();
    result.memory_bytes = std::int64_t{256} << 20;
    result.threads = 4;
    return result;
  }();
  PlanOptions options;
  const auto kernel = static_cast<std::size_t>(choices.byte()) % (kernels().size() + 1);
  if (kernel < kernels().size()) options.algorithm = kernels()[kernel].name;
  options.threads = static_cast<int>(choices.between(0, 9));
  if (choices.one_in(2)) options.block_bytes = std::int64_t{1} << choices.between(0, 40);
  if (choices.one_in(4)) options.memory_limit_bytes = std::int64_t{1} << choices.between(20, 62);
  const bool check = choices.one_in(4);
  if (choices.one_in(8)) options.backend = Backend::reference;
  options.in_memory = choices.one_in(4);
  refused(0, "", [&] {
    if (check) options.check_bytes = reference_bytes(pb);  // refuses what integers cannot count
    check_schedule(make_plan(pb, machine, options));
  });
}

void fit(TensorInfo& dy, const TensorInfo& x, const WgradAttributes& a, Choices& choices) {
  refused(0, "", [&] {
    const std::int64_t K = a.kernel.empty() ? 0 : choices.between(0, 24);
    dy.shape = out_backprop_shape(x, a, a.kernel.empty() ? std::nullopt : std::optional(K));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using enum DType;
  static constexpr std::array<DType, 8> kDTypes = {f32,  f16,    bf16,     f64,
                                                   e5m2, e4m3fn, e4m3fnuz, e5m2fnuz};
  Choices choices(data, size);
  TensorInfo x{"x.npy", choices.of(kDTypes), {}}, dy{"dy.npy", x.dtype, {}};
  const std::size_t rank = choices.one_in(4) ? 3 : choices.one_in(4) ? 1 : 2;
  x.shape = numbers(choices, 6);
  if (!choices.one_in(8)) x.shape.resize(rank + 2, number(choices));
  const WgradAttributes a = attributes(choices, rank);
  dy.shape = numbers(choices, 6);
  // Mostly the out_backprop that fits, so that more than the first check is seen.
  if (!choices.one_in(6)) fit(dy, x, a, choices);
  if (choices.one_in(16)) dy.dtype = choices.of(kDTypes);
  std::optional<WgradProblem> problem;
  refused(0, "", [&] { problem = make_problem(x, dy, a); });
  if (!problem) {
    refused(0, "", [&] { make_problem(parse_problem("conv2d n2 " + choices.text(80))); });
    return 0;
  }
  check_problem(*problem, x, dy, a);
  plan_it(*problem, choices);
  return 0;
}
