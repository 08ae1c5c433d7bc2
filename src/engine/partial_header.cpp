// partial_header.cpp - what a file of partial sums says of itself; see partial_file.hpp.

#include <array>
#include <nlohmann/json.hpp>

#include "engine/machine.hpp"
#include "engine/partial_file.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int64_t>;

constexpr const char* kFormat = "convgrad.partial/2";

Numbers filter_sizes(WgradProblem problem) {
  problem.filter_format = FilterFormat::hwio;
  return dw_shape(problem);
}

Json explicit_json(const WgradProblem& problem) {
  return {{"op", op_name(problem.op)},
          {"input_shape", x_shape(problem)},
          {"out_backprop_shape", dy_shape(problem)},
          {"input_dtype", dtype_name(problem.x_dtype)},
          {"out_backprop_dtype", dtype_name(problem.dy_dtype)},
          {"filter_sizes", filter_sizes(problem)},
          {"strides", per_axis(problem, &SpatialAxis::stride)},
          {"dilations", per_axis(problem, &SpatialAxis::dilation)},
          {"explicit_paddings", paddings(problem)},
          {"data_format", data_format_name(problem)},
          {"filter_format", filter_format_name(problem)},
          {"groups", problem.groups},
          {"out_dtype", dtype_name(problem.out_dtype)}};
}

WgradProblem problem_from(const Json& json) {
  const auto dtype = [&](const char* name) {
    return parse_stored_dtype(name, json.at(name).get<std::string>());
  };
  WgradAttributes attributes;
  attributes.op = json.at("op").get<std::string>();
  attributes.filter_sizes = json.at("filter_sizes").get<Numbers>();
  attributes.strides = json.at("strides").get<Numbers>();
  attributes.dilations = json.at("dilations").get<Numbers>();
  attributes.padding = json.value("padding", "EXPLICIT");
  if (attributes.padding == "EXPLICIT") {
    attributes.explicit_paddings = json.at("explicit_paddings").get<Numbers>();
  }
  attributes.data_format = json.at("data_format").get<std::string>();
  attributes.filter_format = json.at("filter_format").get<std::string>();
  attributes.groups = json.at("groups").get<std::int64_t>();
  attributes.out_dtype = json.at("out_dtype").get<std::string>();
  return make_problem({"input_shape", dtype("input_dtype"), json.at("input_shape").get<Numbers>()},
                      {"out_backprop_shape", dtype("out_backprop_dtype"),
                       json.at("out_backprop_shape").get<Numbers>()},
                      attributes);
}

// Writes the problem in the words of the command line, from which make_problem() gets it back. SAME
// allows some problems that written-out paddings do not: x without rows, paddings of more than
// 2^31.
Json problem_json(const WgradProblem& problem) {
  Json json = explicit_json(problem);
  try {
    if (problem_from(json) == problem) return json;
  } catch (const Error&) {
  }
  json["padding"] = "SAME";
  return json;
}

Json range_json(Range range) { return {range.begin, range.end}; }
Range range_from(const Json& json) {
  const auto numbers = json.get<std::array<std::int64_t, 2>>();
  return {numbers[0], numbers[1]};
}

// Returns everything that files of one run share, in the order in which differences are looked for.
Json shared_json(const PartialHeader& header) {
  Json json = problem_json(header.problem);
  json["algorithm"] = header.algorithm;
  json["schedule"] = header.schedule;
  json["program"] = header.program;
  json["blas"] = header.blas;
  json["of_slices"] = header.of_slices;
  return json;
}

bool is_within(Range range, std::int64_t count) {
  return 0 <= range.begin && range.begin <= range.end && range.end <= count;
}

}  // namespace

PartialHeader partial_header(const Plan& plan, const std::string& program) {
  PartialHeader header;
  header.problem = plan.problem;
  header.algorithm = algorithm_name(plan);
  header.program = program;
  // The bits of OpenBLAS depend on its version and on the processor whose kernels it chose.
  if (header.algorithm == "im2col_gemm") {
    const BlasInfo blas = blas_info();
    header.blas = cat(blas.config, ", ", blas.core);
  }
  header.of_slices = plan.schedule.slices.count();
  header.images = plan.schedule.part.images;
  header.slices = plan.schedule.slices.slices_of(plan.schedule.part.partitions);
  return header;
}

std::string partial_header_text(const PartialHeader& header) {
  Json json = {{"format", kFormat},
               {"images", range_json(header.images)},
               {"slices", range_json(header.slices)}};
  json.update(shared_json(header));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

PartialHeader parse_partial_header(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    const auto format = json.at("format").get<std::string>();
    if (format != kFormat) {
      throw Error(ErrorKind::input, "format ", format, ", expected ", kFormat);
    }
    PartialHeader header;
    header.problem = problem_from(json);
    header.algorithm = json.at("algorithm").get<std::string>();
    header.schedule = json.at("schedule").get<int>();
    header.program = json.at("program").get<std::string>();
    header.blas = json.at("blas").get<std::string>();
    header.of_slices = json.at("of_slices").get<std::int64_t>();
    header.images = range_from(json.at("images"));
    header.slices = range_from(json.at("slices"));
    const bool fits = is_within(header.images, header.problem.N) && header.of_slices > 0 &&
                      is_within(header.slices, header.of_slices);
    if (!fits) throw Error(ErrorKind::input, "images and slices do not fit the problem");
    return header;
  } catch (const Error& error) {
    throw Error(ErrorKind::input, name, ": damaged: ", error.what(),
                "; compute it again with --batch-range");
  } catch (const Json::exception&) {
    throw Error(ErrorKind::input, name, ": damaged: its problem is not what --batch-range ",
                "writes; compute it again");
  }
}

std::string partial_difference(const PartialHeader& a, const PartialHeader& b,
                               const std::string& name_a, const std::string& name_b) {
  const Json first = shared_json(a), second = shared_json(b);
  for (const auto& [key, value] : first.items()) {
    const Json& other = second.at(key);
    if (value == other) continue;
    return cat(name_b, ": ", key, " ", other.dump(-1, ' ', false, Json::error_handler_t::replace),
               ", expected ", value.dump(-1, ' ', false, Json::error_handler_t::replace), " as in ",
               name_a);
  }
  return "";
}

}  // namespace convgrad
