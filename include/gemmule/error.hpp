// The three kinds of failure. Nothing has been written to any output when one of them is thrown.
#pragma once

#include <stdexcept>

namespace gemmule {

/// Base of every exception this library throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument breaks a rule. The message names the argument, its value and the rule. ValueError in Python.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A legal request that this operator does not offer. NotImplementedError in Python.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// No usable device, a missing runtime library, a failed CUDA call, or an object used before compile().
/// RuntimeError in Python.
class RuntimeFailure : public Error {
 public:
  using Error::Error;
};

}  // namespace gemmule
