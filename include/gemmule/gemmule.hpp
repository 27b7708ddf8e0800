// Everything a C++ user needs.
#pragma once

#include "gemmule/error.hpp"
#include "gemmule/grouped_gemm_dglu.hpp"
#include "gemmule/grouped_gemm_srelu.hpp"
#include "gemmule/layout.hpp"
#include "gemmule/options.hpp"
#include "gemmule/quantize.hpp"
#include "gemmule/tensor.hpp"
#include "gemmule/version.hpp"
