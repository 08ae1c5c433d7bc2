// batch_manifest.cpp - from the lines of a manifest to jobs with options. A field is an option of
// compute or verify, set through the same checks as a flag, or one of a report's attrs.
#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/suggest.hpp"
#include "batch/batch.hpp"
#include "batch/csv.hpp"
#include "convgrad/problem.hpp"
#include "files/text_file.hpp"
#include "job/attributes.hpp"
#include "options/arguments.hpp"
#include "options/bind_options.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 200;
constexpr int kMaxDepth = 32;     // of JSON, for the sake of notes
constexpr int kMaxListDepth = 2;  // {"pads": [[0, 1], [1, 1]]}

// Options that belong to the whole batch.
constexpr std::array<std::string_view, 11> kNotFields = {
    "help",    "version",      "config",          "json", "color", "threads", "dry_run",
    "verbose", "memory_limit", "list_algorithms", "mpi"};
// What would make another of a job that is run again.
constexpr std::array<std::string_view, 2> kNotRepeatable = {"accumulate", "update_golden"};
// Fields that are no options. The last five are a report's attrs.
constexpr std::array<std::string_view, 8> kOwnFields = {
    "name", "command", "notes", "pads", "line", "filter_shape", "tensorflow_op", "dtype"};
constexpr std::array<std::string_view, 4> kHashFields = {"input_sha256", "out_backprop_sha256",
                                                         "result_sha256", "golden_sha256"};

template <std::size_t n>
bool is_in(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The fields of one line, in its order. No words: not given.
struct Field {
  std::string name;
  Words words;
};
using Fields = std::vector<Field>;

template <typename... Parts>
[[noreturn]] void refuse(const std::string& field, const Parts&... parts) {
  throw Error(ErrorKind::input, cat(field, ": ", parts...));
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// ---- JSON Lines
// ----------------------------------------------------------------------------------

void add_words(const std::string& field, const Json& value, Words& words, int depth = 0) {
  if (value.is_array()) {
    if (depth == kMaxListDepth) refuse(field, "lists within lists of lists, expected one list");
    for (const Json& element : value) add_words(field, element, words, depth + 1);
  } else if (value.is_string()) {
    if (!value.get_ref<const std::string&>().empty()) words.push_back(value.get<std::string>());
  } else if (value.is_number() || value.is_boolean()) {
    words.push_back(value.dump());
  } else if (value.is_object()) {
    refuse(field, "an object, expected a string, a number, true, false or a list");
  }
}

// Refuses what nlohmann takes in silence: a key that is there twice, and any depth.
Json parse_object(const std::string& line) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) {
      throw Error(ErrorKind::input, "nested too deeply, expected fields with values or lists");
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string name = with_underscores(parsed.get<std::string>());
      if (!keys.back().insert(name).second) refuse(name, "is there twice, expected once");
    }
    return true;
  };
  Json object;
  try {
    object = Json::parse(line, check);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorKind::input,
                cat("is not JSON at column ", error.byte,
                    ", expected an object such as {\"op\": \"conv2d\", ...} on a line of its own"));
  } catch (const Json::out_of_range&) {
    throw Error(ErrorKind::input, "has a number that is too large");
  }
  if (!object.is_object()) {
    throw Error(ErrorKind::input, cat("is ", object.is_array() ? "an array" : "a value",
                                      ", expected an object such as {\"op\": \"conv2d\", ...}"));
  }
  return object;
}

Fields json_fields(const std::string& line) {
  const Json object = parse_object(line);
  Fields fields;
  for (const auto& [key, value] : object.items()) {
    Field field{with_underscores(key), {}};
    if (field.name != "notes") add_words(field.name, value, field.words);
    fields.push_back(std::move(field));
  }
  return fields;
}

// ---- CSV
// -----------------------------------------------------------------------------------------

Fields csv_fields(const CsvRow& header, const CsvRow& row) {
  if (!row.error.empty()) throw Error(ErrorKind::input, row.error);
  if (row.cells.size() != header.cells.size()) {
    throw Error(ErrorKind::input, cat(row.cells.size(), " cells, expected ", header.cells.size(),
                                      " as in line ", header.line));
  }
  Fields fields;
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    Field field{with_underscores(header.cells[i]), {}};
    if (!row.cells[i].empty()) field.words.push_back(row.cells[i]);
    fields.push_back(std::move(field));
  }
  return fields;
}

void check_header(const CsvRow& header) {
  if (!header.error.empty()) throw Error(ErrorKind::input, header.error);
  std::set<std::string> names;
  for (const std::string& cell : header.cells) {
    if (cell.empty()) {
      throw Error(ErrorKind::input, cat("column ", names.size() + 1, " has no field name"));
    }
    if (!names.insert(with_underscores(cell)).second) refuse(cell, "is there twice, expected once");
  }
}

