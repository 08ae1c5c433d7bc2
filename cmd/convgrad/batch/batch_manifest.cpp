// batch_manifest.cpp - a manifest: lines that are jobs, and lines that are malformed.
#include <CLI/App.hpp>
#include <CLI/StringTools.hpp>
#include <algorithm>

#include "batch/batch.hpp"
#include "files/tensor_source.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"
#include "options/table.hpp"

namespace convgrad::cli {
namespace {

struct ManifestLine {
  std::int64_t number = 1;
  Fields fields;
  std::optional<Error> error;  // what is wrong with the line
};

std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string option_of(std::string field) {
  std::ranges::replace(field, '_', '-');
  return field;
}

[[noreturn]] void refuse_twice(const std::string& field) {
  bad_input(field, ": is there twice, expected once");
}

constexpr int kMaxListDepth = 2;  // {"pads": [[0, 1], [1, 1]]}

void add_words(const std::string& field, const Json& value, Words& words, int depth = 0) {
  if (value.is_array()) {
    if (depth == kMaxListDepth)
      bad_input(field, ": lists within lists of lists, expected one list");
    for (const Json& element : value) add_words(field, element, words, depth + 1);
  } else if (value.is_string()) {
    if (!value.get_ref<const std::string&>().empty()) words.push_back(value.get<std::string>());
  } else if (value.is_number() || value.is_boolean()) {
    words.push_back(value.dump());
  } else if (value.is_object()) {
    bad_input(field, ": an object, expected a string, a number, true, false or a list");
  }
}

[[noreturn]] void refuse_json(const JsonError& error) {
  using enum JsonError::Fault;
  if (error.fault == key_twice) refuse_twice(with_underscores(error.key));
  if (error.fault == number_too_large) bad_input("has a number that is too large");
  if (error.fault == too_deep) bad_input("nested too deeply, expected fields with values or lists");
  if (error.fault == too_many) bad_input("has too many values, expected the fields of a job");
  bad_input("is not JSON at column ", error.column,
            ", expected an object such as {\"op\": \"conv2d\", ...} on a line of its own");
}

const Field* find(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

bool has(const Fields& fields, std::string_view name) { return find(fields, name) != nullptr; }

Fields fields_of(const Json& object) {
  if (!object.is_object()) {
    bad_input("is ", object.is_array() ? "an array" : "a value",
              ", expected an object such as {\"op\": \"conv2d\", ...}");
  }
  Fields fields;
  for (const auto& [key, value] : object.items()) {
    Field field{with_underscores(key), {}};
    if (has(fields, field.name)) refuse_twice(field.name);
    if (field.name != "notes") add_words(field.name, value, field.words);
    fields.push_back(std::move(field));
  }
  return fields;
}

// `make` returns the fields of the line.
ManifestLine line_of(std::int64_t number, const std::function<Fields()>& make) {
  try {
    return {number, make(), {}};
  } catch (const Error& error) {
    return {number, {}, error};
  }
}

Fields fields_of_text(const std::string& text) {
  try {
    return fields_of(read_json(text));
  } catch (const JsonError& error) {
    refuse_json(error);
  }
}

// Returns every line that is not empty.
std::vector<ManifestLine> json_lines(std::string_view text) {
  std::vector<ManifestLine> lines;
  std::int64_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line(text.substr(at, end - at));
    at = end + 1;
    const std::size_t last = line.find_last_not_of(" \t\r");
    if (last == line.npos) continue;
    line.resize(line[last] == ',' ? last : last + 1);  // a comma as between an array's elements
    if (line == "{") {
      lines.push_back(line_of(number, []() -> Fields {
        bad_input("an object goes on over more lines, expected JSON Lines, one object a line",
                  Hint("jq -c . FILE makes it so"));
      }));
      break;
    }
    lines.push_back(line_of(number, [&] { return fields_of_text(line); }));
  }
  return lines;
}

// Returns every element of an array, by the line on which it begins; an array that is no JSON is
// one malformed line.
std::vector<ManifestLine> array_lines(const std::string& text) {
  std::vector<ManifestLine> lines;
  try {
    read_json(text, [&](const std::string&, std::int64_t number, const Json& element) {
      // Elements on one line would have one name.
      const bool is_alone = lines.empty() || number != lines.back().number;
      lines.push_back(line_of(number, [&] { return fields_of(element); }));
      if (!is_alone && !has(lines.back().fields, "name")) {
        lines.back().fields.push_back({"name", {cat("line ", number, ", job ", lines.size())}});
      }
    });
  } catch (const JsonError& error) {
    return {line_of(error.line, [&]() -> Fields { refuse_json(error); })};
  }
  return lines;
}

// The fields of a job that are no options: its name, command and notes, the hashes of its files,
// and the dtype that its tensors must give.

constexpr std::size_t kMaxNameBytes = 200;
constexpr std::string_view kHashEnding = "_sha256";

// Removes a field and returns its words, or none if there was none.
Words take_words(Fields& fields, std::string_view name) {
  const Field* field = find(fields, name);
  if (field == nullptr) return {};
  Words words = field->words;
  fields.erase(fields.begin() + (field - fields.data()));
  return words;
}

std::optional<std::string> take(Fields& fields, const std::string& name) {
  const Words words = take_words(fields, name);
  if (words.empty()) return {};
  if (words.size() > 1) bad_input(name, ": a list, expected one value");
  return words[0];
}

void take_hashes(Fields& fields, BatchJob& job) {
  const Fields all = fields;
  for (const Field& field : all) {
    if (!field.name.ends_with(kHashEnding)) continue;
    const std::string word = *take(fields, field.name), digits = CLI::detail::to_lower(word);
    if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != digits.npos) {
      bad_input(field.name, ": '", word,
                "', expected 64 hexadecimal digits, as sha256sum prints them");
    }
    const std::string file = field.name.substr(0, field.name.size() - kHashEnding.size());
    if (!has(fields, file)) bad_input(field.name, ": is given, but ", file, " is not");
    job.hashes[file] = "sha256:" + digits;
  }
}

// Moves them from a line's fields to its job; those that are left are options of its command.
void take_own_fields(Fields& fields, BatchJob& job) {
  take_words(fields, "notes");
  job.name = take(fields, "name").value_or(cat("line ", job.line));
  if (job.name.size() > kMaxNameBytes) {
    bad_input("name: ", job.name.size(), " bytes, expected at most ", kMaxNameBytes);
  }
  job.verifies = !has(fields, "output") || has(fields, "golden") || has(fields, "result");
  if (const auto command = take(fields, "command")) {
    job.verifies = *command == "verify";
    if (!job.verifies && *command != "compute") {
      bad_input("command: '", *command, "' is unknown, expected compute or verify",
                did_you_mean(*command, Words{"compute", "verify"}));
    }
  }
  take_hashes(fields, job);
  job.options.problem.dtype = take(fields, "dtype").value_or("");
}

// Returns the rows of verify, or those of compute.
const Rows& rows_for(const std::vector<Command>& commands, bool verifies) {
  return std::ranges::find(commands, verifies ? "verify" : "compute", &Command::name)->rows;
}

// Tells whether an option of that name is none of a job's fields.
bool is_of_batch(const std::string& field) {
  static VerifyCommand options;
  static const std::vector<Command> commands = job_commands(options);
  return field == "help" || field == "version" ||
         std::ranges::any_of(commands, [&](const Command& command) {
           const Row* row = command.rows.find(option_of(field));
           return row != nullptr && !row->traits.is_field;
         });
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
    if (list != nullptr && !is_file_name(*list->value))
      parse_numbers("--" + row.name(), *list->value);
  }
  parse_numbers("--groups", o.groups);
}

