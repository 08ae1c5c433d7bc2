// main.cpp - parses, dispatches, and turns every failure into one line and an exit status.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <span>
#include <string_view>

#include "batch/batch.hpp"
#include "bench/bench.hpp"
#include "commands.hpp"
#include "compare/compare.hpp"
#include "completion/completion.hpp"
#include "compute/compute.hpp"
#include "convgrad/problem.hpp"
#include "files/output_file.hpp"
#include "job/job_files.hpp"
#include "mpi/ranks.hpp"
#include "options/arguments.hpp"
#include "options/table.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// Makes only async-signal-safe calls: a temporary must not survive, whatever threads are doing.
void on_signal(int signal) {
  end_temporaries_in_signal_handler();
  const char text[] = "convgrad: interrupted\n";
  [[maybe_unused]] const auto ignored = write(STDERR_FILENO, text, sizeof text - 1);
  _exit(128 + signal);
}

// A file that is opened while 0, 1 or 2 is closed would be taken for a standard stream, and get
// what is printed. Now using them fails as before, but is never a file of ours.
void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // These end a process unless they are handled, or are sent by batch systems before they kill.
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPWR}) {
    struct sigaction old = {};
    // A signal that was ignored from the start (nohup) stays ignored.
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {
      sigaction(signal, &action, nullptr);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, with its message
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file over the limit
}

// Holds the status of a failure that has been told, and 0 before.
volatile std::sig_atomic_t told_status = 0;

// Handles what is thrown where nothing can catch it: memory that is missing for objects that are
// made before main(), CLI11's among them, or while another failure is being handled. It removes the
// temporaries too.
[[noreturn]] void on_terminate() {
  end_temporaries_in_signal_handler();
  if (told_status != 0) _exit(told_status);
  std::string_view text = "convgrad: error: internal error: nothing caught an exception\n";
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    text = "convgrad: error: out of memory; lower --memory-limit or --threads\n";
  } catch (...) {
  }
  [[maybe_unused]] const auto ignored = write(STDERR_FILENO, text.data(), text.size());
  _exit(static_cast<int>(ErrorKind::runtime));
}
// Runs before the constructors of objects, which may throw.
[[gnu::constructor(101)]] void handle_early_failures() { std::set_terminate(on_terminate); }

using Commands = std::vector<Command>;

// Returns the command of that name, or null; the main job is not named.
const Command* find_command(const Commands& commands, const std::string& word) {
  for (const Command& command : commands) {
    if (command.app->get_parent() != nullptr && command.app->check_name(word)) return &command;
  }
  return nullptr;
}

// Refuses what CLI11 did not recognise: an unknown option, a misspelt subcommand or a stray word.
void refuse_leftovers(const Commands& commands, const CLI::App& command) {
  const Words left = commands.front().app->remaining(true);
  if (left.empty()) return;
  const std::string word = left.front().substr(0, left.front().find('='));
  if (word == "--input-dilation" || word == "--lhs-dilation") {
    misuse("unknown option '", word, "'", Hint("put the zeros between x's pixels: y[:, ::2] = x"));
  }
  if (word.rfind('-', 0) == 0 && word.size() > 1) {
    misuse("unknown option '", word, "'", did_you_mean(word, option_names(command)),
           Hint("see convgrad --help"));
  }
  if (find_command(commands, word) != nullptr) {
    misuse("'", word, "' is a command of its own and takes no other");
  }
  if (op_from_name(word)) misuse("'", word, "' is an operation, expected as --op ", word);
  Words names;
  for (const Command& each : commands) names.push_back(each.name);
  misuse("'", word, "' is neither an option nor a command",
         did_you_mean(word, std::span(names).subspan(1)), Hint("see convgrad --help"));
}

// Returns "verify --help" for "help verify", with hyphens in place of underscores.
Words spelled(Words words) {
  std::ranges::transform(words, words.begin(), with_hyphens);
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

// Refuses "--raw=", since CLI11 takes a flag with an empty value for one without.
void refuse_empty_values(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      throw CLI::ValidationError(
          word.substr(0, word.size() - 1),
          "'' is empty, expected a value; leave the flag out for the default");
    }
  }
}

// Carries out --quiet. Files on standard output (-o -, --json) are written by its descriptor.
void turn_off_text(const Options& options) {
  if (options.execution.verbose) misuse("--quiet: given with --verbose, expected one of them");
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  if (nowhere == nullptr) {
    throw Error(ErrorKind::runtime, "--quiet: /dev/null: ", std::strerror(errno));
  }
  stdout = nowhere;
  Progress::turn_off();
}

struct Program {
  AllOptions all;
  Options* options = &all.compute;  // of the command that runs
  Commands commands = commands_of(all);
  CLI::App app{
      "convgrad computes the gradient of a convolution with respect to its filter,\n"
      "from .npy tensors to a .npy tensor, by TensorFlow's definitions.",
      "convgrad"};
  std::string command_name = "compute";
  std::vector<std::string> arguments;

