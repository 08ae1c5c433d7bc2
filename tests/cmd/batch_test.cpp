// batch_test.cpp - from the text of a manifest to jobs, and what is kept of them.
#include "batch/batch.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <thread>

#include "job/job_files.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::cli;
using convgrad::testing::read_file;
using convgrad::testing::TempDir;

namespace {

Manifest parsed(std::string_view text, const std::string& folder = "") {
  return parse_manifest(text, "jobs.jsonl", folder, {});
}

constexpr const char* kHead = R"("op":"conv2d","input":"x.npy","out_backprop":"dy.npy")";

// A line with the fields that every job needs, and more.
std::string line_with(const std::string& more) { return cat("{", kHead, ",", more, "}\n"); }

BatchJob job_of(const std::string& more, const std::string& folder = "") {
  Manifest manifest = parsed(line_with(more), folder);
  REQUIRE(manifest.jobs.size() == 1);
  CHECK(manifest.jobs[0].refused == "");
  return manifest.jobs[0];
}

// Of each bad line its number and what is wrong; they are taken from the jobs.
std::vector<std::string> take_bad_lines(Manifest& manifest) {
  std::vector<std::string> lines;
  for (const BatchJob& job : manifest.jobs) {
    if (!job.refused.empty()) lines.push_back(cat(job.line, " ", job.refused));
  }
  std::erase_if(manifest.jobs, [](const BatchJob& job) { return !job.refused.empty(); });
  return lines;
}

std::string message_of(const std::string& text) {
  const Manifest manifest = parsed(text);
  REQUIRE(manifest.jobs.size() == 1);
  return manifest.jobs[0].refused;
}

}  // namespace

TEST_CASE("fields are options") {
  const BatchJob job =
      job_of(R"("kernel":[3,2],"strides":"2,1","padding":"same","golden":"g.npy","rtol":1e-5,)"
             R"("filter-format":"OIHW","no_clobber":true,"algorithm":"direct","name":"a")");
  CHECK(job.name == "a");
  CHECK(job.line == 1);
  CHECK(job.verifies);
  CHECK(job.options.problem.kernel == Words{"3", "2"});
  CHECK(job.options.problem.strides == Words{"2,1"});
  CHECK(job.options.problem.padding == "same");
  CHECK(job.options.problem.filter_format == "OIHW");
  CHECK(job.options.verify.golden == "g.npy");
  CHECK(job.options.verify.rtol == 1e-5);
  CHECK(job.options.execution.no_clobber);
  CHECK(job.options.execution.algorithm == "direct");
  std::string read;
  for (const NamedFile& file : files_of(job.options, FileUse::read))
    read += cat(file.flag, " ", file.path, " ");
  CHECK(read == "--input x.npy --out-backprop dy.npy --golden g.npy ");
  CHECK(job.repeat.find("convgrad verify --op conv2d") == 0);
}

TEST_CASE("one job leaves nothing in the next") {
  const Manifest manifest =
      parsed(line_with(R"("strides":2,"bitwise":true,"golden":"a","name":"a")") +
             line_with(R"("rtol":1,"golden":"b")") + line_with(R"("output":"c","groups":2)"));
  REQUIRE(manifest.jobs.size() == 3);
  CHECK(manifest.jobs[1].options.problem.strides.empty());
  CHECK(!manifest.jobs[1].options.verify.bitwise);
  CHECK(manifest.jobs[1].options.verify.golden == "b");
  CHECK(manifest.jobs[1].name == "line 2");
  CHECK(!manifest.jobs[2].options.verify.rtol);
  CHECK(manifest.jobs[2].options.verify.golden.empty());
  CHECK(!manifest.jobs[2].verifies);
}

TEST_CASE("compute or verify") {
  CHECK(!job_of(R"("output":"o")").verifies);
  CHECK(job_of(R"("output":"o","golden":"g")").verifies);
  CHECK(job_of(R"("result":"r")").verifies);
  CHECK(job_of(R"("kernel":3)").verifies);
  CHECK(job_of(R"("output":"o","command":"verify")").verifies);
  CHECK(message_of(line_with(R"("command":"compute")")) ==
        "output is missing, expected a .npy file");
}

TEST_CASE("paths start from the manifest's folder") {
  const BatchJob job = job_of(R"("output":"/o","golden":"../g","filter_sizes":"f.npy")", "a/b");
  CHECK(job.options.problem.input == "a/b/x.npy");
  CHECK(job.options.problem.output == "/o");
  CHECK(job.options.verify.golden == "a/b/../g");
  CHECK(job.options.problem.filter_sizes == Words{"a/b/f.npy"});
  CHECK(job_of(R"("filter_sizes":[3,3,1,2])", "a").options.problem.filter_sizes ==
        Words{"3", "3", "1", "2"});
  CHECK(job_of(R"("kernel":3)", "/").options.problem.input == "/x.npy");
}

