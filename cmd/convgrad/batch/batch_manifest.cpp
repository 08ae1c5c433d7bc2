// batch_manifest.cpp - a manifest: lines that are jobs, and lines that are malformed.
#include <CLI/App.hpp>
#include <algorithm>

#include "base/messages.hpp"
#include "batch/batch.hpp"
#include "batch/manifest_fields.hpp"
#include "files/tensor_name.hpp"
#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/attributes.hpp"
#include "options/bind_options.hpp"
#include "options/made_problem.hpp"

namespace convgrad::cli {
namespace {

// Returns the rows of verify, or those of compute.
const Rows& rows_for(const std::vector<Command>& commands, bool verifies) {
  return std::ranges::find(commands, verifies ? "verify" : "compute", &Command::name)->rows;
}

// Returns whose option a field is, and nothing if no option has that name.
std::optional<FieldOf> kind_of(const std::string& field) {
  static VerifyCommand options;
  static const std::vector<Command> commands = job_commands(options);
  if (field == "help" || field == "version") return FieldOf::batch;
  for (const bool verifies : {false, true}) {
    const Row* row = rows_for(commands, verifies).find(with_hyphens("--" + field).substr(2));
    if (row != nullptr) return row->traits.field;
  }
  return {};
}

// Returns the fields in one order, however they stand, so that equal jobs are spelled equally.
Json spelled(Fields fields) {
  std::ranges::sort(fields, {}, &Field::name);
  Json json = Json::object();
  for (const Field& field : fields) {
    if (field.name != "name" && field.name != "notes") json[field.name] = field.words;
  }
  return json;
}

// Returns the batch's own --backend and --algorithm, where the job names none.
std::string repeated_defaults(const ExecutionOptions& all, const Fields& fields) {
  std::string text;
  for (const auto& [name, value] :
       {std::pair{"backend", &all.backend}, {"algorithm", &all.algorithm}}) {
    if (*value == "auto" || find(fields, name) != nullptr) continue;
    text += cat(" --", name, " ", shell_quoted(*value));
  }
  return text;
}

// Checks what can be seen without opening a file. `rows` have set the job's options.
void check(const BatchJob& job, const Rows& rows) {
  const ProblemOptions& o = job.options.problem;
  if (o.line.empty()) {
    check_op(o);
  } else {
    problem_of_line(job.options);
  }
  const std::pair<const char*, const std::string*> files[] = {
      {"input", &o.input}, {"out_backprop", &o.out_backprop}, {"output", &o.output}};
  for (const auto& [field, path] : files) {
    const bool is_needed = path != &o.output || !job.verifies;
    if (is_needed && path->empty()) bad_input(field, " is missing, expected a .npy file");
  }
  for (const Row& row : rows) {
    const auto* list = std::get_if<NumberList>(&row.value);
    if (list != nullptr && !is_file_name(*list->words))
      parse_numbers("--" + row.name(), *list->words);
  }
  parse_numbers("--groups", o.groups);
}

// Makes a job of the fields of a line. A field is an option of compute or verify, set through the
// same checks as a flag, or one of own_field_names().
class JobMaker {
 public:
  // A job has the options `defaults` before its fields are set. Relative paths start from `folder`;
  // "" is the current one.
  JobMaker(const VerifyCommand& defaults, std::string folder)
      : defaults_(defaults), folder_(std::move(folder)), names_(own_field_names(commands_)) {
    bind_options(app_, commands_);
    for (const bool verifies : {false, true}) {
      for (const Row& row : rows_for(commands_, verifies)) {
        if (row.traits.field != FieldOf::job) continue;
        for (const std::string& name : row.long_names()) names_.push_back(with_underscores(name));
      }
    }
  }

  // Throws Error(input) that names the field.
  BatchJob make(Fields fields, std::int64_t line) {
    for (const Field& field : fields) check_name(field.name);
    std::erase_if(fields, [](const Field& field) { return field.words.empty(); });
    BatchJob job;
    job.line = line;
    job.spelled = spelled(fields);
    job.spelled["--backend"] = defaults_.execution.backend;
    job.spelled["--algorithm"] = defaults_.execution.algorithm;
    take_own_fields(fields, job);
    set_options(fields, job);
    std::ranges::sort(job.outputs);
    check(job, rows_for(commands_, job.verifies));
    return job;
  }

 private:
  void check_name(const std::string& field) const {
    if (std::ranges::find(names_, field) != names_.end()) return;
    const std::optional<FieldOf> kind = kind_of(field);
    if (kind == FieldOf::nobody) {
      refuse_field(field, "is no field, since a job that is run again would give another result");
    }
    if (kind == FieldOf::batch) {
      refuse_field(field, "is no field of a job, but of the whole batch");
    }
    refuse_field(one_line(field), "is unknown", did_you_mean(field, names_),
                 Hint("see convgrad batch --help"));
  }

