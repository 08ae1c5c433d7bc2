// partials.cpp - finds sums that were rounded to a narrower type on the way: after each addition,
// or where the parts of a split sum are stored. Only sums that are added pixel by pixel, or in such
// parts, can be repeated.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"
#include "problem/schedule.hpp"

namespace convgrad::diagnosis {
namespace {

// So many splits, images of a group whose sums are added to a total, and parts of even sizes are
// tried: cuBLAS and cuDNN split by 2 to 32 or so. They bound the time.
constexpr std::int64_t kMostSplits = 256;
constexpr std::int64_t kMostGroup = 65;
constexpr std::int64_t kMostEven = 64;
constexpr std::size_t kMostBlock = 256;
// So many ways to cut and round a sum are tried, in bits.
constexpr double kSplitBits = 13;
constexpr std::size_t kFirstLook = 3;
// Of a few ways to round after each addition one repeats so many bits by chance once in 50 times.
constexpr double kSameBits = 8;
// A part may be a step off in so many of the entries that are wrong: where it lies near the middle
// of two numbers, which one in 2^13 parts of bfloat16 and 2^10 of float16 does by as much as
// float32 sums are off. Entries within kRightAnyway are right whatever is said of them.
constexpr double kMostSlips = 0.1, kRightAnyway = 3;

// A sum is rounded to a type after each addition.
struct NarrowSum {
  DType type;
  bool inputs = false, fused = false;  // x and dy are rounded to it too; the product is not
};

// Returns such a sum of the terms from begin to end.
double simulated(const Terms& terms, const NarrowSum& how, std::size_t begin = 0,
                 std::size_t end = SIZE_MAX) {
  double sum = 0;
  for (std::size_t i = begin; i < std::min(end, terms.x.size()); ++i) {
    // A tap outside x adds nothing, also where dy rounds to an infinity.
    if (terms.x[i] == 0 && std::isfinite(terms.dy[i])) continue;
    const double x = how.inputs ? rounded(how.type, terms.x[i]) : terms.x[i];
    const double dy = how.inputs ? rounded(how.type, terms.dy[i]) : terms.dy[i];
    const double next = how.fused ? std::fma(x, dy, sum) : sum + rounded(how.type, x * dy);
    sum = rounded(how.type, next);
  }
  return sum;
}

// Returns the types that sums may have been rounded to by mistake.
std::vector<DType> narrow_types(const WgradProblem& pb) {
  std::vector<DType> types = {DType::f16, DType::bf16};
  if (pb.dtype == DType::f64) types.push_back(DType::f32);
  return types;
}

std::vector<NarrowSum> variants(const WgradProblem& pb) {
  std::vector<DType> types = narrow_types(pb);
  types.push_back(accumulator_dtype(pb.dtype));
  std::vector<NarrowSum> result;
  for (const DType type : types) {
    for (const bool fused : {false, true}) {
      result.push_back({type, false, fused});
      if (unit_roundoff(type) > unit_roundoff(pb.dtype)) result.push_back({type, true, fused});
    }
  }
  return result;
}

bool same_bits(const Evidence& evidence, const Sample& sample, const NarrowSum& variant) {
  Squares steps;  // zeros and infinities have many causes
  for (std::size_t i = 0; i < sample.at.size(); ++i) {
    const double value = rounded(evidence.problem().out_dtype, simulated(sample.terms[i], variant));
    const double got = evidence.got(sample.at[i]);
    if (!(value == got || (std::isnan(value) && std::isnan(got)))) return false;
    const double off = (got - evidence.want(sample.at[i])) / rounding_step(variant.type, value);
    if (got != 0 && std::isfinite(off)) steps.add(off);
  }
  return bits_told(steps, kBeyondRounding) > kSameBits;
}

// A split sum is rounded in its parts, in these and in their sum after each, or in that sum alone.
enum class Stored : std::uint8_t { parts, both, total };

// A split says where the parts of a sum end.
struct Split {
  std::vector<std::int64_t> ends;
  std::string parts;  // "16 pixels each"
  DType type = DType::f16;
  Stored stored = Stored::parts;
};

// Lists splits of all pixels, each once: by images, rows and chunks, and by numbers of parts.
std::vector<Split> splits_of(const WgradProblem& pb) {
  const std::int64_t pixels = term_count(pb), image = pb.out_pixels();
  std::vector<Split> list;
  std::set<std::vector<std::int64_t>> seen;
  // Adds so many parts, of which part i ends before end(i + 1).
  const auto add = [&](std::int64_t count, const auto& end, const std::string& parts) {
    // Parts of one pixel are products, whose rounding is another fault.
    if (count < 2 || 2 * count > pixels) return;
    std::vector<std::int64_t> ends;
    for (std::int64_t i = 1; i <= count; ++i) ends.push_back(std::min(end(i), pixels));
    if (seen.insert(ends).second) list.push_back({ends, parts});
  };
  const auto add_chunks = [&](std::int64_t chunk, const std::string& parts) {
    const auto end = [&](std::int64_t i) { return i * chunk; };
    add(ceil_div(pixels, chunk), end, parts);
  };
  add_chunks(image, "each image");
  for (std::int64_t count = 2; count < std::min(pb.N, kMostGroup); ++count) {
    add_chunks(count * image, cat(count, " images each"));
  }
  add_chunks(pb.axis[2].out, "each row of pixels");
  for (std::int64_t chunk = 16; chunk <= 8192; chunk *= 2) {
    add_chunks(chunk, cat(chunk, " pixels each"));
  }
  // A block of one pixel makes numpy's array_split; those of an inner loop are powers of two.
  for (const std::int64_t block : {1, 64, 32, 128, 16}) {
    const std::int64_t blocks = ceil_div(pixels, block),
                       most = block == 1 ? kMostSplits : kMostEven;
    for (std::int64_t count = 2; count <= std::min(blocks, most); ++count) {
      const std::string whole = cat(" of whole blocks of ", block, " pixels");
      const std::string of = cat(count, " splits (split-K)", block == 1 ? "" : whole);
      const std::string evenly = block == 1 ? of + " of even sizes" : of;
      const auto even = [&](std::int64_t i) { return pixels * i / count; };
      const auto larger_first = [&](std::int64_t i) {
        return (blocks / count * i + std::min(i, blocks % count)) * block;
      };
      // Splits have equal chunks and a shorter last one, or are as even as can be.
      add_chunks(ceil_div(blocks, count) * block, of);
      if (block == 1) add(count, even, evenly);
      if (count <= kMostEven) add(count, larger_first, evenly);
    }
  }
  return list;
}

class Splitter {
 public:
  Splitter(const Judge& judge, const Sample& sample)
      : judge_(judge), evidence_(judge.evidence()), sample_(sample) {
    for (const Terms& terms : sample.terms) {
      std::vector<double>& sums = sums_.emplace_back(1);
      for (std::size_t i = 0; i < terms.x.size(); ++i) {
        sums.push_back(sums.back() + terms.x[i] * terms.dy[i]);
      }
    }
  }

