// Exceptions behind C functions.
#pragma once

#include <cstring>
#include <exception>

/// What the last call that returned 1 in this thread would have thrown.
inline thread_local char last_error[1024];

template <class Function>
int guarded(Function function) {
  try {
    function();
    return 0;
  } catch (const std::exception& error) {
    std::strncpy(last_error, error.what(), sizeof last_error - 1);
    return 1;
  }
}
