#define GEMMULE_BENCH_NAMESPACE avx2
#include "pipeline_body.hpp"