// Makes a job of the fields of a line. A field is an option of compute or verify, set through the
// same checks as a flag, or one of take_own_fields().
class JobMaker {
 public:
  // Takes what parse_manifest() does.
  JobMaker(const Fields& defaults, std::string folder)
      : defaults_(defaults), folder_(std::move(folder)) {
    bind_options(app_, commands_);
    for (const Command& command : commands_) {
      for (const Row& row : command.rows) {
        const FileUse use = row.traits.file;
        if (use != FileUse::read && use != FileUse::updated) continue;
        names_.push_back(with_underscores(row.name()) + std::string(kHashEnding));
      }
    }
    for (const Command& command : commands_) {
      for (const Row& row : command.rows) {
        if (!row.traits.is_field) continue;
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
    take_own_fields(fields, job);
    const Rows& rows = rows_for(commands_, job.verifies);
    for (const Field& field : defaults_) {
      if (has(fields, field.name) || rows.find(option_of(field.name)) == nullptr) continue;
      fields.push_back(field);
      job.spelled[field.name] = field.words;
    }
    options_ = {};
    options_.problem.dtype = job.options.problem.dtype;
    job.repeat = job.verifies ? "convgrad verify" : "convgrad";
    for (const Field& field : fields) set(field, job);
    options_.json = "-";  // the report, and no text
    options_.command_line = job.repeat;
    options_.files = rows.files();
    job.options = options_;
    check(job, rows);
    return job;
  }

 private:
  void check_name(const std::string& field) const {
    if (std::ranges::find(names_, field) != names_.end()) return;
    if (is_of_batch(field)) bad_input(field, ": is no field of a job");
    bad_input(one_line(field), ": is unknown", did_you_mean(field, names_),
              Hint("see convgrad batch --help"));
  }

  const Row& row_of(const std::string& name, const std::string& field, bool verifies) const {
    if (const Row* row = rows_for(commands_, verifies).find(name)) return *row;
    if (verifies) bad_input(field, ": is a field of jobs that compute, but this one verifies");
    bad_input(field, ": is a field of jobs that verify, but this one computes");
  }

  void set(const Field& field, BatchJob& job) {
    const std::string name = option_of(field.name);
    const Row& row = row_of(name, field.name, job.verifies);
    const bool is_list = std::holds_alternative<NumberList>(row.value);
    const bool is_again = std::holds_alternative<Again>(row.value);
    Words words = field.words;
    if (!is_list && !is_again && words.size() > 1) words = {joined(words, ",")};
    if (row.traits.file != FileUse::no && (!is_list || is_file_name(words))) {
      for (std::string& word : words) word = file_of(field.name, word);
    }
    row.option->clear();
    set_option(row, name, words);
    options_.given.push_back({"--" + name, row.traits.about});
    const char* const between = std::holds_alternative<bool*>(row.value) ? "=" : " ";
    for (const std::string& word : is_again ? words : Words{joined(words, ",")}) {
      job.repeat += cat(" --", name, between, shell_quoted(word));
    }
  }

  std::string file_of(const std::string& field, const std::string& path) const {
    if (is_standard_input(path)) {
      bad_input(field, ": - is standard input or output, which jobs cannot share",
                Hint("name a file"));
    }
    if (folder_.empty() || path.front() == '/') return path;
    return cat(folder_, folder_.back() == '/' ? "" : "/", path);
  }

  const Fields& defaults_;
  const std::string folder_;
  CLI::App app_;
  VerifyCommand options_;  // what app_ is bound to
  std::vector<Command> commands_ = job_commands(options_);
  std::vector<std::string> names_ = {"name", "command", "notes", "dtype"};
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
  return is_of_batch(field) ? message : field + message.substr(end);
}

Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const Fields& defaults) {
  Manifest manifest;
  manifest.name = name;
  JobMaker maker(defaults, folder);
  std::map<std::string, std::int64_t> names;  // name -> line
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_array = first != text.npos && text[first] == '[';
  for (const ManifestLine& line : is_array ? array_lines(std::string(text)) : json_lines(text)) {
    BatchJob& job = manifest.jobs.emplace_back();
    try {
      if (line.error) throw *line.error;
      BatchJob made = maker.make(line.fields, line.number);
      const auto [found, is_new] = names.emplace(made.name, line.number);
      if (!is_new) bad_input("name: '", made.name, "' is that of line ", found->second, " too");
      job = std::move(made);
    } catch (const Error& error) {
      job.line = line.number;
      job.name = cat("line ", line.number);
      job.refused = as_field(error.what());
      job.hint = error.hint();
    }
  }
  if (manifest.jobs.empty()) bad_input(name, ": has no job, expected one a line");
  return manifest;
}

Manifest read_manifest(const std::string& path, const Fields& defaults) {
  const std::string text = read_text(path, "", "JSON Lines");
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
