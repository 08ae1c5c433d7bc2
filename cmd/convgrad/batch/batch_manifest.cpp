// batch_manifest.cpp - a manifest: lines that are jobs, and lines that are malformed.
#include "batch/batch.hpp"
#include "batch/job_maker.hpp"
#include "files/text_file.hpp"

namespace convgrad::cli {

Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const Options& defaults) {
  Manifest manifest;
  manifest.name = name;
  JobMaker maker(defaults, folder);
  std::map<std::string, std::int64_t> names;  // line
  for (const ManifestLine& line : manifest_lines(text)) {
    std::string error = line.error;
    try {
      if (error.empty()) {
        BatchJob job = maker.make(line.fields, line.number);
        const auto [found, is_new] = names.emplace(job.name, line.number);
        if (!is_new) {
          refuse_field("name", "'", job.name, "' is that of line ", found->second, " too");
        }
        manifest.jobs.push_back(std::move(job));
      }
    } catch (const Error& refused) {
      error = refused.what();
    }
    if (!error.empty()) manifest.bad.push_back({line.number, as_field(error)});
  }
  if (manifest.jobs.empty() && manifest.bad.empty()) {
    bad_input(name, ": has no job, expected one a line");
  }
  return manifest;
}

Manifest read_manifest(const std::string& path, const Options& defaults) {
  const std::string text = read_text(path, {"", "JSON Lines"});
  if (path == "-") return parse_manifest(text, "standard input", "", defaults);
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  return parse_manifest(text, path, slash == 0 ? "/" : folder, defaults);
}

std::string place_of(const Manifest& manifest, const BatchJob& job) {
  const std::string line = cat("line ", job.line);
  return cat(manifest.name, ", ", line, job.name == line ? "" : cat(" (", job.name, ")"));
}

}  // namespace convgrad::cli
