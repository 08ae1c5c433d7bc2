#include "support/amx_trap.hpp"

#include <ucontext.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "convgrad/dtype.hpp"

namespace convgrad::testing {
namespace {

struct Tiles {
  bool configured = false;
  std::uint8_t rows[8] = {};
  std::uint16_t bytes[8] = {};  // of a row
  std::uint8_t data[8][16][64] = {};
};
thread_local Tiles tiles;
std::atomic<long> multiplications_done = 0;

// An instruction has a three-byte VEX prefix, an opcode and ModRM.
struct Instruction {
  const std::uint8_t* at;
  bool valid() const {  // map 0F38, W 0, L 0
    return at[0] == 0xc4 && (at[1] & 0x1f) == 2 && (at[2] & 0x84) == 0;
  }
  int prefix() const { return at[2] & 3; }  // none, 66, F3, F2
  int source() const { return (~at[2] >> 3) & 15; }
  int opcode() const { return at[3]; }
  bool in_memory() const { return at[4] >> 6 != 3; }
  int reg() const { return (at[4] >> 3) & 7; }
  int rm() const { return at[4] & 7; }
  int index_high() const { return at[1] & 0x40 ? 0 : 8; }
  int base_high() const { return at[1] & 0x20 ? 0 : 8; }
};

std::uint64_t register_of(const ucontext_t& context, int number) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// A memory operand has an address, the index register times its scale, and where the code goes on.
struct Operand {
  std::uint8_t* address = nullptr;
  std::int64_t stride = 0;
  const std::uint8_t* end = nullptr;
};
bool read_operand(const Instruction& in, const ucontext_t& context, Operand& operand) {
  const int mode = in.at[4] >> 6;
  int base = in.rm();
  const std::uint8_t* next = in.at + 5;
  if (base == 4) {
    const int sib = *next++;
    base = sib & 7;
    const int index = ((sib >> 3) & 7) + in.index_high();
    if (index != 4) {
      operand.stride = static_cast<std::int64_t>(register_of(context, index) << (sib >> 6));
    }
  }
  if (mode == 0 && base == 5) return false;  // relative to the code, or no base: not used
  std::uint64_t address = register_of(context, base + in.base_high());
  if (mode == 1) {
    address += static_cast<std::uint64_t>(static_cast<std::int8_t>(*next++));
  } else if (mode == 2) {
    std::int32_t distance;
    std::memcpy(&distance, next, 4);
    address += static_cast<std::uint64_t>(distance);
    next += 4;
  }
  operand.address = reinterpret_cast<std::uint8_t*>(address);
  operand.end = next;
  return true;
}

bool configure(const std::uint8_t* config) {
  tiles = {};
  if (config[0] != 1) return false;  // the palette
  for (int i = 0; i < 8; ++i) {
    std::memcpy(&tiles.bytes[i], config + 16 + 2 * i, 2);
    tiles.rows[i] = config[48 + i];
    if (tiles.rows[i] > 16 || tiles.bytes[i] > 64) return false;
  }
  tiles.configured = true;
  return true;
}

float bf16_at(const std::uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  return (bits & 0x7f80u) == 0 ? 0 : value;
}
float fp16_at(const std::uint8_t* at) {
  Float16 half;
  std::memcpy(&half, at, 2);
  return static_cast<float>(to_double(half));
}
float flushed(float value) { return value < 0x1p-126f && value > -0x1p-126f ? 0 : value; }

// Does TDPBF16PS and TDPFP16PS, whose products are exact floats unless they are very small.
template <typename Value>
bool multiply(int to, int a, int b, Value&& value_at) {
  if (tiles.bytes[a] / 4 != tiles.rows[b] || tiles.rows[to] != tiles.rows[a] ||
      tiles.bytes[to] != tiles.bytes[b] || to == a || to == b || a == b) {
    return false;
  }
  for (int m = 0; m < tiles.rows[to]; ++m) {
    for (int n = 0; n < tiles.bytes[to] / 4; ++n) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < tiles.rows[b]; ++k) {
        const std::uint8_t *x = tiles.data[a][m] + 4 * k, *y = tiles.data[b][k] + 4 * n;
        even = flushed(even + flushed(value_at(x) * value_at(y)));
        odd = flushed(odd + flushed(value_at(x + 2) * value_at(y + 2)));
      }
      std::memcpy(&sum, tiles.data[to][m] + 4 * n, 4);
      sum = flushed(sum + flushed(even + odd));
      std::memcpy(tiles.data[to][m] + 4 * n, &sum, 4);
    }
  }
  ++multiplications_done;
  return true;
}

void move_rows(const Operand& operand, int tile, bool load) {
  for (int row = 0; row < tiles.rows[tile]; ++row) {
    std::uint8_t* const memory = operand.address + row * operand.stride;
    std::uint8_t* const data = tiles.data[tile][row];
    std::memcpy(load ? data : memory, load ? memory : data, tiles.bytes[tile]);
  }
}

// Returns where the code goes on, or null for what is none of AMX's, or not allowed.
const std::uint8_t* execute(const Instruction& in, const ucontext_t& context) {
  constexpr int kNone = 0, kF3 = 2, kF2 = 3;
  const std::uint8_t* const next = in.at + 5;
  Operand operand;
  if (!in.valid() || (in.in_memory() && !read_operand(in, context, operand))) return nullptr;
  if (in.opcode() == 0x49 && in.prefix() == kNone && in.reg() == 0) {
    if (in.in_memory()) return configure(operand.address) ? operand.end : nullptr;
    tiles = {};  // TILERELEASE
    return next;
  }
  if (!tiles.configured) return nullptr;
  if (in.opcode() == 0x49 && in.prefix() == kF2 && !in.in_memory()) {  // TILEZERO
    std::memset(tiles.data[in.reg()], 0, sizeof tiles.data[0]);
    return next;
  }
  if (in.opcode() == 0x4b && in.in_memory() && (in.prefix() == kF2 || in.prefix() == kF3)) {
    move_rows(operand, in.reg(), in.prefix() == kF2);  // TILELOADD, TILESTORED
    return operand.end;
  }
  if (in.opcode() == 0x5c && !in.in_memory() && in.source() < 8) {
    const bool known = (in.prefix() == kF3 && multiply(in.reg(), in.rm(), in.source(), bf16_at)) ||
                       (in.prefix() == kF2 && multiply(in.reg(), in.rm(), in.source(), fp16_at));
    return known ? next : nullptr;
  }
  return nullptr;
}

void on_illegal_instruction(int, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  auto& code = context.uc_mcontext.gregs[REG_RIP];
  const std::uint8_t* next = execute({reinterpret_cast<const std::uint8_t*>(code)}, context);
  if (next == nullptr) {
    signal(SIGILL, SIG_DFL);  // and once more
    return;
  }
  code = reinterpret_cast<greg_t>(next);
}

}  // namespace

AmxTrap::AmxTrap() {
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before_);
}
AmxTrap::~AmxTrap() { sigaction(SIGILL, &before_, nullptr); }

long AmxTrap::multiplications() { return multiplications_done; }
bool AmxTrap::released() { return !tiles.configured; }

}  // namespace convgrad::testing
