// batch_test.cpp - from the text of a manifest to jobs, their order, what is kept of them.
#include "batch/batch.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <thread>

#include "job/job_files.hpp"
#include "report/xml_text.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::cli;
using convgrad::testing::read_file;
using convgrad::testing::TempDir;

namespace {

Manifest parsed(std::string_view text, const std::string& name = "jobs.jsonl",
                const std::string& folder = "") {
  return parse_manifest(text, name, folder, Options{});
}

constexpr const char* kHead = R"("op":"conv2d","input":"x.npy","out_backprop":"dy.npy")";

// A line with the fields that every job needs, and more.
std::string line_with(const std::string& more) { return cat("{", kHead, ",", more, "}\n"); }

BatchJob job_of(const std::string& more, const std::string& folder = "") {
  Manifest manifest = parsed(line_with(more), "jobs.jsonl", folder);
  for (const BadLine& bad : manifest.bad) FAIL(bad.message);
  REQUIRE(manifest.jobs.size() == 1);
  return manifest.jobs[0];
}

std::string message_of(const std::string& text, const std::string& name = "jobs.jsonl") {
  const Manifest manifest = parsed(text, name);
  REQUIRE(manifest.bad.size() == 1);
  CHECK(manifest.jobs.empty());
  return manifest.bad[0].message;
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
  CHECK(job.inputs == std::vector<std::pair<std::string, std::string>>{
                          {"input", "x.npy"}, {"out_backprop", "dy.npy"}, {"golden", "g.npy"}});
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

TEST_CASE("what is not given") {
  for (const char* nothing : {"null", "\"\"", "[]"}) {
    const BatchJob job =
        job_of(cat(R"("output":"o","strides":)", nothing, R"(,"golden":)", nothing));
    CHECK(job.options.problem.strides.empty());
    CHECK(!job.verifies);
  }
}

TEST_CASE("a report's attrs") {
  const BatchJob job = job_of(
      R"("output":"o","filter_shape":[6,2,3,2],"filter_format":"OIHW","groups":2,"dtype":"float32",)"
      R"("pads":[[0,1],[2,3]],"tensorflow_op":"Conv2DBackpropFilter","line":"conv2d ...")");
  CHECK(job.options.problem.kernel == Words{"3", "2"});
  CHECK(job.options.problem.padding == "EXPLICIT");
  CHECK(job.options.problem.explicit_paddings == Words{"0", "1", "2", "3"});
  CHECK(job.expected == Json{{"dtype", "float32"},
                             {"line", "conv2d ..."},
                             {"tensorflow_op", "Conv2DBackpropFilter"},
                             {"filter_shape", {6, 2, 3, 2}}});
  CHECK(job_of(R"("filter_shape":[3,3,2,4])").options.problem.filter_sizes ==
        Words{"3", "3", "2", "4"});
  const Manifest manifest =
      parsed(R"({"tensorflow_op":"Conv2DBackpropFilter","input":"x","out_backprop":"y"})");
  REQUIRE(manifest.jobs.size() == 1);
  CHECK(manifest.jobs[0].options.problem.op == "Conv2DBackpropFilter");
}

TEST_CASE("hashes") {
  const std::string digits(64, 'A');
  CHECK(job_of(cat(R"("input_sha256":")", digits, "\"")).hashes.at("input") ==
        "sha256:" + std::string(64, 'a'));
  CHECK(message_of(line_with(cat(R"("input_sha256":"sha256:)", digits, "\"")))
            .find("input_sha256: 'sha256:") == 0);
  CHECK(message_of(line_with(cat(R"("golden_sha256":")", digits, "\""))) ==
        "golden_sha256: is given, but golden is not");
}

