// amx_vectors_portable.cpp - packing for AMX on any processor, to test it there.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector leaves this file
#define CONVGRAD_AMX_VECTORS kPortableAmxVectors
#include "cpu/amx/amx_vectors.inc"
