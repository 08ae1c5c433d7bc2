// bench_rounds.cpp - in which order rows are measured, and which are measured again.
#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/bench.hpp"
#include "convgrad/machine.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {
namespace {

// Over all rows: what disturbs for some seconds meets a third of a row's runs.
constexpr std::int64_t kRounds = 3;
constexpr int kMostAttempts = 4;
// In front of the second attempt, and twice as long in front of each after it: other work, and the
// clock that follows from it, come in spells of a second. At most as long as a row is measured.
constexpr double kPauseSeconds = 0.5;

}  // namespace

const Tensors& Measurement::tensors_of(const BenchCase& c) {
  if (owner_ == nullptr || owner_->tensors != c.tensors) {
    tensors_ = {};  // first free the old ones
    tensors_ = job_ ? read_tensors(*job_) : made_tensors(c.problem, this_machine().threads);
    owner_ = &c;
  }
  return tensors_;
}

std::vector<Measured> Measurement::all(const std::function<void(Measured&)>& on_done) {
  const BenchOptions& b = options_.bench;
  const std::int64_t rounds = cases_.size() == 1 ? 1 : std::min(kRounds, b.repeat);
  std::vector<Runs> runs(cases_.size());
  std::vector<Measured> rows;
  Progress progress("measuring");
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t repeat = b.repeat * (round + 1) / rounds - b.repeat * round / rounds;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const double done =
          static_cast<double>(round) + static_cast<double>(i) / static_cast<double>(cases_.size());
      progress.show(done / static_cast<double>(rounds));
      runs[i].append(measure_runs(cases_[i], tensors_of(cases_[i]), b, repeat,
                                  b.min_time / static_cast<double>(rounds)));
      if (round + 1 < rounds) continue;
      rows.push_back(measured(cases_[i], std::move(runs[i])));
      progress.wipe();
      on_done(rows.back());
    }
  }
  return rows;
}

void Measurement::again(std::vector<Measured>& rows,
                        const std::function<bool(const Measured&)>& in_doubt) {
  const BenchOptions& b = options_.bench;
  double pause = std::min(kPauseSeconds, b.min_time);
  for (int attempt = 1; attempt < kMostAttempts && std::ranges::any_of(rows, in_doubt); ++attempt) {
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause *= 2;
    for (Measured& row : rows) {
      if (!in_doubt(row)) continue;
      const BenchCase& c = *row.bench_case;
      const Measured again = measured(c, measure_runs(c, tensors_of(c), b, b.repeat, b.min_time));
      const double min = std::min(row.time.min, again.time.min);
      if (again.time.variation() < row.time.variation()) row.time = again.time;
      row.time.min = min;
      row.per_yardstick = std::min(row.per_yardstick, again.per_yardstick);
      ++row.attempts;
    }
  }
}

}  // namespace convgrad::cli