TEST_CASE("what equal jobs have in common, and others not") {
  const std::string base = job_of(R"("strides":2,"output":"o")").spelled;
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

TEST_CASE("CSV and JSON Lines are told apart") {
  const std::string csv = "op,input,out_backprop,kernel\nconv2d,x.npy,dy.npy,\"3,3\"\n";
  const std::string json = line_with(R"("kernel":3)");
  for (const char* name : {"jobs.csv", "jobs", "jobs.txt", "standard input"}) {
    CAPTURE(name);
    const Manifest manifest = parsed(csv, name);
    REQUIRE(manifest.jobs.size() == 1);
    CHECK(manifest.jobs[0].line == 2);
    CHECK(manifest.jobs[0].options.problem.kernel == Words{"3,3"});
  }
  for (const char* name : {"jobs.jsonl", "jobs", "standard input"}) {
    CHECK(parsed(json, name).jobs.size() == 1);
    CHECK(parsed("\xef\xbb\xbf\n  " + json, name).jobs.size() == 1);
  }
  CHECK(parsed(csv, "jobs.jsonl").bad.size() == 2);
  CHECK(parsed(json, "jobs.csv").bad.size() == 1);
  CHECK(parsed("\xef\xbb\xbf" + csv, "jobs.csv").jobs.size() == 1);
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
  CHECK(message_of("op,inptu\nconv2d,x\n", "a.csv").find("inptu: is unknown") == 0);
  CHECK(as_field("--filter-sizes (f.npy): empty") == "filter_sizes (f.npy): empty");
  CHECK(as_field("--strides is missing") == "strides is missing");
  CHECK(as_field("--memory-limit is 1 MiB, but") == "--memory-limit is 1 MiB, but");
  CHECK(as_field("x.npy: truncated") == "x.npy: truncated");
  for (const char* several : {"--rtol/--atol, --max-ulp and --bitwise exclude each other",
                              "--save-diff and --output: d.npy is given for both"}) {
    CHECK(as_field(several) == several);
  }
}

TEST_CASE("good lines stay when others are bad, each with its number") {
  const Manifest manifest = parsed("\n" + line_with(R"("name":"a")") + "{}\n\n[]\n" +
                                   line_with(R"("name":"a")") + line_with(R"("name":"b")"));
  REQUIRE(manifest.jobs.size() == 2);
  CHECK(manifest.jobs[0].line == 2);
  CHECK(manifest.jobs[1].line == 7);
  REQUIRE(manifest.bad.size() == 3);
  CHECK(manifest.bad[0].line == 3);
  CHECK(manifest.bad[1].line == 5);
  CHECK(manifest.bad[2].line == 6);
  CHECK(manifest.bad[2].message == "name: 'a' is that of line 2 too");
}

TEST_CASE("jobs wait for those whose files they share") {
  const TempDir dir;
  const std::string there = dir.write("there", "");
  const auto line = [](const char* name, const std::string& input, const std::string& output) {
    return cat(R"({"op":"conv2d","out_backprop":"dy","name":")", name, R"(","input":")", input,
               output.empty() ? "" : R"(","output":")", output, "\"}\n");
  };
  Manifest manifest =
      parsed(line("0", "x", "new") + line("1", "./new", "") + line("2", "there", "") +
                 line("3", "x", "./there") + line("4", "there", "") + line("5", "x", ""),
             "jobs.jsonl", dir.path());
  const BatchOrder order = order_jobs(manifest, {});
  using Lists = std::vector<std::vector<std::size_t>>;
  CHECK(manifest.bad.empty());
  CHECK(order.needs == Lists{{}, {0}, {}, {}, {3}, {}});
  CHECK(order.follows == Lists{{}, {}, {}, {2}, {}, {}});

  // But not over what the list is given, and has not made.
  const FirstReads reads = first_reads(manifest);
  CHECK(reads.at(file_key(dir.file("new"))).is_made);
  CHECK(reads.at(file_key(there)).line == 3);
  CHECK(!reads.at(file_key(there)).is_made);
  order_jobs(manifest, reads);
  REQUIRE(manifest.bad.size() == 1);
  CHECK(manifest.bad[0].line == 4);
  CHECK(manifest.bad[0].message ==
        cat("output: ", dir.path(), "/./there is read by line 3, which could not be run again"));

  manifest = parsed(line("a", "x", "out") + line("b", "x", "./out") + line("c", "in", "in"),
                    "jobs.jsonl", dir.path());
  order_jobs(manifest, {});
  CHECK(manifest.jobs.size() == 1);
  REQUIRE(manifest.bad.size() == 2);
  CHECK(manifest.bad[0].line == 2);
  CHECK(manifest.bad[1].line == 3);
}