// ---- From fields to jobs
// -------------------------------------------------------------------------

class JobMaker {
 public:
  JobMaker(const Options& defaults, std::string folder)
      : defaults_(defaults), folder_(std::move(folder)) {
    bind_options(app_, options_);
    verify_ = app_.get_subcommand("verify");
    names_.assign(kOwnFields.begin(), kOwnFields.end());
    names_.insert(names_.end(), kHashFields.begin(), kHashFields.end());
    for (const CLI::App* app : {&app_, verify_}) {
      for (std::string name : option_names(*app)) {
        name = with_underscores(name.substr(2));
        if (!is_in(kNotFields, name) && !is_in(kNotRepeatable, name)) names_.push_back(name);
      }
    }
  }

  void check_name(const std::string& field) const {
    if (std::find(names_.begin(), names_.end(), field) != names_.end()) return;
    if (is_in(kNotRepeatable, field)) {
      refuse(field, "is no field, since a job that is run again would do something else");
    }
    if (is_in(kNotFields, field)) refuse(field, "is no field of a job, but of the whole batch");
    refuse(one_line(field), "is unknown", did_you_mean(field, names_),
           "; see convgrad batch --help");
  }

  BatchJob make(Fields fields, std::int64_t line) {
    for (const Field& field : fields) check_name(field.name);
    fields.erase(std::remove_if(fields.begin(), fields.end(),
                                [](const Field& field) { return field.words.empty(); }),
                 fields.end());
    BatchJob job;
    job.line = line;
    job.expected = Json::object();
    job.spelled = spelled(fields);
    take_own_fields(fields, job);
    set_options(fields, job);
    check(job);
    return job;
  }

  // The output of a line that may be malformed otherwise; "" if there is none.
  std::string output_of(const Fields& fields) const {
    const Field* output = find(fields, "output");
    const bool is_word = output != nullptr && output->words.size() == 1;
    return is_word && !output->words[0].empty() ? resolved(output->words[0]) : "";
  }

 private:
  static std::string spelled(Fields fields) {
    std::sort(fields.begin(), fields.end(),
              [](const Field& a, const Field& b) { return a.name < b.name; });
    std::string text;
    for (const Field& field : fields) {
      if (field.name == "name" || field.name == "notes") continue;
      text += field.name;
      for (const std::string& word : field.words) text += cat(",", word.size(), ":", word);
      text += ";";
    }
    return text;
  }