TEST_CASE("a job says its problem in a line, and nothing of it besides") {
  const std::string files = R"({"input":"x","out_backprop":"y","output":"o","problem":")";
  const Manifest manifest = parsed(files + R"(conv2d n2 h8 w9 c3 k8 r3 s3","dtype":"float32"})");
  REQUIRE(manifest.jobs.size() == 1);
  CHECK(manifest.jobs[0].options.problem.line == "conv2d n2 h8 w9 c3 k8 r3 s3");
  CHECK(manifest.jobs[0].options.problem.dtype == "float32");
  CHECK(manifest.jobs[0].repeat.find("--problem 'conv2d n2 h8 w9 c3 k8 r3 s3'") !=
        std::string::npos);
  CHECK(message_of(files + R"(conv2d n2","strides":2})") ==
        "strides: given with --problem, which sets it");
  CHECK(message_of(files + R"(conv2d n2 h8 w9 c3 k8 r3 s3 x4"})")
            .starts_with("problem: 'x4' is no word of a conv2d"));
}

TEST_CASE("what equal jobs have in common, and others not") {
  const Json base = job_of(R"("strides":2,"output":"o")").spelled;
  CHECK(job_of(R"("output":"o","strides":2)").spelled == base);
  CHECK(job_of(R"("output":"o","strides":2,"name":"n","notes":"n","golden":null)").spelled == base);
  for (const char* other :
       {R"("strides":1,"output":"o")", R"("strides":2,"output":"p")", R"("output":"o")",
        R"("strides":2,"output":"o","dilations":2)",
        R"("strides":2,"output":"o","dtype":"float32")",
        R"("strides":2,"output":"o","command":"verify")", R"("strides":2,"output":"o;padding,1:a")",
        R"("strides":2,"output":"o","padding":"a")",
        R"("strides":2,"output":"o","no_clobber":true)"}) {
    CAPTURE(other);
    CHECK(job_of(other).spelled != base);
  }
}

TEST_CASE("the objects of an array are jobs, by the lines on which they begin") {
  const std::string one = cat("{", kHead, R"(,"kernel":3})"), two = cat("{", kHead, "\n}");
  for (const std::string bom : {"", "\xef\xbb\xbf"}) {
    Manifest manifest = parsed(cat(bom, "\n[", one, ",\n\n", two, ", ", one, "\n, ", one, "]\n"));
    REQUIRE(take_bad_lines(manifest).empty());
    std::vector<std::int64_t> lines;
    for (const BatchJob& job : manifest.jobs) lines.push_back(job.line);
    CHECK(lines == std::vector<std::int64_t>{2, 4, 5, 6});
    CHECK(manifest.jobs[0].options.problem.kernel == Words{"3"});
  }
}

TEST_CASE("a bad element of an array is a bad line, and what is no JSON is all of it") {
  const std::string good = cat("{", kHead, "}"), named = cat("{", kHead, R"(,"name":"a"})");
  Manifest manifest = parsed(cat("[", named, ",\n{},\n3,\n[4,\n{}],", good, ",\n", named, "]"));
  const std::vector<std::string> bad = take_bad_lines(manifest);
  REQUIRE(manifest.jobs.size() == 2);
  CHECK(manifest.jobs[0].name == "a");
  CHECK(manifest.jobs[1].name == "line 5");
  REQUIRE(bad.size() == 4);
  CHECK(bad[0].starts_with("2 op is missing, expected conv2d"));
  CHECK(bad[1].starts_with("3 is a value, expected an object"));
  CHECK(bad[2].starts_with("4 is an array, expected an object"));
  CHECK(bad[3] == "6 name: 'a' is that of line 1 too");

  const auto whole = [&](const std::string& rest) {
    Manifest refused = parsed(cat("[", good, ",\n", rest));
    REQUIRE(refused.jobs.size() == 1);
    return take_bad_lines(refused).at(0);
  };
  CHECK(whole("{\"op\":1,\n\"op\":2}]") == "3 op: is there twice, expected once");
  CHECK(whole("{\"op\": x}]").starts_with("2 is not JSON at column 8, expected"));
  CHECK(whole("{}]\n{}").starts_with("3 is not JSON at column 1"));
  CHECK(whole(std::string(100, '[')).starts_with("2 nested too deeply"));
  CHECK(whole("{\"rtol\": 1e999}]").starts_with("2 has a number that is too large"));
}