  ReportPointer run() {
    std::string line = "convgrad";
    for (const std::string& word : arguments) line += " " + shell_quoted(word);
    bind_options(app, commands);
    const Words words = spelled(arguments);
    try {
      refuse_empty_values(words);
      // CLI11 takes the arguments in reverse order.
      app.parse(std::vector(words.rbegin(), words.rend()));
    } catch (const CLI::Success& success) {  // --help, --version
      TextWriter out;
      app.exit(success, out, std::cerr);
      std::fputs(out.str().c_str(), stdout);
      return nullptr;
    } catch (const CLI::ParseError& error) {
      // What the options say is not known, but how to say what is wrong with them should be.
      const Command& command = command_in(words);
      options = &command.options;
      options->json = last_value(words, "--json", "-");
      const std::string color = last_value(words, "--color");
      if (!color.empty()) options->color = color;
      command_name = command.name;
      options->command_line = line;
      misuse(error.what(), Hint("see convgrad --help"));
    }
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    const Command& command = command_in(chosen.empty() ? Words() : Words{chosen[0]->get_name()});
    command_name = command.name;
    options = &command.options;
    options->command_line = line;
    options->files = command.rows.files();
    refuse_leftovers(commands, *command.app);
    for (const Row& row : commands.front().rows) {  // a command's options stand behind its name
      if (chosen.empty() || row.option->count() == 0) continue;
      misuse("--", row.name(), ": given in front of ", command.name, ", expected behind it");
    }
    apply_variables(command);
    options->files = command.rows.files();
    if (options->quiet) turn_off_text(*options);
    std::string prefix;
    for (const auto& [option, variable] : options->variables) {
      const char* const value = std::getenv(variable.c_str());  // which set the option
      prefix += cat(variable, "=", shell_quoted(value == nullptr ? "" : value), " ");
    }
    options->command_line = prefix + line;
    check_standard_input(*options);
    check_report_replaces_nothing(*options);
    return run_command(command.name);
  }

  // Returns the command that the words name, if only in a line that cannot be parsed.
  const Command& command_in(const Words& words) const {
    for (const std::string& word : words) {
      if (const Command* command = find_command(commands, word)) return *command;
    }
    return commands.front();
  }

  ReportPointer run_command(const std::string& name) {
    if (name == "verify") return verify(all.verify);
    if (name == "compare") return compare(all.compare);
    if (name == "batch") return batch(all.batch);
    if (name == "bench") return bench(all.bench);
    if (name == "generate") return generate(all.generate);
    if (name == "reduce") return reduce(all.reduce);
    if (name == "inspect") return inspect(all.inspect);
    if (name == "info") return info(all.info);
    if (name == "completion") return completion(all.completion, commands);
    return compute(all.compute);
  }

  // Prints the text, unless JSON takes its place.
  int print(const Report& report) {
    if (options->json != "-") std::fputs(report.text().c_str(), stdout);
    if (options->json.empty()) return report.exit_status();
    return write_report(report.exit_status(), report.status(), report.json());
  }

  // Returns `status`, or that of a report that cannot be written if the command had no error.
  int write_report(int status, const char* word, const Json& fields) {
    const char* lead = "";  // of what write_file() throws
    try {
      check_report_replaces_nothing(*options);  // nor may one of an error replace a tensor
      Json json = common_json(command_name, options->command_line, options->tags());
      json.update(fields);
      json["status"] = word;
      json["exit_code"] = status;
      lead = "--json: ";
      write_file(options->json, json_text(json, 2) + "\n");
    } catch (const Error& error) {
      if (status < 2) say(*options, "error", cat(lead, error));
      return status < 2 ? static_cast<int>(error.kind()) : status;
    }
    return status;
  }

  // A message about a flag that was never given names the variable instead.
  std::string with_variable(const std::string& message) const {
    const std::size_t end = message.find_first_of(" :[(");
    const auto found = options->variables.find(message.substr(0, end));
    return found == options->variables.end() ? message : found->second + message.substr(end);
  }

  // Returns true if --mpi is given, or would be if the options could be parsed.
  bool asks_for_mpi() const {
    return options->execution.mpi || std::getenv("CONVGRAD_MPI") != nullptr ||
           std::ranges::any_of(arguments,
                               [](const auto& word) { return word.starts_with("--mpi"); });
  }

  int fail(const Error& error) {
    if (asks_for_mpi() && is_silent_rank()) {
      // mpirun ends all ranks when the first one fails, and rank 0 has to say why before that.
      std::signal(SIGTERM, [](int) { _exit(1); });
      sleep(10);  // goes on only if rank 0 has not failed
    }
    const std::string line = with_variable(error.what());
    const int status = static_cast<int>(error.kind());
    say(*options, "error", line);
    told_status = status;
    if (options->json.empty()) return status;
    return write_report(status, "error", {{"error", error_json(status, line, error.hint())}});
  }
};

// What stdio has buffered for standard output must get there, or the command has failed.
int flush_stdout(const Options& options, int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  say(options, "error", cat("cannot write to standard output: ", std::strerror(errno)));
  return status >= 2 ? status : static_cast<int>(ErrorKind::runtime);
}

int run(int argc, char** argv) {
  reserve_standard_streams();
  install_signal_handlers();
  setenv("OPENBLAS_NUM_THREADS", "1", 1);  // it would start threads that nothing here uses
  Program program;
  try {
    program.arguments.assign(argv + std::min(argc, 1), argv + argc);
    const ReportPointer report = program.run();
    return flush_stdout(*program.options, report ? program.print(*report) : 0);
  } catch (const SilentEnd&) {
    return 0;
  } catch (...) {
    return program.fail(handled_error("lower --memory-limit or --threads"));
  }
}

}  // namespace
}  // namespace convgrad::cli

int main(int argc, char** argv) {
  const int status = convgrad::cli::run(argc, argv);
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__) || defined(CONVGRAD_COVERAGE)
  return status;  // leaks are looked for, counts are written in the exit handlers
#else
  // Exit handlers are skipped: all of ours is written and closed by now, and libraries' may wait.
  _exit(status);
#endif
}
