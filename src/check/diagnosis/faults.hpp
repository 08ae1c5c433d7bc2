// faults.hpp - the faults that are tried, but for those that only the gradient or the data can
// name; places in the gradient: tiles, remainders, every n-th channel.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {

inline constexpr const char* kLines[] = {"plane", "row", "column"};  // of d, h and w

// A fault says what it is, what usually brings it about, and what the gradient becomes: the entry
// at `index` is that of moved(index), summed over other channels or by another reading.
struct Fault {
  using Map = std::function<std::int64_t(std::int64_t)>;

  std::string name, text, cause;
  Reading reading;
  // These map indices in [tap][c][k] order, and channels; null leaves them as they are.
  Map moved = nullptr, x_channel = nullptr, dy_channel = nullptr;
  double bits = 0;    // the search has read so many off the gradient to name it
  bool rare = false;  // too rare to be tried together with another
  int faults = 1;     // that it is made of

  // Tells whether only entries change places: their values are known without a sum.
  bool moves_only(const WgradProblem& problem) const;
  EntryTerms terms(const WgradProblem& problem, std::int64_t index) const;
};

// Returns what the entries at indices would be by each of the faults, in one pass over x and dy.
std::vector<Expected> predictions(std::span<const Fault> faults,
                                  std::span<const std::int64_t> indices, const Images& images,
                                  bool values_alone = false);

// A list of faults, each of which reads in a way of its own.
struct FaultList {
  const WgradProblem& pb;
  const Reading plain = plain_reading(pb);
  std::vector<Fault> list = {};

  // Adds nothing if the reading is the problem's own or stands in the list already.
  void add(const std::string& name, const std::string& text, const std::string& cause,
           const Reading& reading, bool rare = false);
};
using Axes = std::vector<std::size_t>;  // spatial ones
// Returns every set of axes for which `useful` holds, single ones first.
std::vector<Axes> subsets(const WgradProblem& problem,
                          const std::function<bool(const SpatialAxis&)>& useful);
std::string axis_names(const Axes& axes);  // "h and w"
// Returns all that differ from the definition for this problem.
std::vector<Fault> known_faults(const WgradProblem& problem, const Facts& facts = {});
// Adds those in which the memory is taken for another layout, parts of an image stand alone, or
// numbers or images of x and dy are taken for others; of each the usual ones first.
void add_faults_of_inputs(FaultList& to, const Facts& facts);
// Returns those in which blocks of 16 to 128 channels or pixels have scales of their own.
std::vector<Fault> block_scales(const WgradProblem& problem, const Facts& facts);
// Returns those in which x, dy or both are rounded to a type of 16 bits or more.
std::vector<Fault> roundings(const WgradProblem& problem);

// The gradient as it is written has these axes: t, r and s are taps, c, k (and m) channels.
struct EntryAxis {
  char letter;
  std::int64_t extent;
  const char* name;
};
std::vector<EntryAxis> entry_axes(const WgradProblem& problem);
// Returns the position along these axes of the entry at index, in [tap][c][k] order.
using EntryPlace = std::array<std::int64_t, 5>;  // what is not an axis is 0
EntryPlace entry_place(const std::vector<EntryAxis>& axes, std::int64_t index);

// `either` means that it cannot be told.
enum class Mark : std::uint8_t { out, in, either };
struct Marked {
  std::int64_t index;
  Mark mark;
};
struct Place {
  bool everything = false;
  bool pattern = true;  // a few words say exactly which entries are in
  std::string text;     // "output channels k 48-63 (a whole tile of 16) of tap (1,2)"
  double bits = 0;      // what these words choose among: a list of channels costs more than a range
  bool is_part() const { return pattern && !everything && !text.empty(); }
};
Place place_of(const WgradProblem& problem, const std::vector<Marked>& entries);

// Says "k 48-63 (a whole tile of 16)" or "k % 8 == 7 (every 8th)" of values below extent, in order.
std::string values_text(char letter, std::int64_t extent, const std::vector<std::int64_t>& values,
                        std::int64_t group = 0);

// Says "image 3" or "the pixel p 2, q 5 of image 0"; with a verb "... is left out".
std::string pixels_text(const WgradProblem& problem, const Pixels& pixels, const std::string& verb);

}  // namespace convgrad::diagnosis
