// xml_text.hpp - text in XML.
#pragma once

#include <string>
#include <string_view>

namespace convgrad::cli {

// Text as it may stand in XML 1.0, in an attribute too. What XML cannot hold becomes U+FFFD.
std::string xml_text(std::string_view text);

}  // namespace convgrad::cli
