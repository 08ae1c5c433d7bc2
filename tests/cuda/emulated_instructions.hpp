// emulated_instructions.hpp - what matrix instructions and bulk copies of a device compute, from
// what the PTX manual says of their operands. When they do, emulated_device.hpp says.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "cuda/kernels/bulk.hpp"
#include "cuda/kernels/mma.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::testing {

// What tensor cores make of a sum and exact products, as was measured on an A100 (Fasi et al.,
// PeerJ Computer Science 7:e330; Khattak and Mikaitis, arXiv:2512.07004): all are cut toward zero
// behind the largest one's 24th bit, and so is their sum. Hopper takes twice the products, and one
// bit more.
template <int kBits, int kCount>
float cut_sum(float c, const double (&products)[kCount]) {
  const auto exponent = [](double value) {
    return static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(value) >> 32 & 0x7ff00000);
  };
  std::int32_t largest = exponent(c), sum = 0;
  for (const double product : products) largest = std::max(largest, exponent(product));
  if (largest == 0) return 0;
  if (largest == 0x7ff00000) {  // Inf and NaN
    return static_cast<float>(std::accumulate(products, products + kCount, double{c}));
  }
  const double power = std::bit_cast<double>(static_cast<std::uint64_t>(largest) << 32);
  const double scale = (1 << kBits) / power;
  for (const double product : products) sum += static_cast<std::int32_t>(product * scale);
  sum += static_cast<std::int32_t>(c * scale);
  const auto size = static_cast<std::uint32_t>(std::abs(sum));
  const int cut = std::max(static_cast<int>(std::bit_width(size)) - 24, 0);
  const double result = (size >> cut << cut) * (power / (1 << kBits));
  return static_cast<float>(sum < 0 ? -result : result);
}

// c += the products of two lines of Op::kK numbers, as Op's instruction does.
template <class Op, typename Acc>
Acc multiplied(Acc c, const double (&left)[Op::kK], const double (&right)[Op::kK]) {
  if constexpr (std::is_same_v<Acc, double>) {
    for (int k = 0; k < Op::kK; ++k) c = std::fma(left[k], right[k], c);
  } else {
    constexpr bool kHopper = Op::kM == 64;
    constexpr int kFused = kHopper ? 16 : 8;
    for (int first = 0; first < Op::kK; first += kFused) {
      double products[kFused];
      for (int i = 0; i < kFused; ++i) products[i] = left[first + i] * right[first + i];
      c = cut_sum < kHopper ? 25 : 24 > (c, products);
    }
  }
  return c;
}

// C += A * B, or C = A * B, of all threads that have it together, from the rows of A and the
// columns of B; c(thread) is a thread's fragment.
template <class Op, int kThreads, class FragmentC>
void multiply_matrices(const double (&left)[Op::kM][Op::kK], const double (&right)[Op::kN][Op::kK],
                       bool adds, FragmentC&& c) {
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int e = 0; e < Op::kElementsC; ++e) {
      int row, column;
      Op::c_place(thread, e, row, column);
      auto& value = c(thread)[e];
      if (!adds) value = 0;
      value = multiplied<Op>(value, left[row], right[column]);
    }
  }
}

// C += A * B of one warp, from what its lanes hold: f(lane) is a lane's fragment.
template <class Op, class FragmentA, class FragmentB, class FragmentC>
void multiply_warp(FragmentA&& a, FragmentB&& b, FragmentC&& c) {
  double left[Op::kM][Op::kK], right[Op::kN][Op::kK];
  int row, column;
  for (int lane = 0; lane < cuda::kWarp; ++lane) {
    for (int e = 0; e < Op::kElementsA; ++e) {
      Op::a_place(lane, e, row, column);
      left[row][column] = Op::a_value(a(lane), e);
    }
    for (int e = 0; e < Op::kElementsB; ++e) {
      Op::b_place(lane, e, row, column);
      right[column][row] = Op::b_value(b(lane), e);
    }
  }
  multiply_matrices<Op, cuda::kWarp>(left, right, true, c);
}

// What a lane gets of four transposed 8x8 matrices; address(lane) is the row that a lane points to.
template <class Address>
void load_transposed(int lane, std::uint32_t out[4], Address&& address) {
  for (int j = 0; j < 4; ++j) {
    const auto at = [&](int half) -> std::uint32_t {
      const void* const row = address(8 * j + lane % 4 * 2 + half);
      return static_cast<const std::uint16_t*>(row)[lane / 4];
    };
    out[j] = at(0) | at(1) << 16;
  }
}

inline int box_bytes(const cuda::BulkMap& map) {
  return map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.box[4] * map.item_bytes;
}

// Shared memory as bulk copies and wgmma see it: by offsets, swizzled.
class SwizzledMemory {
 public:
  explicit SwizzledMemory(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}

  std::uint64_t operand(const void* at, int row_bytes, int panel_bytes) const {
    return cuda::operand_at(offset(at), row_bytes, panel_bytes);
  }

  void copy_box(void* to, const cuda::BulkMap& map, const std::array<int, 5>& first) const {
    const int item = map.item_bytes, row_bytes = map.box[0] * item;
    for (int i = 0; i < box_bytes(map) / item; ++i) {
      std::int64_t from = 0, rest = i;
      bool inside = true;
      for (std::size_t a = 0; a < 5; rest /= map.box[a++]) {
        const std::int64_t at = first[a] + rest % map.box[a] * map.step[a];
        inside = inside && at >= 0 && at < map.extent[a];
        from += at * map.stride[a];
      }
      const auto plain = offset(to) + static_cast<std::uint32_t>(i * item);
      unsigned char* const at = memory_ + (map.swizzles ? cuda::swizzled(plain, row_bytes) : plain);
      const auto bytes = static_cast<std::size_t>(item);
      std::memset(at, 0, bytes);
      if (inside) std::memcpy(at, static_cast<const char*>(map.data) + from * item, bytes);
    }
  }

  // Element (mn, k) of an operand, by what its descriptor says (wgmma.hpp).
  const std::uint16_t& element(std::uint64_t operand, int mn, int k) const {
    const auto field = [&](int bit) { return static_cast<int>(operand >> bit & 0x3fff) * 16; };
    const int row_bytes = operand >> 62 == 1 ? cuda::kRowBytes : cuda::kRowBytes / 2;
    const int width = row_bytes / 2;
    const int at =
        field(0) + mn / width * field(16) + mn % width * 2 + k / 8 * field(32) + k % 8 * row_bytes;
    return word(static_cast<std::uint32_t>(at), row_bytes);
  }

  // C += A * B of one warpgroup, or C = A * B; c(thread) is a thread's fragment.
  template <class Op, class FragmentC>
  void multiply_group(std::uint64_t a, std::uint64_t b, bool adds, FragmentC&& c) const {
    double left[Op::kM][Op::kK], right[Op::kN][Op::kK];
    for (int k = 0; k < Op::kK; ++k) {
      for (int m = 0; m < Op::kM; ++m) left[m][k] = Op::value(element(a, m, k));
      for (int n = 0; n < Op::kN; ++n) right[n][k] = Op::value(element(b, n, k));
    }
    multiply_matrices<Op, cuda::kWarpgroup>(left, right, adds, c);
  }

 private:
  std::uint32_t offset(const void* pointer) const {
    return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - memory_);
  }
  std::uint16_t& word(std::uint32_t at, int row_bytes) const {
    return *reinterpret_cast<std::uint16_t*>(memory_ + cuda::swizzled(at, row_bytes));
  }

  unsigned char* memory_;
};

}  // namespace convgrad::testing
