#include "base/messages.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iomanip>
#include <new>
#include <vector>

namespace convgrad {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Returns "\x1b".
std::string escaped(char c) {
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Counts the edits that turn a into b, case ignored: insert, delete, replace or swap neighbours
// (optimal string alignment, a restricted Damerau-Levenshtein distance).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  const auto same = [&](std::size_t i, std::size_t j) {
    return lower(a[i - 1]) == lower(b[j - 1]);
  };
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same(i, j) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j)) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += is_control(c) ? escaped(c) : std::string(1, c);
  return line;
}

Error handled_error(const char* cure) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::runtime, "out of memory", Hint(cure));
  } catch (const std::exception& error) {
    return Error(ErrorKind::runtime, error.what());
  }
}

ErrorKind kind_of_failure(int error) {
  for (const int machine : {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM}) {
    if (error == machine) return ErrorKind::runtime;
  }
  return ErrorKind::input;
}

Hint did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 64) return {};
  const std::string* best = nullptr;
  // A short word may have one slip, a usual one two, a long one more; or the word begins or ends a
  // name. The dashes of a flag do not make it longer.
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::size_t letters = word.size() - dashes;
  std::size_t best_distance = std::max<std::size_t>(letters < 4 ? 1 : 2, letters / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string_view name = word.substr(dashes);
    const bool begins = letters >= 3 && word.size() < candidate.size() &&
                        (edit_distance(word, candidate.substr(0, word.size())) == 0 ||
                         candidate.ends_with(cat("-", name)));
    const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best != nullptr ? Hint("did you mean '", *best, "'?") : Hint();
}

std::string_view cut_short(std::string_view text, std::size_t most_bytes) {
  std::size_t size = std::min(text.size(), most_bytes);
  if (size == text.size()) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  for (const char c : text) {
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    result += c == '\n' ? "\\n" : is_ascii && !is_control(c) ? std::string(1, c) : escaped(c);
    if (result.size() >= limit) return result + "...";
  }
  return result;
}

std::string join_or(std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string bracketed(std::span<const std::int64_t> numbers) {
  std::string text = "[";
  for (const std::int64_t n : numbers) text += cat(text.size() > 1 ? "," : "", n);
  return text + "]";
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  TextWriter text;
  text << std::fixed << std::setprecision(unit == 0 || bytes >= 100 ? 0 : 1) << bytes << " "
       << kUnits[unit];
  return text.str();
}

}  // namespace convgrad
