// json_test.cpp - what is refused of JSON that others wrote, and where; how elements are taken.
#include "files/json.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace convgrad {
namespace {

std::optional<JsonError> fault_of(const std::string& text, const TakeElement& take = {}) {
  try {
    read_json(text, take);
  } catch (const JsonError& error) {
    return error;
  }
  return {};
}

TEST_CASE("what is wrong is told, with its place") {
  using enum JsonError::Fault;
  const struct {
    std::string text;
    JsonError::Fault fault;
    std::int64_t line, column;
  } cases[] = {{"{\"a\": x}", syntax, 1, 7},           {"{\n \"a\": 1,\n}", syntax, 3, 1},
               {std::string("{}\0", 3), syntax, 1, 3}, {"{}\n{}", syntax, 2, 1},
               {"[1e999]", number_too_large, 1, 7},    {std::string(40, '['), too_deep, 1, 34}};
  for (const auto& each : cases) {
    CAPTURE(each.text);
    const auto error = fault_of(each.text);
    REQUIRE(error.has_value());
    CHECK(error->fault == each.fault);
    CHECK(error->line == each.line);
    CHECK(error->column == each.column);
  }
  const auto twice = fault_of("{\"a\": {\"b\": 1, \"c\": {}, \"b\": 2}}");
  REQUIRE(twice.has_value());
  CHECK(twice->key == "b");
}

TEST_CASE("elements are handed over one by one, and not kept") {
  std::string taken;
  const auto take = [&](const std::string& key, std::int64_t line, const Json& element) {
    taken += cat(line, " ", key, "=", element.dump(), "; ");
  };
  CHECK(read_json("{\"a\": 1,\n\"b\": {\"c\": [2]}, \"d\":\n[]}", take).is_object());
  CHECK(taken == "1 a=1; 2 b={\"c\":[2]}; 3 d=[]; ");
  taken.clear();
  CHECK(read_json("[{},\n\n3]", take).empty());
  CHECK(taken == "1 ={}; 3 =3; ");
}

TEST_CASE("an element, or a text, has not so many values that they fill memory") {
  std::string many = "[0";
  for (int i = 0; i < 1 << 18; ++i) many += ",0";
  many += "]";
  CHECK(fault_of(many)->fault == JsonError::Fault::too_many);
  CHECK_FALSE(fault_of(many, [](const auto&...) {}).has_value());
  CHECK(fault_of(cat("[", many, "]"), [](const auto&...) {})->fault == JsonError::Fault::too_many);
}

}  // namespace
}  // namespace convgrad
