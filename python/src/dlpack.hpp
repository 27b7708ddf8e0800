// What is used of DLPack's C interface for the fast exchange of tensors (version 1.x), as PyTorch 2.10 and later offer it in
// torch.Tensor.__dlpack_c_exchange_api__.
#pragma once

#include <cstdint>

namespace gemmule::python::dlpack {

struct Version {
  std::uint32_t major, minor;
};
struct DeviceOf {
  std::int32_t device_type, device_id;
};
struct ElementType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DeviceOf device;
  std::int32_t ndim;
  ElementType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// Functions that are not called have no type here. All return 0 or leave a Python error.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  /// Fills `out` with pointers into the object, which must stay alive; null where a framework has no such function.
  int (*tensor_from_object)(void* object, DLTensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

inline constexpr const char* capsule_name = "dlpack_exchange_api";
inline constexpr const char* attribute_name = "__dlpack_c_exchange_api__";

}  // namespace gemmule::python::dlpack
