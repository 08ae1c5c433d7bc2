// batch_ranks.cpp - see batch_ranks.hpp. Messages are CBOR: {} says that a rank is there, {"line"}
// of rank 0 is a job, that of another rank what came of it, and {"end"} is the last one.
#include "batch/batch_ranks.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "compute/batch_range.hpp"
#include "compute/share_node.hpp"
#include "convgrad/output_file.hpp"
#include "convgrad/task_pool.hpp"
#include "report/color.hpp"

namespace convgrad::cli {
namespace {

// Open MPI says nothing of a rank that is gone, so ranks tell each other that they are there.
constexpr std::chrono::seconds kBeat(1);
constexpr std::chrono::seconds kLongestSilence(60);

constexpr int kLost = static_cast<int>(ErrorKind::runtime);

// Messages are polled for, as MPI's own waiting takes a processor: more seldom, the longer there is
// none.
class Nap {
 public:
  void take(bool was_busy) {
    microseconds_ = was_busy ? kShortest : std::min(2 * microseconds_, kLongest);
    ::usleep(microseconds_);
  }

 private:
  static constexpr unsigned kShortest = 50, kLongest = 2000;
  unsigned microseconds_ = kShortest;
};

// Equal for processes that know each other by their numbers.
std::string process_place() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return cat(boot, std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string());
}

Json introduction(const Ranks& ranks, const Division& division) {
  Json json = {{"rank", ranks.rank()}, {"host", host_name()}};
  json.update(division.json());
  json["place"] = process_place();
  json["process"] = ::getpid();
  return json;
}

// Another rank, as long as it is there.
class Partner {
 public:
  Partner(const Json& introduction, const std::string& place)
      : process_(introduction.at("place") == place ? introduction.at("process").get<pid_t>() : 0) {}

  void heard() { heard_ = Clock::now(); }
  bool is_gone() const {
    if (process_ != 0 && ::kill(process_, 0) != 0 && errno == ESRCH) return true;
    return Clock::now() - heard_ > kLongestSilence;
  }