  // In Fields, const or not; null if there is none.
  template <typename AnyFields>
  static auto find(AnyFields& fields, const std::string& name) -> decltype(fields.data()) {
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& field) { return field.name == name; });
    return found == fields.end() ? nullptr : &*found;
  }

  static std::string word_of(const Field& field) {
    if (field.words.size() != 1) refuse(field.name, "a list, expected one value");
    return field.words[0];
  }

  // The word of a field that is no option; the field is then gone.
  static std::optional<std::string> take(Fields& fields, const std::string& name) {
    Field* field = find(fields, name);
    if (field == nullptr) return {};
    const std::string word = word_of(*field);
    fields.erase(fields.begin() + (field - fields.data()));
    return word;
  }

  static void take_own_fields(Fields& fields, BatchJob& job) {
    if (Field* notes = find(fields, "notes"))
      fields.erase(fields.begin() + (notes - fields.data()));
    job.name = take(fields, "name").value_or(cat("line ", job.line));
    if (job.name.size() > kMaxNameBytes) {
      refuse("name", job.name.size(), " bytes, expected at most ", kMaxNameBytes);
    }
    job.verifies = find(fields, "output") == nullptr || find(fields, "golden") != nullptr ||
                   find(fields, "result") != nullptr;
    if (const auto command = take(fields, "command")) {
      const std::vector<std::string> known = {"compute", "verify"};
      if (*command != known[0] && *command != known[1]) {
        refuse("command", "'", *command, "' is unknown, expected ", join_or(known),
               did_you_mean(*command, known));
      }
      job.verifies = *command == "verify";
    }
    for (const std::string_view name : kHashFields) take_hash(fields, std::string(name), job);
    for (const char* name : {"dtype", "line", "tensorflow_op"}) {
      if (const auto word = take(fields, name)) job.expected[name] = *word;
    }
    if (job.expected.contains("tensorflow_op") && find(fields, "op") == nullptr) {
      fields.push_back({"op", {job.expected["tensorflow_op"].get<std::string>()}});
    }
    take_pads(fields);
    take_filter_shape(fields, job);
  }

  static void take_hash(Fields& fields, const std::string& name, BatchJob& job) {
    const auto word = take(fields, name);
    if (!word) return;
    std::string digits = *word;
    for (char& c : digits) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != digits.npos) {
      refuse(name, "'", *word, "', expected 64 hexadecimal digits, as sha256sum prints them");
    }
    const std::string tensor = name.substr(0, name.size() - std::strlen("_sha256"));
    if (find(fields, tensor) == nullptr) refuse(name, "is given, but ", tensor, " is not");
    job.hashes[tensor] = "sha256:" + digits;
  }

  // Resolved pads, as a report has them.
  static void take_pads(Fields& fields) {
    Field* pads = find(fields, "pads");
    if (pads == nullptr) return;
    for (const char* other : {"padding", "explicit_paddings"}) {
      if (find(fields, other) != nullptr)
        refuse("pads", "given with ", other, ", expected only one");
    }
    pads->name = "explicit_paddings";
    fields.push_back({"padding", {"EXPLICIT"}});
  }

  // A report's filter_shape, in the order of filter_format: it says what the filter is, and is
  // compared with what comes out.
  static void take_filter_shape(Fields& fields, BatchJob& job) {
    Field* field = find(fields, "filter_shape");
    if (field == nullptr) return;
    const std::vector<std::int64_t> shape = parse_numbers("filter_shape", field->words);
    fields.erase(fields.begin() + (field - fields.data()));
    job.expected["filter_shape"] = shape;
    for (const char* other : {"filter_sizes", "kernel", "filter_like"}) {
      if (find(fields, other) != nullptr) return;
    }
    Field* format = find(fields, "filter_format");
    std::string order = format == nullptr ? "HWIO" : word_of(*format);
    for (char& c : order) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const bool tensorflows = order.size() >= 2 && order.substr(order.size() - 2) == "IO";
    Field filter{tensorflows ? "filter_sizes" : "kernel", {}};
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const bool is_channel = i < order.size() && (order[i] == 'I' || order[i] == 'O');
      if (tensorflows || !is_channel) filter.words.push_back(std::to_string(shape[i]));
    }
    fields.push_back(std::move(filter));
  }

  std::string resolved(const std::string& path) const {
    if (folder_.empty() || path.front() == '/') return path;
    return cat(folder_, folder_.back() == '/' ? "" : "/", path);
  }

  // The option that a field sets.
  CLI::Option& option_of(const std::string& field, bool verifies) {
    CLI::Option* option =
        (verifies ? verify_ : &app_)->get_option_no_throw(with_hyphens("--" + field));
    if (option != nullptr) return *option;
    if (verifies) refuse(field, "is a field of jobs that compute, but this one verifies");
    refuse(field, "is a field of jobs that verify, but this one computes");
  }

  void set_options(const Fields& fields, BatchJob& job) {
    options_ = defaults_;
    job.repeat = job.verifies ? "convgrad verify" : "convgrad";
    for (const Field& field : fields) {
      CLI::Option& option = option_of(field.name, job.verifies);
      Words words = field.words;
      const bool is_list = option.get_items_expected_max() > 1;
      if (!is_list && words.size() > 1) words = {joined(words)};
      const std::string type = option.get_type_name();
      if (type == "FILE" || (field.name == "filter_sizes" && is_file_name(words))) {
        take_file(field.name, words[0], job);
      }
      if (type == "DIR") words[0] = resolved(words[0]);
      const std::string name = with_hyphens("--" + field.name).substr(2);
      option.clear();
      set_option(option, name, words);
      const bool is_flag = option.get_expected_max() == 0;
      job.repeat += cat(" --", name, is_flag ? "=" : " ", shell_quoted(joined(words)));
    }
    repeat_defaults(fields, job);
    job.options = options_;
    job.options.json = "-";  // the report, and no text
    job.options.command_line = job.repeat;
  }

  // What the batch's own options say of every job.
  void repeat_defaults(const Fields& fields, BatchJob& job) const {
    const ExecutionOptions& all = defaults_.execution;
    for (const auto& [name, value] :
         {std::pair{"backend", &all.backend}, {"algorithm", &all.algorithm}}) {
      if (*value == "auto" || find(fields, name) != nullptr) continue;
      job.repeat += cat(" --", name, " ", shell_quoted(*value));
    }
  }

  void take_file(const std::string& field, std::string& path, BatchJob& job) const {
    if (path == "-") {
      refuse(field, "- is standard input or output, which jobs cannot share; name a file");
    }
    path = resolved(path);
    if (field != "output") job.inputs.emplace_back(field, path);
  }

  static std::string joined(const Words& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
    return text;
  }

  // What can be seen without opening a file.
  static void check(const BatchJob& job) {
    const ProblemOptions& o = job.options.problem;
    check_op(o);
    const std::pair<const char*, const std::string*> files[] = {
        {"input", &o.input}, {"out_backprop", &o.out_backprop}, {"output", &o.output}};
    for (const auto& [field, path] : files) {
      const bool is_needed = path != &o.output || !job.verifies;
      if (is_needed && path->empty()) {
        throw Error(ErrorKind::input, cat(field, " is missing, expected a .npy file"));
      }
    }
    if (!is_file_name(o.filter_sizes)) parse_numbers("--filter-sizes", o.filter_sizes);
    const std::pair<const char*, const Words*> lists[] = {
        {"--kernel", &o.kernel},
        {"--strides", &o.strides},
        {"--dilations", &o.dilations},
        {"--explicit-paddings", &o.explicit_paddings},
        {"--groups", &o.groups}};
    for (const auto& [flag, words] : lists) parse_numbers(flag, *words);
  }

  const Options& defaults_;
  const std::string folder_;
  CLI::App app_;
  CLI::App* verify_ = nullptr;
  Options options_;  // what app_ is bound to
  std::vector<std::string> names_;
};