TEST_CASE("what a malformed line would have written is not read") {
  const TempDir dir;
  const auto line = [](const std::string& input, const std::string& output, const char* more = "") {
    return cat(R"({"op":"conv2d","out_backprop":"dy","input":")", input, R"(","output":")", output,
               "\"", more, "}\n");
  };
  const char* const bad = R"(,"paddin":1)";
  Manifest manifest = parsed(line("a", "0") + line("x", "a", bad) + line("a", "1") +
                                 line("./a", "2") + line("b", "b", bad) + line("b", "3") +
                                 line("x", "b") + line("b", "4") + line("x", "4") + line("4", "5"),
                             "jobs.jsonl", dir.path());
  const BatchOrder order = order_jobs(manifest, {});
  REQUIRE(manifest.jobs.size() == 7);
  // The second line with output 4 is malformed too.
  CHECK(order.malformed == std::vector<std::int64_t>{0, 2, 2, 5, 0, 0, 9});
  CHECK(order.needs[5] == std::vector<std::size_t>{4});
}

TEST_CASE("each job is in one shard, with those whose files it shares") {
  const auto line = [](int name, const std::string& input, const std::string& output) {
    return cat(R"({"op":"conv2d","out_backprop":"dy","name":")", name, R"(","input":")", input,
               R"(","output":")", output, "\"}\n");
  };
  const TempDir dir;
  // 0, 2 and 5 are connected, 3 and 4 too.
  const std::string text = line(0, "x", "a") + line(1, "x", "b") + line(2, "a", "c") +
                           line(3, "d", "e") + line(4, "x", "d") + line(5, "c", "f") + "{}\n" +
                           line(7, "x", "g");
  for (const int parts : {1, 2, 3, 9}) {
    std::vector<std::string> shards(8);
    for (int part = 1; part <= parts; ++part) {
      Manifest manifest = parsed(text, "jobs.jsonl", dir.path());
      BatchOrder order = order_jobs(manifest, {});
      keep_shard(cat(part, "/", parts), manifest, order);
      CHECK(manifest.shard == cat(part, "/", parts));
      CHECK(manifest.bad.size() == 1);
      REQUIRE(order.needs.size() == manifest.jobs.size());
      REQUIRE(order.malformed.size() == manifest.jobs.size());
      for (std::size_t i = 0; i < manifest.jobs.size(); ++i) {
        const std::string& name = manifest.jobs[i].name;
        shards[static_cast<std::size_t>(name[0] - '0')] += cat(part);
        for (const std::size_t j : order.needs[i]) {
          CHECK(manifest.jobs[j].options.problem.output == manifest.jobs[i].options.problem.input);
        }
        CHECK(order.needs[i].size() == (name == "2" || name == "5" ? 1 : 0));
        CHECK(order.follows[i].size() == (name == "4" ? 1 : 0));
      }
    }
    using Shards = std::vector<std::string>;
    const Shards of_all = {"1", "1", "1", "1", "1", "1", "", "1"},
                 of_two = {"1", "2", "1", "1", "1", "1", "", "2"},
                 of_three = {"1", "2", "1", "3", "3", "1", "", "1"},
                 of_nine = {"1", "2", "1", "3", "3", "1", "", "4"};
    CHECK(shards == (parts == 1 ? of_all : parts == 2 ? of_two : parts == 3 ? of_three : of_nine));
  }
}

