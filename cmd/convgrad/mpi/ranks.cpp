#include "mpi/ranks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/buffer.hpp"
#include "base/load_module.hpp"
#include "base/messages.hpp"

namespace convgrad::cli {
namespace {

#ifdef CONVGRAD_HAS_MPI
const MpiModule* load_mpi() {
  // Open MPI's own modules look its symbols up in the process.
  const LoadedModule loaded = load_module(
      "convgrad_mpi.so", kMpiModuleSymbol, RTLD_NOW | RTLD_GLOBAL, [](const void* offers) {
        return static_cast<const MpiModule*>(offers)->version == kMpiModuleVersion;
      });
  if (loaded.offers != nullptr) return static_cast<const MpiModule*>(loaded.offers);
  throw Error(ErrorKind::unavailable, "--mpi: no MPI: ", loaded.why_none,
              Hint("install Open MPI (Debian: openmpi-bin) and convgrad"));
}
#else
const MpiModule* load_mpi() {
  throw Error(ErrorKind::unavailable, "--mpi: this convgrad was built without MPI",
              Hint("install Open MPI (Debian: "
                   "libopenmpi-dev) and build with -DCONVGRAD_MPI=ON"));
}
#endif

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // doubles of a message: 2 MiB

// All ranks walk through the whole tree in the same order, and each does what concerns it. So two
// ranks meet for their messages in the same order, and none waits for ever.
class RankTree {
 public:
  RankTree(Messages& messages, const std::vector<Range>& parts, const std::vector<NodeSums>& nodes,
           std::int64_t count)
      : messages_(messages), parts_(parts), nodes_(nodes), count_(count) {}

  struct Place {
    int rank = 0;
    double* sums = nullptr;  // on that rank
  };

  Place sum_of(Range node) {
    const int owner = owner_of(node);
    if (parts_[static_cast<std::size_t>(owner)].end >= node.end) {
      return {owner, owner == messages_.rank() ? nodes_[next_++].sums : nullptr};
    }
    const auto [left, right] = tree_children(node);
    const Place to = sum_of(left), from = sum_of(right);
    if (to.rank != from.rank) {
      exchange(to, from);
    } else if (to.sums != nullptr) {
      for (std::int64_t i = 0; i < count_; ++i) to.sums[i] += from.sums[i];
    }
    return to;
  }

 private:
  // Returns the rank that has the node's first slice.
  int owner_of(Range node) const {
    const auto part = std::ranges::upper_bound(parts_, node.begin, {}, &Range::end);
    return static_cast<int>(part - parts_.begin());
  }

  void exchange(const Place& to, const Place& from) {
    for (std::int64_t begin = 0; begin < count_; begin += kPiece) {
      const std::int64_t n = std::min(kPiece, count_ - begin);
      if (from.rank == messages_.rank()) messages_.send(from.sums + begin, n, to.rank);
      if (to.rank != messages_.rank()) continue;
      if (received_.size_bytes() == 0) {
        received_ = Buffer(std::min(kPiece, count_) * 8, "sums of another rank");
      }
      double* const values = received_.as<double>();
      messages_.receive(values, n, from.rank);
      for (std::int64_t i = 0; i < n; ++i) to.sums[begin + i] += values[i];
    }
  }

  Messages& messages_;
  const std::vector<Range>& parts_;
  const std::vector<NodeSums>& nodes_;
  const std::int64_t count_;
  std::size_t next_ = 0;
  Buffer received_;
};

}  // namespace

Ranks::Ranks() : module_(load_mpi()), place_(module_->start()) {}

Ranks::~Ranks() {
  // Rank 0 may end with a status now, and mpirun then ends those that are slower: not worth a word.
  if (rank() != 0) std::signal(SIGTERM, SIG_IGN);
  module_->finish();
}

void Ranks::send(const double* values, std::int64_t count, int to) {
  module_->send(values, static_cast<int>(count * 8), to);
}

void Ranks::receive(double* values, std::int64_t count, int from) {
  module_->receive(values, static_cast<int>(count * 8), from);
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  std::string mine = text.substr(0, kMostText - 1);
  mine.resize(kMostText);
  std::string all(kMostText * static_cast<std::size_t>(size()), '\0');
  module_->gather(mine.data(), all.data(), kMostText);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kMostText) texts.emplace_back(all.c_str() + at);
  return texts;
}

void Ranks::together(const std::function<void()>& work) const {
  std::string failure;  // the status' digit and the message
  try {
    work();
  } catch (...) {
    const Error error = handled_error("lower --memory-limit");
    failure = cat(static_cast<int>(error.kind()), error);
  }
  const std::vector<std::string> failures = gather(failure);
  const auto first = std::ranges::find_if_not(failures, &std::string::empty);
  if (first == failures.end()) return;
  all_failed_ = true;
  if (rank() != 0) throw SilentEnd{};
  const int status = first->front() - '0';
  const bool everywhere = std::ranges::count(failures, *first) == size();
  const std::string which = everywhere ? "" : cat("rank ", first - failures.begin(), ": ");
  throw Error(static_cast<ErrorKind>(status), which + first->substr(1));
}

void Ranks::abort(int status) const {
  module_->abort(status);
  std::_Exit(status);
}

bool is_silent_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) return std::strcmp(value, "0") != 0;
  }
  return false;
}

double* add_ranks(Messages& messages, const std::vector<Range>& parts,
                  const std::vector<NodeSums>& nodes, std::int64_t count) {
  return RankTree(messages, parts, nodes, count).sum_of({0, parts.back().end}).sums;
}

}  // namespace convgrad::cli
