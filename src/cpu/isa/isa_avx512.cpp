// isa_avx512.cpp - packers and register tiles for AVX-512.
#include "cpu/isa/avx512.hpp"
#include "cpu/isa/isa_functions.hpp"

namespace convgrad {
namespace {
struct Local : Avx512 {};
}  // namespace

constinit const IsaSet kAvx512Isa = isa_functions<Local>("avx512");

}  // namespace convgrad