 private:
  pid_t process_;  // 0 on another machine
  Clock::time_point heard_ = Clock::now();
};

// True once in the time between two beats.
class Beat {
 public:
  bool is_due() {
    if (Clock::now() - last_ < kBeat) return false;
    last_ = Clock::now();
    return true;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

Json record_json(const BatchState::Record& record) {
  return {{"status", record.status}, {"output", record.output}, {"files", record.files}};
}

BatchState::Record record_of(const Json& json, const std::string& name) {
  return {name, json.at("status"), json.at("output"),
          json.at("files").get<std::map<std::string, std::string>>()};
}

Json outcome_json(const Outcome& outcome) {
  Json json = {{"verdict", static_cast<int>(outcome.verdict)},
               {"status", outcome.status},
               {"message", outcome.message},
               {"vacuous", outcome.vacuous},
               {"elapsed_s", outcome.elapsed_s},
               {"report", outcome.report}};
  if (outcome.record) json["record"] = record_json(*outcome.record);
  return json;
}

Outcome outcome_of(const Json& json, const std::string& name, int rank) {
  Outcome outcome;
  outcome.verdict = static_cast<Verdict>(json.at("verdict").get<int>());
  outcome.status = json.at("status");
  outcome.message = json.at("message");
  outcome.vacuous = json.at("vacuous");
  outcome.elapsed_s = json.at("elapsed_s");
  outcome.report = json.at("report");
  if (json.contains("record")) outcome.record = record_of(json.at("record"), name);
  outcome.rank = rank;
  return outcome;
}

volatile std::sig_atomic_t is_told_to_end = 0;

class Giver {
 public:
  Giver(Ranks& ranks, const Manifest& manifest, const Options& options,
        const std::optional<BatchState>& state, Runner& runner, const std::vector<Json>& all)
      : ranks_(ranks), manifest_(manifest), options_(options), state_(state), runner_(runner) {
    for (const Json& one : all) {
      others_.push_back({Partner(one, all[0].at("place")), one.at("jobs_at_a_time"), {}, false});
    }
    for (std::size_t i = 0; i < manifest.jobs.size(); ++i) by_line_[manifest.jobs[i].line] = i;
  }

  // Returns when all jobs are over, but for those that need everything.
  void serve() {
    Nap nap;
    while (!runner_.is_over()) {
      const bool has_taken = receive(), has_given = give();
      if (beat_.is_due()) look_after_all();
      end_if_told();
      nap.take(has_taken || has_given);
    }
  }

  void send_home() {
    const bool any_lost = std::ranges::any_of(others_, &Other::is_lost);
    for (int rank = 1; rank < ranks_.size(); ++rank) {
      if (!of(rank).is_lost) post({{"end", true}, {"is_one_lost", any_lost}}, rank);
    }
    if (!any_lost) return;
    ranks_.leave();
    const auto end = Clock::now() + kBeat;  // MPI needs calls to send what was posted
    for (Nap nap; Clock::now() < end; nap.take(false)) {
      receive();
      end_if_told();
    }
  }

  // mpirun ends all ranks when one is killed, unless it is told not to, and leaves a second for
  // this.
  void end_if_told() {
    if (is_told_to_end == 0) return;
    const std::string running = runner_.running();
    say(options_, "error",
        cat(one_line(manifest_.name), ": mpirun ended all ranks, ",
            running.empty() ? "between two jobs" : "while these jobs ran: " + running,
            "; what is over is kept, --resume does the rest"));
    try {
      runner_.write_junit();
    } catch (const Error&) {  // an earlier one is there
    }
    end_temporaries_in_signal_handler();
    std::_Exit(128 + SIGTERM);
  }

 private:
  struct Other {
    Partner partner;
    std::size_t jobs_at_a_time;
    std::vector<std::size_t> running;
    bool is_lost;
  };

  Other& of(int rank) { return others_[static_cast<std::size_t>(rank)]; }
  void post(const Json& message, int rank) { ranks_.post(Json::to_cbor(message), rank); }

  bool receive() {
    bool any = false;
    while (const auto message = ranks_.poll()) {
      any = true;
      Other& other = of(message->from);
      other.partner.heard();
      const Json json = Json::from_cbor(message->bytes);
      if (json.empty() || other.is_lost) continue;
      const std::size_t i = by_line_.at(json.at("line"));
      std::erase(other.running, i);
      std::optional<Outcome> outcome;
      if (json.contains("outcome")) {
        outcome = outcome_of(json.at("outcome"), manifest_.jobs[i].name, message->from);
      }
      runner_.end(i, std::move(outcome));
    }
    return any;
  }

  bool give() {
    bool any = false;
    for (int rank = 1; rank < ranks_.size(); ++rank) {
      Other& other = of(rank);
      while (!other.is_lost && other.running.size() < other.jobs_at_a_time) {
        const auto i = runner_.take(rank, false);
        if (!i) return any;
        any = true;
        other.running.push_back(*i);
        const BatchJob& job = manifest_.jobs[*i];
        Json message = {{"line", job.line}};
        const bool resumes = state_ && options_.batch.resume;
        if (const auto* done = resumes ? state_->find(job_key(job)) : nullptr) {
          message["done"] = record_json(*done);
        }
        post(message, rank);
      }
    }
    return any;
  }

  void look_after_all() {
    for (int rank = 1; rank < ranks_.size(); ++rank) {
      Other& other = of(rank);
      if (other.is_lost) continue;
      if (!other.partner.is_gone()) {
        post(Json::object(), rank);
        continue;
      }
      other.is_lost = true;
      for (const std::size_t i : other.running) {
        runner_.lose(i, cat("lost: rank ", rank,
                            ", which ran it, has ended or been killed; it may "
                            "be too large for the memory of its machine"));
      }
    }
  }

  Ranks& ranks_;
  const Manifest& manifest_;
  const Options& options_;
  const std::optional<BatchState>& state_;
  Runner& runner_;
  std::vector<Other> others_;  // by rank; the first one is this process
  std::map<std::int64_t, std::size_t> by_line_;
  Beat beat_;
};

// What another rank does: one thread talks to rank 0, the others run jobs.
class Helper {
 public:
  Helper(Ranks& ranks, const Manifest& manifest, const Options& options, const Json& rank_0)
      : ranks_(ranks), options_(options), rank_0_(rank_0, process_place()) {
    for (const BatchJob& job : manifest.jobs) by_line_[job.line] = &job;
  }

  void talk() {
    Nap nap;
    for (;;) {
      bool is_busy = false;
      while (const auto message = ranks_.poll()) {
        is_busy = true;
        rank_0_.heard();
        if (!take(Json::from_cbor(message->bytes))) return;
      }
      is_busy |= send_results();
      if (beat_.is_due()) ranks_.post(Json::to_cbor(Json::object()), 0);
      if (rank_0_.is_gone()) {
        say(options_, "error", cat("rank ", ranks_.rank(), ": rank 0 is gone"));
        ranks_.abort(kLost);
      }
      nap.take(is_busy);
    }
  }

  void work(const Share& share) {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_over_ || !given_.empty(); });
      if (given_.empty()) return;
      const Json given = std::move(given_.front());
      given_.pop_front();
      lock.unlock();
      try {
        Json result = result_of_job(given, share);
        lock.lock();
        results_.push_back(std::move(result));
      } catch (const std::bad_alloc&) {  // rank 0 would wait for ever
        say(options_, "error", cat("rank ", ranks_.rank(), ": out of memory; lower --jobs"));
        ranks_.abort(kLost);
      }
    }
  }

