#include "files/json.hpp"

#include <algorithm>
#include <set>

namespace convgrad {
namespace {

constexpr int kMaxDepth = 32;
constexpr int kMaxValues = 1 << 18;

class StrictReader {
 public:
  StrictReader(const std::string& text, const TakeElement& take)
      : text_(text), take_(take), stream_(text) {}

  Json read() {
    try {
      Json json = Json::parse(stream_, [this](int depth, Event event, Json& parsed) {
        check(depth, event, parsed);
        const bool is_whole =
            event != Event::key && event != Event::object_start && event != Event::array_start;
        if (!take_ || depth != 1 || !is_whole) return true;
        take_(objects_.empty() ? "" : objects_.back().key, element_line_, parsed);
        return false;
      });
      const std::size_t zero = text_.find('\0');  // the parser stops there
      if (zero != text_.npos) refuse(Fault::syntax, zero + 1);
      return json;
    } catch (const Json::parse_error& error) {
      refuse(Fault::syntax, error.byte);
    } catch (const Json::out_of_range&) {
      refuse(Fault::number_too_large, read_bytes());
    }
  }

 private:
  using Event = Json::parse_event_t;
  using Fault = JsonError::Fault;
  struct OpenObject {
    std::set<std::string> keys;
    std::string key;  // the last of them
  };

  std::size_t read_bytes() {
    return static_cast<std::size_t>(
        std::streamoff{stream_.rdbuf()->pubseekoff(0, std::ios_base::cur, std::ios_base::in)});
  }

  // Returns the line of what was read last.
  std::int64_t line() {
    const std::size_t last = std::max(read_bytes(), counted_ + 1) - 1;
    const auto begin = text_.begin();
    line_ += std::count(begin + static_cast<std::ptrdiff_t>(counted_),
                        begin + static_cast<std::ptrdiff_t>(last), '\n');
    counted_ = last;
    return line_;
  }

  [[noreturn]] void refuse(Fault fault, std::size_t byte) {
    JsonError error(fault, static_cast<std::int64_t>(byte));
    const std::size_t line_end = byte < 2 ? text_.npos : text_.rfind('\n', byte - 2);
    error.line = line();
    error.column = static_cast<std::int64_t>(byte - (line_end + 1));
    if (!objects_.empty()) error.key = objects_.back().key;
    throw error;
  }

  void check(int depth, Event event, const Json& parsed) {
    const bool begins =
        event == Event::object_start || event == Event::array_start || event == Event::value;
    if (depth > kMaxDepth) refuse(Fault::too_deep, read_bytes());
    if (begins && depth == 1) element_line_ = line();
    if (begins && depth == 1 && take_) values_ = 0;
    if (begins && ++values_ > kMaxValues) refuse(Fault::too_many, read_bytes());
    if (event == Event::object_start) objects_.emplace_back();
    if (event == Event::object_end) objects_.pop_back();
    if (event != Event::key) return;
    OpenObject& object = objects_.back();
    object.key = parsed.get<std::string>();
    if (!object.keys.insert(object.key).second) refuse(Fault::key_twice, read_bytes());
  }

  const std::string& text_;
  const TakeElement& take_;
  TextReader stream_;
  std::size_t counted_ = 0;
  std::int64_t line_ = 1, element_line_ = 1;
  int values_ = 0;
  std::vector<OpenObject> objects_;  // that are open
};

}  // namespace

Json read_json(const std::string& text, const TakeElement& take) {
  return StrictReader(text, take).read();
}

}  // namespace convgrad