// ---- The whole manifest
// --------------------------------------------------------------------------

class ManifestReader {
 public:
  ManifestReader(const std::string& name, const std::string& folder, const Options& defaults)
      : maker_(defaults, folder) {
    result_.name = name;
  }

  Manifest read(std::string_view text) {
    if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const std::size_t dot = result_.name.rfind('.');
    const std::string ending = dot == std::string::npos ? "" : result_.name.substr(dot);
    const bool is_csv =
        ending == ".csv" || (ending != ".jsonl" && first != text.npos && text[first] != '{');
    if (is_csv) {
      read_csv(text);
    } else {
      read_json_lines(text);
    }
    if (result_.jobs.empty() && result_.bad.empty()) {
      throw Error(ErrorKind::input, cat(result_.name, ": has no job, expected one a line"));
    }
    return std::move(result_);
  }

 private:
  void read_json_lines(std::string_view text) {
    std::int64_t number = 1;
    for (std::size_t at = 0; at < text.size(); ++number) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      at = end + 1;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      add(number, line.size(), [&] { return json_fields(std::string(line)); });
    }
  }

  void read_csv(std::string_view text) {
    const std::vector<CsvRow> rows = parse_csv(text);
    if (rows.empty()) return;
    try {
      check_header(rows[0]);
      for (const std::string& cell : rows[0].cells) maker_.check_name(with_underscores(cell));
    } catch (const Error& error) {  // the rows under it mean nothing then
      result_.bad.push_back({rows[0].line, as_field(error.what()), ""});
      return;
    }
    for (std::size_t i = 1; i < rows.size(); ++i) {
      std::size_t size = 0;
      for (const std::string& cell : rows[i].cells) size += cell.size();
      add(rows[i].line, size, [&] { return csv_fields(rows[0], rows[i]); });
    }
  }

  template <typename FieldsOf>
  void add(std::int64_t line, std::size_t size, const FieldsOf& fields_of) {
    Fields fields;
    try {
      if (size > kMaxLineBytes) {
        throw Error(ErrorKind::input, cat("is ", size, " bytes, expected at most ", kMaxLineBytes));
      }
      fields = fields_of();
      BatchJob job = maker_.make(fields, line);
      const auto [found, is_new] = lines_.emplace(job.name, line);
      if (!is_new) refuse("name", "'", job.name, "' is that of line ", found->second, " too");
      result_.jobs.push_back(std::move(job));
    } catch (const Error& error) {
      result_.bad.push_back({line, as_field(error.what()), maker_.output_of(fields)});
    }
  }

  JobMaker maker_;
  Manifest result_;
  std::map<std::string, std::int64_t> lines_;  // by name
};

}  // namespace

std::string as_field(const std::string& message) {
  if (message.rfind("--", 0) != 0) return message;
  const std::size_t name_end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz-");
  const bool is_several =
      name_end != message.npos && (message[name_end] == '/' || message[name_end] == ',' ||
                                   message.compare(name_end, 7, " and --") == 0);
  if (is_several) return message;  // of one name alone it would be a mixture
  const std::size_t end = std::min(message.find_first_of(" :[("), message.size());
  const std::string field = with_underscores(message.substr(2, end - 2));
  return is_in(kNotFields, field) ? message : field + message.substr(end);
}

Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const Options& defaults) {
  return ManifestReader(name, folder, defaults).read(text);
}

Manifest read_manifest(const std::string& path, const Options& defaults) {
  const std::string text = read_text(path, {"", "JSON Lines or CSV"});
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