TEST_CASE("messages name the field") {
  CHECK(message_of(line_with(R"("strdes":2)")) ==
        "strdes: is unknown; did you mean 'strides'?; see convgrad batch --help");
  CHECK(message_of(line_with(R"("explicit-paddings":"1,x")")) ==
        "explicit_paddings: 'x' is not a whole number");
  CHECK(message_of(line_with(R"("max_ulp":-1)")).find("max_ulp: '-1', expected") == 0);
  CHECK(message_of("{\"op\":1,\"op\":2}") == "op: is there twice, expected once");
  CHECK(message_of("{\"filter-like\":\"a\",\"filter_like\":\"a\"}") ==
        "filter_like: is there twice, expected once");
  CHECK(as_field("--filter-sizes (f.npy): empty") == "filter_sizes (f.npy): empty");
  CHECK(as_field("--strides is missing") == "strides is missing");
  CHECK(as_field("--memory-limit is 1 MiB, but") == "--memory-limit is 1 MiB, but");
  CHECK(as_field("x.npy: truncated") == "x.npy: truncated");
  for (const char* several : {"--rtol/--atol, --max-ulp and --bitwise exclude each other",
                              "--save-diff and --output: d.npy is given for both"}) {
    CHECK(as_field(several) == several);
  }
}

TEST_CASE("no job reads or writes what another one writes") {
  const TempDir dir;
  dir.write("there", "");
  std::filesystem::create_symlink("new", dir.file("link"));
  const auto line = [](const std::string& input, const std::string& output) {
    return cat(R"({"op":"conv2d","out_backprop":"dy","input":")", input, R"(","output":")", output,
               "\"}\n");
  };
  Manifest manifest =
      parsed(line("x", "new") + line("./new", "a") + line("there", "b") + line("x", "./there") +
                 line("there", "c") + line("x", "link") + line("in", "in") + line("a", "d"),
             dir.path());
  refuse_conflicts(manifest);
  std::vector<std::string> bad = take_bad_lines(manifest);
  REQUIRE(manifest.jobs.size() == 2);
  CHECK(manifest.jobs[1].line == 3);
  for (std::string& text : bad) text = text.substr(0, text.find(", and jobs run in any order"));
  const auto in_folder = [&](const char* name) { return cat(dir.path(), "/", name); };
  CHECK(bad ==
        std::vector<std::string>{cat("2 input: ", in_folder("./new"), " is written by line 1"),
                                 cat("4 output: ", in_folder("./there"), " is read by line 3"),
                                 cat("5 input: ", in_folder("there"), " is written by line 4"),
                                 cat("6 output: ", in_folder("link"), " is that of line 1 too"),
                                 cat("7 output: ", in_folder("in"),
                                     " is the job's input too, so it could not be run again"),
                                 // That line 2 would have written it is enough.
                                 cat("8 input: ", in_folder("a"), " is written by line 2")});
}

TEST_CASE("a state has the lines that were added to it") {
  const TempDir dir;
  const std::string path = dir.file("state");
  {
    BatchState state(path);
    CHECK(!state.has("0,0"));
    CHECK_THROWS_AS(BatchState{path}, Error);  // it is in use
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 50; ++j) state.add(cat(i, ",", j));
      });
    }
    for (std::thread& thread : threads) thread.join();
    state.check();
  }
  {
    BatchState state(path);
    CHECK(state.has("3,49"));
    CHECK(!state.has("4,0"));
  }
  CHECK(dir.names() == std::vector<std::string>{"state"});
  const std::string text = read_file(path);
  const std::size_t first_line = text.find('\n');
  for (std::size_t cut = 1; cut < text.size(); cut += 7) {
    const std::string beginning = dir.write("cut", text.substr(0, cut));
    if (cut <= first_line) {  // no state
      CHECK_THROWS_AS(BatchState{beginning}, Error);
      continue;
    }
    BatchState(beginning).add("next");  // without the line that was being written
    CHECK(read_file(beginning) == text.substr(0, text.rfind('\n', cut - 1) + 1) + "next\n");
    CHECK(BatchState(beginning).has("next"));
  }
}

TEST_CASE("what XML can hold") {
  CHECK(xml_text("a<b>&\"c'") == "a&#60;b&#62;&#38;&#34;c'");
  CHECK(xml_text("a\tb\nc\r") == "a&#9;b&#10;c&#13;");
  CHECK(xml_text("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") == "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  const std::string bad = "\xef\xbf\xbd";
  CHECK(xml_text(std::string("\0\x1f", 2)) == bad + bad);
  CHECK(xml_text("\xff|\x80|\xc3") == bad + "|" + bad + "|" + bad);
  CHECK(xml_text("\xc0\x80") == bad + bad);        // not the shortest spelling
  CHECK(xml_text("\xed\xa0\x80").find(bad) == 0);  // a surrogate
  CHECK(xml_text("\xef\xbf\xbe|\xef\xbf\xbf") == bad + "|" + bad);
  CHECK(xml_text("\xf4\x90\x80\x80").find(bad) == 0);  // beyond Unicode
  CHECK(xml_text("\xe2\x82").find(bad) == 0);
}