TEST_CASE("two jobs do not save their small problems in one folder") {
  for (const bool exists : {false, true}) {
    const TempDir dir;
    Manifest manifest = parsed(line_with(R"("result":"r","save_repro":"a")") +
                                   line_with(R"("result":"s","save_repro":"b")") +
                                   line_with(R"("result":"t","save_repro":"./a")"),
                               "jobs.jsonl", dir.path());
    if (exists) std::filesystem::create_directory(dir.file("a"));
    order_jobs(manifest, {});
    CHECK(manifest.jobs.size() == 2);
    REQUIRE(manifest.bad.size() == 1);
    CHECK(manifest.bad[0].line == 3);
    CHECK(manifest.bad[0].message.find("save_repro: ") == 0);
    CHECK(manifest.bad[0].message.find("is that of line 1 too") != std::string::npos);
  }
}

TEST_CASE("the line that repeats a job says what the whole batch was told") {
  Options all;
  all.execution.backend = "cpu";
  all.execution.algorithm = "direct";
  const auto repeat = [&](const std::string& more) {
    const Manifest manifest = parse_manifest(line_with(more), "jobs.jsonl", "", all);
    REQUIRE(manifest.jobs.size() == 1);
    return manifest.jobs[0].repeat;
  };
  CHECK(repeat(R"("output":"o")").find(" --backend cpu --algorithm direct") != std::string::npos);
  const std::string own = repeat(R"("output":"o","algorithm":"im2col_gemm")");
  CHECK(own.find(" --algorithm im2col_gemm") != std::string::npos);
  CHECK(own.find("direct") == std::string::npos);
  CHECK(job_of(R"("output":"o")").repeat.find("--algorithm") == std::string::npos);
}

TEST_CASE("a state comes back as it was written") {
  const TempDir dir;
  const std::string path = dir.file("state");
  {
    BatchState state(path, true);
    CHECK(state.find("job") == nullptr);
    CHECK_THROWS_AS(BatchState(path, true), Error);  // it is in use
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 50; ++j) {
          const std::string job = cat(i, ",", j);
          state.begin(job, "\xff\n\"");
          state.end(job,
                    BatchState::Record{"\xff\n\"", "ok", "out", {{"input", "a"}, {"golden", "b"}}});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    state.begin("lost", "its name");
    state.begin("failed", "");
    state.end("failed", std::nullopt);
    CHECK(BatchState(path, false).find("3,49") != nullptr);  // on the disk before write()
    state.write();
  }
  BatchState state(path, true);
  CHECK(state.was_lost("lost"));
  CHECK(!state.was_lost("failed"));
  CHECK(!state.was_lost("3,49"));
  const BatchState::Record* record = state.find("3,49");
  REQUIRE(record != nullptr);
  CHECK(record->output == "out");
  CHECK(record->files.at("golden") == "b");
  CHECK(state.find("4,0") == nullptr);
  state.end("3,49", BatchState::Record{"new", "match", "", {}});
  state.write();
  CHECK(BatchState(path, false).find("3,49")->files.empty());
  CHECK(BatchState(path, false).find("0,0") != nullptr);
  CHECK(BatchState(path, false).was_lost("lost"));
  CHECK(dir.names() == std::vector<std::string>{"state"});
  const std::string text = read_file(path);
  const std::size_t first_line = text.find('\n');
  for (std::size_t cut = 1; cut < text.size(); cut += 97) {
    const std::string beginning = dir.write("cut", text.substr(0, cut));
    if (cut < first_line) {  // no state
      CHECK_THROWS_AS(BatchState(beginning, false), Error);
      continue;
    }
    BatchState cut_off(beginning, true);  // without the line that was being written
    cut_off.begin("next", "");
    CHECK(read_file(beginning).substr(0, cut).starts_with(
        text.substr(0, text.rfind('\n', cut - 1) + 1)));
    CHECK(BatchState(beginning, false).was_lost("next"));
  }
}

TEST_CASE("what XML can hold") {
  CHECK(xml_text("a<b>&\"c'") == "a&#60;b&#62;&#38;&#34;c'");
  for (const std::string text : {"a<b>&\"c'", "a\tb\nc\r", "", "&#", "&#60", "&#60;", "&#;;"}) {
    CHECK(plain_text(xml_text(text)) == text);
  }
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
