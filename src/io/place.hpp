// Where a call on a problem file's tensors runs: in host memory or on a device.
#pragma once

#include <memory>

#include "gemmule/tensor.hpp"
#include "io/host_tensor.hpp"

namespace gemmule::io {

/// Allocates zeroed memory, so that rows an operator does not write read as zero; brings inputs to that memory and outputs
/// back. Everything brought or allocated lives as long as the place, or until it is taken.
class Place : public Allocator {
 public:
  /// The same values there. Absent tensors stay absent.
  virtual Tensor bring(const Tensor& host) = 0;
  /// The same values in memory of their own, for tensors that a call adds to.
  virtual Tensor bring_copy(const Tensor& host) = 0;
  /// An array of addresses inside `whole`, as addresses of the same bytes there.
  virtual Tensor bring_pointers(const Tensor& host_pointers, const HostTensor& whole) = 0;
  /// The bytes of an output, once the call has finished.
  virtual AlignedBytes take(const Tensor& output) = 0;
};

std::unique_ptr<Place> host_place();
/// Throws RuntimeFailure when there is no such device.
std::unique_ptr<Place> device_place(int device_index);

}  // namespace gemmule::io
