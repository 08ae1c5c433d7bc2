// manifest.cpp - the reader of manifests, JSON Lines and arrays, and what is made of their jobs.
#include <set>

#include "batch/batch.hpp"
#include "fuzz.hpp"

using namespace convgrad;
using namespace convgrad::cli;
using namespace convgrad::fuzz;

namespace {

void check_jobs(const Manifest& manifest) {
  std::set<std::string> names;
  for (const BatchJob& job : manifest.jobs) {
    require(job.line >= 1, "the line of a job");
    if (!job.refused.empty()) {
      require_line(job.refused + " (as printed)");
      continue;
    }
    require(names.insert(job.name).second, "a name that comes twice", job.name);
    require(!job.options.problem.input.empty(), "a job without input");
    require(job.verifies || !job.options.problem.output.empty(), "a job that writes nothing");
    require(job.repeat.starts_with("convgrad"), "the command line of a job", job.repeat);
    for (const auto& [field, hash] : job.hashes) {
      require(hash.size() == 7 + 64, "a hash that is none", hash);
    }
  }
}

// The files that come of a manifest must be what they are called, whatever names are in it.
void check_outputs(const Manifest& manifest) {
  std::vector<Outcome> outcomes(manifest.jobs.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    outcomes[i].verdict = static_cast<Verdict>(i % 7);
    outcomes[i].status = outcomes[i].verdict == Verdict::error ? 3 : 0;
    outcomes[i].message = one_line(manifest.jobs[i].name);  // as errors are
    require_line(outcome_line(manifest.jobs[i], outcomes[i]) + " (as printed)");
  }
  const std::string xml = junit_xml(manifest, outcomes, 0);
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    require(byte >= 0x20 || byte == '\n', "a control byte in XML", xml);
  }
  BatchReport report(manifest, Division(), "");
  report.outcomes = outcomes;
  const Json json = report.json();
  require(!json_text(json).empty(), "a report");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string name = "jobs.jsonl";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refused(static_cast<int>(ErrorKind::input), name, [&] {
    Manifest manifest = parse_manifest(text, name, "folder-that-is-not-there", {});
    check_jobs(manifest);
    refuse_conflicts(manifest);
    check_jobs(manifest);
    check_outputs(manifest);
  });
  return 0;
}
