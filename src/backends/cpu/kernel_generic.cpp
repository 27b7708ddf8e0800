#define GEMMULE_CPU_NAMESPACE generic
#include "backends/cpu/kernel_body.hpp"