 private:
  // False after the last message.
  bool take(Json message) {
    if (message.empty()) return true;
    const std::lock_guard lock(mutex_);
    is_over_ = message.contains("end");
    if (is_over_ && message.at("is_one_lost").get<bool>()) ranks_.leave();
    if (!is_over_) given_.push_back(std::move(message));
    changed_.notify_all();
    return !is_over_;
  }

  bool send_results() {
    const std::lock_guard lock(mutex_);
    const bool any = !results_.empty();
    for (const Json& result : results_) ranks_.post(Json::to_cbor(result), 0);
    results_.clear();
    return any;
  }

  Json result_of_job(const Json& given, const Share& share) const {
    const BatchJob& job = *by_line_.at(given.at("line"));
    std::optional<BatchState::Record> done;
    if (given.contains("done")) done = record_of(given.at("done"), job.name);
    const bool dry_run = options_.execution.dry_run;
    const bool keeps = !dry_run && (options_.batch.resume || !options_.batch.state.empty());
    const auto outcome =
        run_batch_job(job, share, dry_run, keeps, done ? &*done : nullptr, [](double) {});
    Json result = {{"line", job.line}};
    if (outcome) result["outcome"] = outcome_json(*outcome);
    return result;
  }

  Ranks& ranks_;
  const Options& options_;
  Partner rank_0_;
  std::map<std::int64_t, const BatchJob*> by_line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Json> given_, results_;
  bool is_over_ = false;
  Beat beat_;
};

std::vector<Json> introductions(const Ranks& ranks, const Division& division) {
  std::vector<Json> all;
  for (const std::string& text : ranks.gather(introduction(ranks, division).dump())) {
    all.push_back(Json::parse(text));
  }
  return all;
}

// What needs a rank to itself is not known of another rank: it may have another size.
Share shared(Share share, const Ranks& ranks) {
  share.is_whole &= ranks.size() == 1;
  return share;
}

// Runs talk() in the calling thread, the only one that may call MPI, beside those that run jobs.
// When it has returned, all jobs are over: a share of a thread that has not begun by then is empty.
template <typename Talk, typename Work>
void talk_beside(const Division& division, Talk&& talk, Work&& work) {
  TaskPool pool(division.jobs + 1);
  bool has_talked = false;
  pool.run(division.jobs + 1, [&](std::int64_t, int worker) {
    if (worker > 0) return work(worker - 1);
    if (!std::exchange(has_talked, true)) talk();
  });
}

Json ranks_json(std::vector<Json> all, const std::vector<Outcome>& outcomes) {
  Json ranks = Json::array();
  for (Json& one : all) {
    one.erase("place");
    one.erase("process");
    one["jobs"] = std::ranges::count(outcomes, one["rank"].get<int>(), &Outcome::rank);
    ranks.push_back(std::move(one));
  }
  return ranks;
}

}  // namespace

void check_same_program(const Ranks& ranks) {
  const std::vector<std::string> all = ranks.gather(program_build());
  ranks.together([&] {
    if (all[0] == program_build()) return;
    throw Error(ErrorKind::input, "is ", program_build(), ", expected ", all[0],
                " as on rank 0; give all ranks one program");
  });
}

Json give_jobs_to_ranks(Ranks& ranks, const Manifest& manifest, const Options& options,
                        const std::optional<BatchState>& state, Runner& runner) {
  const Division division(options, manifest.jobs.size());
  const std::vector<Json> all = introductions(ranks, division);
  Giver giver(ranks, manifest, options, state, runner, all);
  const auto old = std::signal(SIGTERM, [](int) { is_told_to_end = 1; });
  const auto end = [&] {
    giver.send_home();
    std::signal(SIGTERM, old);
    giver.end_if_told();
  };
  try {
    talk_beside(
        division, [&] { giver.serve(); },
        [&](int worker) { runner.work(shared(division.of(worker), ranks)); });
    giver.serve();
  } catch (...) {
    end();
    throw;
  }
  end();
  Json fields;
  for (const char* sum : {"jobs_at_a_time", "threads", "memory_limit_bytes"}) {
    std::uint64_t total = 0;
    for (const Json& one : all) total += one.at(sum).get<std::uint64_t>();
    fields[sum] = total;
  }
  fields["ranks"] = ranks_json(all, runner.outcomes());
  return fields;
}

void do_jobs_of_rank_0(Ranks& ranks, const Manifest& manifest, const Options& options) {
  const Division division(options, manifest.jobs.size());
  const std::vector<Json> all = introductions(ranks, division);
  Helper helper(ranks, manifest, options, all[0]);
  talk_beside(
      division, [&] { helper.talk(); },
      [&](int worker) { helper.work(shared(division.of(worker), ranks)); });
}

}  // namespace convgrad::cli
