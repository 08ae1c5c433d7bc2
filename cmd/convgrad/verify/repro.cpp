#include <algorithm>
#include <filesystem>

#include "base/buffer.hpp"
#include "check/crop.hpp"
#include "check/reference_sum.hpp"
#include "check/rounding.hpp"
#include "convgrad/gradient_file.hpp"
#include "options/arguments.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

std::string tolerance_flags(const Tolerance& t) {
  switch (t.criterion) {
    case Criterion::tolerance:
      return cat(" --rtol ", general(t.rtol, 17), " --atol ", general(t.atol, 17));
    case Criterion::max_ulp:
      return cat(" --max-ulp ", t.max_ulp);
    case Criterion::bitwise:
      return " --bitwise";
    case Criterion::bound:
      return " --criterion bound";
    default:
      return t.slack == Tolerance().slack ? "" : cat(" --slack ", general(t.slack, 17));
  }
}

// Returns the flags that say how a file that is judged was summed, if not as by default.
std::string summation_flags(const Job& job, const VerifyCommand& options) {
  const Summation summation = summation_of(job, options);
  std::string text;
  if (summation.longest_sum > 0) text += cat(" --longest-sum ", summation.longest_sum);
  if (summation.adders == Summation::Adders::ieee) text += " --adders ieee";
  if (summation.adders == Summation::Adders::tensor_core) text += " --adders tensor-core";
  if (options.verify.order == "natural") text += " --order natural";
  if (summation.factor != 1) text += cat(" --alpha=", general(summation.factor, 17));
  return text;
}

// Writes the files of one folder: all of them, or none.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directory(path, error);
    if (error) bad_input("--save-repro: ", path, ": ", error.message());
  }
  ~Folder() {
    if (kept_) return;
    std::error_code ignored;
    for (const std::string& file : files_) fs::remove(file, ignored);
    if (made_) fs::remove(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Makes a file by write(path), and returns its path. If a file is there already, write() throws;
  // it is another's, and stays.
  template <typename Write>
  std::string add(const std::string& name, const Write& write) {
    std::string path = path_ + "/" + name;
    write(path);
    files_.push_back(path);
    return path;
  }
  void write_text(const std::string& name, const std::string& text) {
    add(name, [&](const std::string& path) {
      OutputFile out(path, {true});
      out.write(text.data(), text.size());
      out.commit();
    });
  }
  void keep() { kept_ = true; }

 private:
  const std::string path_;
  std::vector<std::string> files_;
  bool made_ = false, kept_ = false;
};

// Holds what is written: the part, and the gradients on it, in [tap][c][k] order.
struct Repro {
  CroppedProblem part;
  std::vector<double> result, golden, buffer;
};

// Returns the elements of some whole gradient, or of a sample, on a part.
std::vector<double> values_on(const WgradProblem& whole, const Judged& judged, const Crop& crop,
                              const WgradProblem& part, const std::vector<double>& values) {
  std::vector<double> result;
  const std::vector<std::int64_t>& indices = judged.sample.indices;
  for (std::int64_t i = 0; i < part.dw_count(); ++i) {
    const std::int64_t index = whole_index(whole, crop, part, i);
    const auto at = indices.empty()
                        ? index
                        : std::lower_bound(indices.begin(), indices.end(), index) - indices.begin();
    result.push_back(values[static_cast<std::size_t>(at)]);
  }
  return result;
}

// Returns the wrong element's channels, and the taps at which they are wrong.
Crop crop_around(const WgradProblem& pb, const std::vector<unsigned char>& failed,
                 std::int64_t wrong) {
  Crop crop = element_crop(pb, wrong);
  if (failed.empty()) return crop;  // of a sample, one element is known
  const std::int64_t cells = pb.group_c() * pb.K;
  for (std::int64_t index = wrong % cells; index < pb.dw_count(); index += cells) {
    if (failed[static_cast<std::size_t>(index)] == 0) continue;
    const Crop other = element_crop(pb, index);
    for (std::size_t a = 0; a < 3; ++a) {
      crop.taps[a].begin = std::min(crop.taps[a].begin, other.taps[a].begin);
      crop.taps[a].end = std::max(crop.taps[a].end, other.taps[a].end);
    }
  }
  return crop;
}

std::optional<Repro> cut_out(const WgradProblem& whole, const Judged& judged,
                             const Expected& expected, const Gradient& subject,
                             const Tolerance& tolerance, std::int64_t wrong) {
  std::vector<unsigned char> failed;
  if (judged.sample.indices.empty()) {
    failed.resize(subject.values.size());
    compare_gradients(whole, subject.dtype, {}, subject.values, expected, tolerance, failed);
  }
  const Crop crop = crop_around(whole, failed, wrong);
  const std::optional<CroppedProblem> part = cropped(whole, crop);
  if (!part) return std::nullopt;
  Repro repro = {*part, {}, {}, {}};
  WgradProblem& pb = repro.part.problem;
  pb.out_dtype = subject.dtype;
  pb.x_dtype = pb.dy_dtype = whole.dtype;  // as they are written
  repro.result = values_on(whole, judged, crop, pb, subject.values);
  if (judged.golden && !tolerance.needs_terms()) {
    repro.golden = values_on(whole, judged, crop, pb, judged.golden->values);
  }
  if (!judged.buffer.empty()) repro.buffer = values_on(whole, judged, crop, pb, judged.buffer);
  return repro;
}

// Computes the reference on the part that was written.
Expected reference_on(const Job& job, const VerifyCommand& options, const Repro& repro,
                      const std::string& x_path, const std::string& dy_path) {
  const WgradProblem& pb = repro.part.problem;
  const Summation summation = summation_of(job, options);
  PlanOptions planned = plan_options(options);
  planned.backend = Backend::reference;
  planned.check_bytes = ReferenceSum::memory_bytes(pb, summation);
  const Plan plan = make_plan(pb, this_machine(), planned);
  TaskPool pool(plan.threads);
  NpyReader x(x_path), dy(dy_path);
  NpySource source(x, dy);
  ReferenceSum reference(pb, pool, summation);
  sum_blocks(plan, source, reference);
  reference.finish();
  Expected expected = reference.take_expected();
  if (!repro.buffer.empty()) {
    add_to_buffer(pb.dtype, pb.out_dtype, options.verify.beta.value_or(1), repro.buffer, expected);
  }
  return expected;
}

std::string verify_command(const Job& job, const VerifyCommand& options, const Repro& repro,
                           const Tolerance& tolerance) {
  std::string text = cat("verify -i x.npy -g dy.npy --problem ",
                         shell_quoted(describe(repro.part.problem)), " --result result.npy");
  if (!repro.golden.empty()) text += " --golden golden.npy";
  if (!repro.buffer.empty()) text += " --accumulated-on buffer.npy";
  if (options.verify.beta) text += cat(" --beta=", general(*options.verify.beta, 17));
  text += tolerance_flags(tolerance);
  return tolerance.needs_terms() ? text + summation_flags(job, options) : text;
}

// Returns false if the part alone matches, and then leaves nothing of it.
bool write_files(Job& job, const VerifyCommand& options, const Repro& repro, const Judged& judged,
                 const Tolerance& tolerance, const std::string& command) {
  const WgradProblem& pb = repro.part.problem;
  Folder folder(options.verify.save_repro);
  const auto add_gradient = [&](const std::string& name, DType dtype,
                                const std::vector<double>& values) {
    WgradProblem problem = pb;
    problem.out_dtype = dtype;
    folder.add(name, [&](const std::string& path) {
      write_gradient(path, problem, values.data(), nullptr, {true});
    });
  };
  const std::string x = folder.add("x.npy", [&](const std::string& path) {
    write_part(path, *job.x, pb.dtype, repro.part.x, x_shape(pb));
  });
  const std::string dy = folder.add("dy.npy", [&](const std::string& path) {
    write_part(path, *job.dy, pb.dtype, repro.part.dy, dy_shape(pb));
  });
  const Expected expected = reference_on(job, options, repro, x, dy);
  if (tolerance.needs_terms() &&
      compare_gradients(pb, pb.out_dtype, {}, repro.result, expected, tolerance).match()) {
    return false;
  }
  add_gradient("result.npy", pb.out_dtype, repro.result);
  if (!repro.golden.empty()) add_gradient("golden.npy", judged.golden->dtype, repro.golden);
  if (!repro.buffer.empty()) add_gradient("buffer.npy", pb.out_dtype, repro.buffer);
  add_gradient("reference.npy", DType::f64, expected.values);
  folder.write_text(
      "README.txt",
      cat("A part of a problem that convgrad verify found wrong:\n  ", options.command_line, "\n\n",
          describe(pb),
          "\nreference.npy is its gradient in float64. result.npy and golden.npy, where there is\n"
          "one, are parts of the gradients that were compared: one input and one output channel, "
          "at\n"
          "the taps where they are wrong, over all images. A kernel that mixes up channels, "
          "groups\n"
          "or layouts may compute this small problem well.\n"
          "\nsh repro.sh repeats the mismatch: status 1.\n"));
  folder.write_text("repro.sh",
                    cat("#!/bin/sh\n# CONVGRAD names the program where it is not in PATH.\n"
                        "cd \"$(dirname \"$0\")\" || exit 2\nexec \"${CONVGRAD:-convgrad}\" ",
                        command, "\n"));
  folder.keep();
  return true;
}

Notes not_written(const std::string& why) {
  Notes notes;
  notes.lines.push_back("repro: not written: " + why);
  notes.json["repro"] = {{"why_not", why}};
  return notes;
}

}  // namespace

