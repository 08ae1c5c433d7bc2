// measure_diagnosis.cpp - puts faults into gradients of random problems, or of captured ones, and
// counts how many of them the diagnosis names. The faulty gradients are made here, from the
// definition, by code of its own.
//   measure_diagnosis [--short] [--problems COUNT] [--kind WORD] [--seed N] [--captured FOLDER]
//     [--verbose]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "check/diagnosis.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/reference.hpp"
#include "engine/plan.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// "a+b" as a set of names.
std::set<std::string> parts(const std::string& fault) {
  std::set<std::string> result;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = fault.find('+', begin);
    result.insert(fault.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return result;
}

enum class Verdict : std::uint8_t { named, equivalent, unnamed, wrong };

Verdict judge(const Kind& kind, const std::string& words, const WgradProblem& pb,
              const Diagnosis& found) {
  if (kind.faults.empty()) return found.findings.empty() ? Verdict::named : Verdict::wrong;
  bool equivalent = false, misworded = false;
  for (const Finding& f : found.findings) {
    const bool named = std::any_of(kind.faults.begin(), kind.faults.end(),
                                   [&](const auto& name) { return parts(name) == parts(f.fault); });
    const std::string said = f.text + "; usual causes: " + f.cause;
    if (named && said.find(words) != std::string::npos) return Verdict::named;
    misworded = misworded || named;
    // It predicts every element to within rounding.
    equivalent = equivalent || f.checked == pb.dw_count();
  }
  if (found.findings.empty()) return Verdict::unnamed;
  return equivalent && !misworded ? Verdict::equivalent : Verdict::wrong;
}

}  // namespace

int main(int argc, char** argv) {
  int problems = 20;
  bool verbose = false;
  std::uint64_t seed = 0;
  std::string only;
  std::vector<Case> captured;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--short") problems = 2;
    if (word == "--verbose") verbose = true;
    if (word == "--seed" && i + 1 < argc)
      seed = static_cast<std::uint64_t>(std::atoi(argv[++i])) << 32;
    if (word == "--problems" && i + 1 < argc) problems = std::atoi(argv[++i]);
    if (word == "--kind" && i + 1 < argc) only = argv[++i];
    if (word == "--captured" && i + 1 < argc) captured = captured_cases(argv[++i], 2e7);
  }
  TaskPool pool(2);
  int totals[4] = {}, silent = 0;
  std::printf("%-36s %6s %6s %6s %6s\n", "kind", "named", "equal", "none", "wrong");
  for (const Kind& kind : all_kinds()) {
    ++seed;
    if (kind.name.find(only) == std::string::npos) continue;
    Random random(seed);
    int counts[4] = {};
    // Few kinds of faults are possible in every problem; captured ones are few.
    const int most = captured.empty() ? 200 * problems : 20 * problems;
    for (int done = 0, drawn = 0; done < problems && drawn < most; ++drawn) {
      Case c = captured.empty() ? random_case(random, 1) : captured[random() % captured.size()];
      Draft draft(c, random);
      kind.make(draft);
      const Values got = draft.gradient();
      const std::string& words = draft.words;
      if (got.empty()) continue;
      const std::vector<std::byte> x = bytes_of(c.pb, c.x, c.pb.C),
                                   dy = bytes_of(c.pb, c.dy, c.pb.K);
      const Expected want = expected_gradient(c.pb, x.data(), dy.data(), {.threads = 2});
      if (compare_gradients(c.pb, c.pb.out_dtype, {}, got, want, {}).match()) continue;
      ++done;
      MemorySource source(x.data(), dy.data());
      const Suspect suspect = {c.pb, {}, got, want};
      const Diagnosis found = diagnose(suspect, {image_plan(c.pb, 1 << 20), source, pool}, 0x1p30);
      const Verdict verdict = judge(kind, words, c.pb, found);
      ++counts[static_cast<int>(verdict)];
      if (!verbose || verdict == Verdict::named) continue;
      std::printf("  %s, %s\n", describe(c.pb).c_str(), words.c_str());
      for (const Finding& f : found.findings) {
        std::printf("    %s: %s\n", f.fault.c_str(), f.text.c_str());
      }
      if (found.findings.empty()) std::printf("    at %s\n", found.where.c_str());
    }
    std::printf("%-36s %6d %6d %6d %6d\n", kind.name.c_str(), counts[0], counts[1], counts[2],
                counts[3]);
    std::fflush(stdout);
    for (int i = 0; i < 4; ++i) totals[i] += counts[i];
    if (counts[0] + counts[1] == 0 && counts[2] + counts[3] > 1) ++silent;
  }
  const int all = std::max(1, totals[0] + totals[1] + totals[2] + totals[3]);
  std::printf("%-36s %6d %6d %6d %6d\n", "all", totals[0], totals[1], totals[2], totals[3]);
  std::printf("named or equivalent %.1f %%, unnamed %.1f %%, wrong %.1f %%\n",
              100.0 * (totals[0] + totals[1]) / all, 100.0 * totals[2] / all,
              100.0 * totals[3] / all);
  if (silent > 0) std::printf("%d kinds are never named\n", silent);
  // With few problems of each kind, chance may take some of what the goal leaves.
  return silent == 0 && 100.0 * (totals[0] + totals[1]) / all >= 90 && 100.0 * totals[3] / all <= 3
             ? 0
             : 1;
}
