// The part of the CUDA driver's and NVRTC's binary interface that we use, declared here so that the library builds
// without a CUDA toolkit. Values and layouts are those of cuda.h and nvrtc.h (CUDA 12.0 and later); a test compares
// them with the real headers where those are installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gemmule::cuda {

using Result = int;  // CUresult; 0 is success
using DeviceHandle = int;
using DeviceAddress = std::uint64_t;  // CUdeviceptr
using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;

enum : int {
  result_success = 0,
  result_no_device = 100,

  device_attribute_sm_count = 16,
  device_attribute_capability_major = 75,
  device_attribute_capability_minor = 76,
  device_attribute_shared_bytes_per_block_optin = 97,

  function_attribute_max_dynamic_shared_bytes = 8,
  function_attribute_non_portable_cluster = 14,

  capture_mode_relaxed = 2,
  capture_status_none = 0,

  launch_attribute_cluster_dimension = 4,
  launch_attribute_programmatic_stream_serialization = 6,
};

/// CUlaunchAttribute: an id, padding to 8 bytes, a 64-byte union of which we use two members.
struct LaunchAttribute {
  struct Cluster {
    unsigned x, y, z;
  };
  union Value {
    char pad[64];
    Cluster cluster;
    int programmatic_stream_serialization;
  };
  int id;
  char pad[4];
  alignas(8) Value value;
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// CUtensorMap: 128 opaque bytes at an address that is a multiple of 64. Kernels receive it by value inside their
/// parameter struct; the device's declaration has the same size and alignment.
struct alignas(64) EncodedTensorMap {
  std::uint64_t words[16];
};

using NvrtcResult = int;
using NvrtcProgram = struct NvrtcProgramTag*;

}  // namespace gemmule::cuda
