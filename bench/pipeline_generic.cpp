#define GEMMULE_BENCH_NAMESPACE generic
#include "pipeline_body.hpp"