  // A part that rounding takes over the middle between two numbers is a step off. Where that is
  // not rare, the scale has it.
  Expected predicted(const Split& split, std::size_t count) const {
    Expected result;
    for (std::size_t e = 0; e < count; ++e) {
      const double own = evidence_.scale(sample_.at[e]);
      const double part_error = own / std::sqrt(static_cast<double>(split.ends.size()));
      double sum = 0, square = 0, slips = 0;
      const auto store = [&](double value) {
        const double step = rounding_step(split.type, value);
        const double share = std::min(1.0, part_error / step);
        slips += share;
        square += share * step * step;
        return rounded(split.type, value);
      };
      std::int64_t begin = 0;
      for (const std::int64_t end : split.ends) {
        const double part =
            sums_[e][static_cast<std::size_t>(end)] - sums_[e][static_cast<std::size_t>(begin)];
        if (split.stored == Stored::total) {
          sum = store(sum + part);
        } else if (part != 0) {
          sum += store(part);
        }
        if (split.stored == Stored::both) sum = rounded(split.type, sum);
        begin = end;
      }
      result.values.push_back(sum);
      result.scales.push_back(slips > 2 * kMostSlips ? std::sqrt(own * own + square) : own);
    }
    return result;
  }

  std::optional<Finding> find() const {
    const WgradProblem& pb = evidence_.problem();
    for (Split& split : splits_of(pb)) {
      evidence_.stop_if_late();
      for (const DType type : narrow_types(pb)) {
        for (const Stored stored : {Stored::parts, Stored::both, Stored::total}) {
          split.type = type;
          split.stored = stored;
          const auto predict = [&](std::size_t count) { return predicted(split, count); };
          if (auto found = tried(predict, named(split), stored, type)) return found;
        }
      }
    }
    return std::nullopt;
  }

