// convgrad.hpp - everything that computing and judging a filter gradient from another program
// needs.
#pragma once

#include "convgrad/compare.hpp"
#include "convgrad/dtype.hpp"
#include "convgrad/error.hpp"
#include "convgrad/gradient_file.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/run.hpp"
#include "convgrad/tensor_name.hpp"
