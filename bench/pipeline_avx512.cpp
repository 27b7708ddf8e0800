#define GEMMULE_BENCH_NAMESPACE avx512
#include "pipeline_body.hpp"
