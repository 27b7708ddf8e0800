// Version of the public headers. The library reports the version it was built as through gemmule::version().
#pragma once

#define GEMMULE_VERSION_MAJOR 0
#define GEMMULE_VERSION_MINOR 1
#define GEMMULE_VERSION_PATCH 0
#define GEMMULE_VERSION_STRING "0.1.0"

namespace gemmule {

/// Version of the linked library, "major.minor.patch".
const char* version() noexcept;

}  // namespace gemmule