  // Finds products that are added in a narrow type some at a time: two by HFMA2.
  std::optional<Finding> find_blocks() const {
    const DType accumulator = accumulator_dtype(evidence_.problem().dtype);
    for (const NarrowSum& how : variants(evidence_.problem())) {
      if (how.type == accumulator) continue;
      for (std::size_t pixels = 2; pixels <= kMostBlock; pixels *= 2) {
        const Fit::Part part = {
            "low_precision_sums",
            cat("products are added in ", dtype_name(how.type), ", ", pixels,
                " pixels at a time, and these sums in ", dtype_name(accumulator)),
            pixels == 2 ? "__hfma2 on pairs" : "16-bit sums that go to a wider one at times", true};
        const auto predict = [&](std::size_t count) { return in_blocks(how, pixels, count); };
        if (auto found = tried(predict, part, Stored::parts, accumulator)) return found;
      }
    }
    return std::nullopt;
  }

 private:
  // Returns a finding if that explains the sample but for some slips. A few entries rule out most
  // ways to sum, which makes the many that are tried cheap.
  std::optional<Finding> tried(const std::function<Expected(std::size_t)>& predict,
                               const Fit::Part& part, Stored stored, DType type) const {
    Expected all = predict(std::min(kFirstLook, sample_.at.size()));
    if (without_slips(all).size() < all.values.size()) return std::nullopt;
    all = predict(sample_.at.size());
    bool bits = true, is_rounded = stored != Stored::parts;  // the total, as a whole
    Squares steps;
    const DType out = evidence_.problem().out_dtype;
    for (std::size_t e = 0; e < all.values.size(); ++e) {
      const double got = evidence_.got(sample_.at[e]);
      bits = bits && rounded(out, all.values[e]) == got;
      add_steps(evidence_, sample_.at[e], is_rounded ? type : out, steps);
    }
    const bool total = stored == Stored::total;
    const bool tells = bits_told(steps, kBeyondRounding) > kSplitBits + kLeastBits;
    if (bits && tells) {
      return finding(part, {}, total ? Certainty::bits : Certainty::match, sample_.at.size());
    }
    if (is_rounded && !tells) return std::nullopt;
    const auto wrong = std::ranges::count_if(
        sample_.at, [&](std::size_t at) { return evidence_.error(at) > kRightAnyway; });
    const Positions kept = without_slips(all);
    if (static_cast<double>(all.values.size() - kept.size()) >
        kMostSlips * static_cast<double>(wrong)) {
      return std::nullopt;
    }
    const auto fit = judge_.judge(kept, all, kSplitBits, false);
    if (!fit || !fit->parts.empty()) return std::nullopt;
    return finding(part, *fit, bits && total ? Certainty::bits : Certainty::match, kept.size());
  }

  // Returns the entries that are explained, and leaves theirs in front of the others.
  Positions without_slips(Expected& p) const {
    Positions kept;
    for (std::size_t e = 0; e < p.values.size(); ++e) {
      const std::size_t at = sample_.at[e];
      if (!evidence_.fits(at, p.values[e], p.scales[e]) && evidence_.error(at) > kRightAnyway) {
        continue;
      }
      p.values[kept.size()] = p.values[e];
      p.scales[kept.size()] = p.scales[e];
      kept.push_back(at);
    }
    return kept;
  }

