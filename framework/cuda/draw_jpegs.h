// Decodes JPEG files by nvJPEG, a library of NVIDIA's that is loaded when it is first asked for,
// and resizes the images on the device.
#pragma once

#include <c10/core/Device.h>

#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>

#include "framework/device/drawn_jpeg.h"

namespace brim::cuda {

/// Why nvJPEG can't be had on this device; "": it can.
std::string nvjpeg_problem(c10::Device device);

/// device::DrawJpegs on a device without such a problem. Waits until pixels are there, for which
/// a device does two calls at once and others wait. Throws c10::OutOfMemoryError, and c10::Error
/// where the device fails.
void draw_jpegs(std::span<device::DrawnJpeg> jpegs, c10::Device device);

/// While one lives draw_jpegs() waits before it calls nvJPEG, as what that calls may not be allowed
/// where a CUDA graph is recorded.
class WithoutNvJpeg {
 public:
  WithoutNvJpeg();

 private:
  std::unique_lock<std::mutex> gate_;
  std::unique_lock<std::shared_mutex> calls_;
};

}  // namespace brim::cuda
