// xml_text.cpp - see xml_text.hpp.
#include "report/xml_text.hpp"

#include "report/report.hpp"

namespace convgrad::cli {

std::string xml_text(std::string_view text) {
  constexpr const char* kBad = "\xef\xbf\xbd";
  // Through JSON, whose writer replaces what is not UTF-8.
  const std::string valid =
      Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
          .get<std::string>();
  std::string result;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    const std::string_view rest = std::string_view(valid).substr(i);
    const bool is_control = static_cast<unsigned char>(c) < 0x20;
    // What XML 1.0 cannot hold: https://www.w3.org/TR/xml/#charsets
    if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf")) {
      result += kBad;
      i += 2;
    } else if (is_control && c != '\t' && c != '\n' && c != '\r') {
      result += kBad;
    } else if (is_control || c == '&' || c == '<' || c == '>' || c == '"') {
      result += cat("&#", static_cast<int>(c), ";");  // an attribute would make line ends spaces
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace convgrad::cli
