// amx_vectors_avx512.cpp - packing for AMX with AVX-512, which every processor with AMX has.
#define CONVGRAD_AMX_VECTORS kAvx512AmxVectors
#include "cpu/amx/amx_vectors.inc"