void check_repro_folder(const std::string& folder) {
  std::error_code error;
  const fs::path path(folder);
  if (!fs::exists(path, error)) {
    const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (fs::is_directory(parent, error)) return;
    bad_input("--save-repro: ", folder, ": there is no folder ", parent.string());
  }
  if (!fs::is_directory(path, error)) {
    bad_input("--save-repro: ", folder, " is a file, expected a folder");
  }
  if (!fs::is_empty(path, error) || error) {
    bad_input("--save-repro: ", folder, " is not empty", Hint("name a new or an empty folder"));
  }
}

Notes save_repro(Job& job, const VerifyCommand& options, const Judged& judged,
                 const Expected& expected, const Gradient& subject, const Tolerance& tolerance,
                 std::int64_t wrong) {
  const std::string once = why_read_once(job);
  if (!once.empty()) return not_written(once);
  const std::optional<Repro> repro =
      cut_out(job.problem, judged, expected, subject, tolerance, wrong);
  if (!repro) return not_written("the wrong element sees nothing but padding");
  const std::string command = verify_command(job, options, *repro, tolerance);
  if (!write_files(job, options, *repro, judged, tolerance, command)) {
    return not_written("the errors show in many elements together, but not in one of them");
  }
  const std::string problem = describe(repro->part.problem);
  Notes notes;
  notes.json["repro"] = {{"folder", options.verify.save_repro},
                         {"problem", problem},
                         {"command", "convgrad " + command}};
  notes.lines.push_back(cat("repro: ", options.verify.save_repro, " holds ", problem,
                            "; sh repro.sh there repeats it"));
  return notes;
}

}  // namespace convgrad::cli