  std::string resolved(const std::string& path) const {
    if (folder_.empty() || path.front() == '/') return path;
    return cat(folder_, folder_.back() == '/' ? "" : "/", path);
  }

  const Row& row_of(const std::string& name, const std::string& field, bool verifies) const {
    if (const Row* row = rows_for(commands_, verifies).find(name)) return *row;
    if (verifies) refuse_field(field, "is a field of jobs that compute, but this one verifies");
    refuse_field(field, "is a field of jobs that verify, but this one computes");
  }

  void set_options(const Fields& fields, BatchJob& job) {
    options_ = defaults_;
    options_.problem.dtype = job.options.problem.dtype;
    job.repeat = job.verifies ? "convgrad verify" : "convgrad";
    for (const Field& field : fields) set(field, job);
    job.repeat += repeated_defaults(defaults_.execution, fields);
    if (job.verifies && defaults_.verify.fail_vacuous && find(fields, "fail_vacuous") == nullptr) {
      job.repeat += " --fail-vacuous";
    }
    options_.json = "-";  // the report, and no text
    options_.command_line = job.repeat;
    options_.files = rows_for(commands_, job.verifies).files();
    job.options = options_;
  }

  void set(const Field& field, BatchJob& job) {
    const std::string name = with_hyphens("--" + field.name).substr(2);
    const Row& row = row_of(name, field.name, job.verifies);
    const bool is_list = std::holds_alternative<NumberList>(row.value);
    const bool is_again = std::holds_alternative<Again>(row.value);
    Words words = field.words;
    if (!is_list && !is_again && words.size() > 1) words = {joined(words, ",")};
    if (row.traits.file != FileUse::no && (!is_list || is_file_name(words))) {
      const bool writes = row.traits.file == FileUse::written;
      for (std::string& word : words) {
        word = file_of(field.name, word);
        (writes ? job.outputs : job.inputs).emplace_back(field.name, word);
      }
    }
    if (row.type == "DIR") words[0] = resolved(words[0]);
    row.option->clear();
    set_option(row, name, words);
    options_.given.push_back({"--" + name, row.traits.about});
    const char* const between = std::holds_alternative<bool*>(row.value) ? "=" : " ";
    for (const std::string& word : is_again ? words : Words{joined(words, ",")}) {
      job.repeat += cat(" --", name, between, shell_quoted(word));
    }
  }

  std::string file_of(const std::string& field, const std::string& path) const {
    if (!is_standard_input(path)) return resolved(path);
    refuse_field(field, "- is standard input or output, which jobs cannot share",
                 Hint("name a file"));
  }

  const VerifyCommand& defaults_;
  const std::string folder_;
  CLI::App app_;
  VerifyCommand options_;  // what app_ is bound to
  std::vector<Command> commands_ = job_commands(options_);
  std::vector<std::string> names_;
};

}  // namespace

std::string as_field(const std::string& message) {
  if (!message.starts_with("--")) return message;
  const std::size_t name_end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz-");
  const bool is_several =
      name_end != message.npos && (message[name_end] == '/' || message[name_end] == ',' ||
                                   message.compare(name_end, 7, " and --") == 0);
  if (is_several) return message;  // a field beside a flag would be a mixture
  const std::size_t end = std::min(message.find_first_of(" :[("), message.size());
  const std::string field = with_underscores(message.substr(2, end - 2));
  return kind_of(field) == FieldOf::batch ? message : field + message.substr(end);
}

Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const VerifyCommand& defaults) {
  Manifest manifest;
  manifest.name = name;
  JobMaker maker(defaults, folder);
  std::map<std::string, std::int64_t> names;  // name -> line
  for (const ManifestLine& line : manifest_lines(text)) {
    std::optional<Error> error = line.error;
    try {
      if (!error) {
        BatchJob job = maker.make(line.fields, line.number);
        const auto [found, is_new] = names.emplace(job.name, line.number);
        if (!is_new) {
          refuse_field("name", "'", job.name, "' is that of line ", found->second, " too");
        }
        manifest.jobs.push_back(std::move(job));
      }
    } catch (const Error& refused) {
      error = refused;
    }
    if (error) manifest.bad.push_back({line.number, as_field(error->what()), error->hint()});
  }
  if (manifest.jobs.empty() && manifest.bad.empty()) {
    bad_input(name, ": has no job, expected one a line");
  }
  return manifest;
}

Manifest read_manifest(const std::string& path, const VerifyCommand& defaults) {
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
