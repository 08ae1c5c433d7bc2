// convgrad.hpp - includes all that another program needs to compute and judge filter gradients and
// to read and write tensors.
#pragma once

#include "convgrad/array_file.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/dtype.hpp"
#include "convgrad/error.hpp"
#include "convgrad/float16.hpp"
#include "convgrad/gradient.hpp"
#include "convgrad/gradient_file.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/verdict.hpp"
