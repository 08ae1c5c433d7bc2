// partial_header.cpp - what a file of partial sums says of itself; see partial_file.hpp.

#include <array>
#include <nlohmann/json.hpp>

#include "base/messages.hpp"
#include "engine/machine.hpp"
#include "engine/partial_file.hpp"

namespace convgrad {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "convgrad.partial/3";

Json range_json(Range range) { return {range.begin, range.end}; }
Range range_from(const Json& json) {
  const auto numbers = json.get<std::array<std::int64_t, 2>>();
  return {numbers[0], numbers[1]};
}

// Returns everything that files of one run share, in the order in which differences are looked for.
Json shared_json(const PartialHeader& header) {
  return {{"problem", describe(header.problem)},
          {"algorithm", header.algorithm},
          {"schedule", header.schedule},
          {"program", header.program},
          {"blas", header.blas},
          {"of_slices", header.of_slices}};
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
      bad_input("format ", format, ", expected ", kFormat);
    }
    PartialHeader header;
    header.problem = make_problem(parse_problem(json.at("problem").get<std::string>()));
    header.algorithm = json.at("algorithm").get<std::string>();
    header.schedule = json.at("schedule").get<int>();
    header.program = json.at("program").get<std::string>();
    header.blas = json.at("blas").get<std::string>();
    header.of_slices = json.at("of_slices").get<std::int64_t>();
    header.images = range_from(json.at("images"));
    header.slices = range_from(json.at("slices"));
    const bool fits = is_within(header.images, header.problem.N) && header.of_slices > 0 &&
                      is_within(header.slices, header.of_slices);
    if (!fits) bad_input("images and slices do not fit the problem");
    return header;
  } catch (const Error& error) {
    bad_input(name, ": damaged: ", error.what(), Hint("compute it again with --batch-range"));
  } catch (const Json::exception&) {
    bad_input(name, ": damaged: its problem is not what --batch-range ", "writes",
              Hint("compute it again"));
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
