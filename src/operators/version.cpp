#include "gemmule/version.hpp"

namespace gemmule {

const char* version() noexcept {
  return GEMMULE_VERSION_STRING;
}

}  // namespace gemmule
