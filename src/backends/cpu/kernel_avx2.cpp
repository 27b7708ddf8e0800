#define GEMMULE_CPU_NAMESPACE avx2
#include "backends/cpu/kernel_body.hpp"
