#define GEMMULE_CPU_NAMESPACE avx512
#include "backends/cpu/kernel_body.hpp"