  // Predicts by such sums of so many pixels each, which are added without a rounding.
  Expected in_blocks(const NarrowSum& how, std::size_t pixels, std::size_t count) const {
    Expected result;
    for (std::size_t e = 0; e < count; ++e) {
      evidence_.stop_if_late();
      const Terms& terms = sample_.terms[e];
      double sum = 0;
      for (std::size_t begin = 0; begin < terms.x.size(); begin += pixels) {
        sum += simulated(terms, how, begin, begin + pixels);
      }
      result.values.push_back(sum);
      result.scales.push_back(evidence_.scale(sample_.at[e]));
    }
    return result;
  }

  Fit::Part named(const Split& split) const {
    const DType wide = accumulator_dtype(evidence_.problem().dtype);
    const std::string_view type = dtype_name(split.type);
    std::string text = cat("the sums of ", split.parts, " are rounded to ", type);
    std::string cause =
        "a workspace of that type, or cuBLAS's and PyTorch's reduced-precision reduction";
    if (split.stored == Stored::both) {
      text += ", and so is their sum after each";
      cause = "atomicAdd on 16-bit numbers";
    } else if (split.stored == Stored::total) {
      text = cat("the sums of ", split.parts, ", in ", dtype_name(wide),
                 ", are added to a total that is rounded to ", type, " after each");
      cause = cat("a GEMM with beta = 1 into a ", 8 * dtype_bytes(split.type), "-bit gradient");
    }
    return {"low_precision_sums", text, cause, true};
  }

  const Judge& judge_;
  const Evidence& evidence_;
  const Sample& sample_;
  std::vector<std::vector<double>> sums_;  // of each entry, of the pixels so far
};

}  // namespace

bool add_steps(const Evidence& evidence, std::size_t at, DType type, Squares& steps) {
  const double want = evidence.want(at), error = evidence.got(at) - want;
  if (evidence.first_alike(at) != at || !std::isfinite(error)) return false;
  steps.add(error / std::max(rounding_step(type, want), evidence.step(at, want)));
  return true;
}

double bits_told(const Squares& steps, double width) {
  return steps.count * std::log2(width * steps.rms());
}

std::optional<Finding> find_stopped(const Evidence& evidence) {
  const WgradProblem& pb = evidence.problem();
  const double most = 1 / unit_roundoff(DType::f32);
  const auto stopped = [&](std::size_t at) {
    const EntryTerms entry = entry_terms(pb, evidence.index(at));
    double terms = static_cast<double>(pb.N);
    for (std::size_t a = 0; a < 3; ++a) {
      terms *= static_cast<double>(outputs_inside(pb.axis[a], entry.tap[a]).size());
    }
    const double want = most * (evidence.want(at) / terms);
    return terms > most && std::fabs(evidence.got(at) - want) <= 1e-9 * std::fabs(want);
  };
  const Positions& wrong = evidence.wrong();
  if (wrong.empty() || !std::ranges::all_of(wrong, stopped)) return std::nullopt;
  return finding({"low_precision_sums",
                  cat("sums in float32 stop at ", static_cast<std::int64_t>(most), " equal terms"),
                  "one accumulator for all pixels", true},
                 {}, Certainty::match, evidence.size());
}

std::optional<Finding> find_partials(const Judge& judge, const Sample& sample, bool bits_only) {
  // What repeats to the bit leaves no doubt, so it comes before what matches.
  for (const NarrowSum& variant : variants(judge.evidence().problem())) {
    if (!same_bits(judge.evidence(), sample, variant)) continue;
    return finding({"low_precision_sums",
                    cat("sums are rounded to ", dtype_name(variant.type),
                        " after each addition, pixel by pixel"),
                    "an accumulator of that type", true},
                   {}, Certainty::bits, sample.at.size());
  }
  if (bits_only) return std::nullopt;
  if (auto found = find_eigen(judge.evidence(), sample)) return found;
  const Splitter splitter(judge, sample);
  auto found = splitter.find();
  return found ? found : splitter.find_blocks();
}

}  // namespace convgrad::diagnosis
