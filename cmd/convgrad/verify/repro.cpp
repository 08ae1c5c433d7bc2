// repro.cpp - see repro.hpp. How a failing computation is made smaller is in shrink.cpp.
#include "verify/repro.hpp"

#include <algorithm>
#include <filesystem>

#include "convgrad/buffer.hpp"
#include "convgrad/gradient_file.hpp"
#include "options/problem_flags.hpp"
#include "verify/shrink.hpp"

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

// What was said of the sums.
std::string summation_flags(const VerifyOptions& v) {
  std::string text;
  if (v.longest_sum) text += cat(" --longest-sum ", *v.longest_sum);
  if (!v.adders.empty()) text += " --adders " + v.adders;
  return text;
}

// Files of one folder: all of them, or none.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directory(path, error);
    if (error) throw Error(ErrorKind::input, "--save-repro: ", path, ": ", error.message());
  }
  ~Folder() {
    if (kept_) return;
    std::error_code ignored;
    for (const std::string& file : files_) fs::remove(file, ignored);
    if (made_) fs::remove(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // write(path) makes the file. One that is there already is another's, and stays.
  template <typename Write>
  void add(const std::string& name, const Write& write) {
    const std::string path = path_ + "/" + name;
    write(path);
    files_.push_back(path);
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

// A part of x or dy, image after image.
void write_tensor(const std::string& path, NpyReader& reader, const WgradProblem& pb,
                  const std::vector<std::int64_t>& origin, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> begin = origin, end = origin;
  std::int64_t bytes = dtype_bytes(pb.dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) {
    end[i] += shape[i];
    bytes *= shape[i];
  }
  const Buffer image(bytes, "an image of the small problem");
  OutputFile file(path, {true});
  const std::string header = npy_header_text(pb.dtype, shape);
  file.write(header.data(), header.size());
  for (std::int64_t n = 0; n < pb.N; ++n) {
    begin[0] = origin[0] + n;
    end[0] = begin[0] + 1;
    reader.read_box(begin, end, image.data());
    file.write(image.data(), static_cast<std::size_t>(bytes));
  }
  file.commit();
}

std::vector<std::int64_t> file_origin(const WgradProblem& pb, std::int64_t image,
                                      std::int64_t channel,
                                      const std::array<std::int64_t, 3>& spatial) {
  std::vector<std::int64_t> origin = {image};
  if (!pb.channels_last) origin.push_back(channel);
  for (int a = 3 - pb.spatial_rank(); a < 3; ++a) {
    origin.push_back(spatial[static_cast<std::size_t>(a)]);
  }
  if (pb.channels_last) origin.push_back(channel);
  return origin;
}

// What is written: the part, and the gradients on it, in [tap][c][k] order.
struct Repro {
  CroppedPart part;
  std::vector<double> result, golden;
  bool computes = false;  // the command computes the gradient; result.npy is what it was
  std::string how;        // a sentence for README.txt
};

// The elements of some whole gradient, or of a sample, on a part.
std::vector<double> values_on(const WgradProblem& whole, const Judged& judged,
                              const CroppedPart& part, const std::vector<double>& values) {
  std::vector<double> result;
  const std::vector<std::int64_t>& indices = judged.sample.indices;
  for (std::int64_t i = 0; i < part.problem.dw_count(); ++i) {
    const std::int64_t index = whole_index(whole, part.crop, part.problem, i);
    const auto at = indices.empty()
                        ? index
                        : std::lower_bound(indices.begin(), indices.end(), index) - indices.begin();
    result.push_back(values[static_cast<std::size_t>(at)]);
  }
  return result;
}

// The wrong element's channels, and the taps at which they are wrong.
Crop crop_around(const WgradProblem& pb, const std::vector<unsigned char>& failed,
                 std::int64_t wrong) {
  Crop crop = element_crop(pb, wrong);
  if (failed.empty()) return crop;  // of a sample, one element is known
  const std::int64_t cells = pb.group_c() * pb.K;
  std::array<Range, 3> taps = crop.taps;
  for (std::int64_t index = wrong % cells; index < pb.dw_count(); index += cells) {
    if (failed[static_cast<std::size_t>(index)] == 0) continue;
    const Crop other = element_crop(pb, index);
    for (std::size_t a = 0; a < 3; ++a) {
      taps[a].begin = std::min(taps[a].begin, other.taps[a].begin);
      taps[a].end = std::max(taps[a].end, other.taps[a].end);
    }
  }
  crop.taps = taps;
  return crop;
}

std::optional<Repro> cut_out(Job& job, const Options& options, const Judged& judged,
                             const Gradient& subject, const Tolerance& tolerance,
                             std::int64_t wrong, std::string& why_not) {
  const WgradProblem& whole = job.problem;
  Repro repro;
  const bool golden = judged.golden && !tolerance.needs_terms();
  std::vector<unsigned char> failed;
  if (judged.sample.indices.empty()) {
    failed.resize(subject.values.size());
    compare_gradients(whole, subject.dtype, {}, subject.values, judged.expected, tolerance, failed);
  }
  const Crop crop = crop_around(whole, failed, wrong);
  std::optional<CroppedProblem> part = cropped(whole, crop);
  if (!part) return std::nullopt;
  repro.part = {crop, part->problem, part->origin};
  repro.part.problem.out_dtype = subject.dtype;
  repro.part.problem.x_dtype = repro.part.problem.dy_dtype = whole.dtype;  // as they are written
  repro.result = values_on(whole, judged, repro.part, subject.values);
  if (golden) repro.golden = values_on(whole, judged, repro.part, judged.golden->values);
  if (tolerance.needs_terms()) {
    const Expected expected = reference_on(job, options, repro.part);
    if (compare_gradients(repro.part.problem, subject.dtype, {}, repro.result, expected, tolerance)
            .match()) {
      why_not = "the errors show in many elements together, but not in one of them";
      return std::nullopt;
    }
  }
  repro.how =
      "result.npy and golden.npy, where there is one, are parts of the gradients that were "
      "compared:\n"
      "one input and one output channel, at the taps where they are wrong, over all images. A\n"
      "kernel that mixes up channels, groups or layouts may compute this small problem well.\n";
  return repro;
}

std::optional<Repro> shrunk(Job& job, const Options& options, const Judged& judged,
                            const Tolerance& tolerance, std::int64_t wrong, std::string& why_not) {
  Repro repro;
  Shrinker shrinker(job, options, judged.kernel, tolerance);
  const std::optional<CroppedPart> part = shrinker.shrink(wrong);
  if (shrinker.is_right_again()) why_not = "the wrong element is right when it is computed again";
  if (!part) return std::nullopt;
  repro.part = *part;
  repro.result = shrinker.result();
  repro.computes = true;
  repro.how =
      "The command computes the gradient again. Images, groups, channels, output positions and\n"
      "taps were left out as long as it kept failing; result.npy is what came out.\n";
  return repro;
}

std::string verify_command(const Repro& repro, const Options& options, const Judged& judged,
                           const Tolerance& tolerance) {
  const WgradProblem& pb = repro.part.problem;
  std::string text = cat("verify -i x.npy -g dy.npy ", problem_flags(pb));
  if (!repro.computes) {
    text += " --result result.npy";
  } else if (judged.kernel != nullptr) {
    text += cat(" --algorithm ", judged.kernel->name);
  } else {
    text += " --backend reference";
  }
  if (repro.computes && pb.out_dtype != pb.dtype) {
    text += cat(" --out-dtype ", dtype_name(pb.out_dtype));
  }
  if (!repro.golden.empty()) text += " --golden golden.npy";
  return text + tolerance_flags(tolerance) + summation_flags(options.verify);
}

void write_files(Job& job, const Options& options, const Repro& repro, const Judged& judged,
                 const std::string& command, const std::string& first_command) {
  const WgradProblem& pb = repro.part.problem;
  const SourceOrigin& origin = repro.part.origin;
  Folder folder(options.verify.save_repro);
  const auto add_gradient = [&](const std::string& name, DType dtype,
                                const std::vector<double>& values) {
    WgradProblem problem = pb;
    problem.out_dtype = dtype;
    folder.add(name, [&](const std::string& path) {
      write_gradient(path, problem, values.data(), nullptr, {true});
    });
  };
  folder.add("x.npy", [&](const std::string& path) {
    write_tensor(path, *job.x, pb, file_origin(pb, origin.image, origin.x_channel, origin.x),
                 x_shape(pb));
  });
  folder.add("dy.npy", [&](const std::string& path) {
    write_tensor(path, *job.dy, pb, file_origin(pb, origin.image, origin.dy_channel, origin.dy),
                 dy_shape(pb));
  });
  add_gradient("result.npy", pb.out_dtype, repro.result);
  if (!repro.golden.empty()) add_gradient("golden.npy", judged.golden->dtype, repro.golden);
  add_gradient("reference.npy", DType::f64, reference_on(job, options, repro.part).values);
  folder.write_text("README.txt",
                    cat("A part of a problem that convgrad verify found wrong:\n  ", first_command,
                        "\n\n", describe(pb), "\nreference.npy is its gradient in float64.\n",
                        repro.how, "\nsh repro.sh repeats the mismatch: status 1.\n"));
  folder.write_text("repro.sh",
                    cat("#!/bin/sh\n# CONVGRAD names the program where it is not in PATH.\n"
                        "cd \"$(dirname \"$0\")\" || exit 2\nexec \"${CONVGRAD:-convgrad}\" ",
                        command, "\n"));
  folder.keep();
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
    throw Error(ErrorKind::input, "--save-repro: ", folder, ": there is no folder ",
                parent.string());
  }
  if (!fs::is_directory(path, error)) {
    throw Error(ErrorKind::input, "--save-repro: ", folder, " is a file, expected a folder");
  }
  if (!fs::is_empty(path, error) || error) {
    throw Error(ErrorKind::input, "--save-repro: ", folder,
                " is not empty; name a new or an empty folder");
  }
}

Notes save_repro(Job& job, const Options& options, const Judged& judged, const Gradient& subject,
                 const Tolerance& tolerance, std::int64_t wrong) {
  const std::string once = why_read_once(job);
  if (!once.empty()) return not_written(once);
  // What a device computed is cut out: the smaller problems are computed by kernels of processors.
  const bool computes = judged.computed && !judged.golden && !judged.on_device;
  std::string why_not = "the wrong element sees nothing but padding";
  const std::optional<Repro> repro =
      computes ? shrunk(job, options, judged, tolerance, wrong, why_not)
               : cut_out(job, options, judged, subject, tolerance, wrong, why_not);
  if (!repro) return not_written(why_not);
  const std::string command = verify_command(*repro, options, judged, tolerance);
  Notes notes;
  notes.json["repro"] = {{"folder", options.verify.save_repro},
                         {"problem", describe(repro->part.problem)},
                         {"command", "convgrad " + command}};
  notes.lines.push_back(cat("repro: ", options.verify.save_repro, " holds ",
                            describe(repro->part.problem), "; sh repro.sh there repeats it"));
  write_files(job, options, *repro, judged, command, options.command_line);
  return notes;
}

}  // namespace convgrad::cli
