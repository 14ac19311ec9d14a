// Tensors to and from safetensors files, and into a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_files.h"

namespace brim::checkpoint {

/// Of tensors that do not fit, so many are named; then they are counted.
inline constexpr size_t kMaxListed = 10;

using TensorMap = std::map<std::string, at::Tensor>;

/// Writes tensors of any device and memory layout; values are stored row-major. Atomic.
/// Throws Error(kResource) if the disk won't take it.
void save_tensors(const std::filesystem::path& path, const TensorMap& tensors,
                  const Metadata& metadata = {});

/// How a file lays out tensors of these names, dtypes and shapes.
std::vector<TensorLayout> layout_of(const TensorMap& tensors);

/// A tensor's values as they lie; it is contiguous and on the CPU.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

/// CPU tensors, contiguous, that own their memory. Throws Error(kCheckpoint), naming the file, for
/// anything but a whole safetensors file.
TensorMap load_tensors(const std::filesystem::path& path);

/// CPU tensors that look into the files, which they keep open, and are to be read only: clone()
/// what is to change. (Those that lie unaligned there, or are not stored as LibTorch has them, own
/// their memory.)
TensorMap view_tensors(const std::shared_ptr<const WeightFiles>& files);

/// Deep copies on the CPU, contiguous; waits for the device.
TensorMap copy_to_cpu(const TensorMap& tensors);

/// Names and shapes must agree one to one; if they don't, one Error(kCheckpoint) lists every
/// difference, a line each. `what` says what `from` is, for instance
/// "run/checkpoints/step-00001000: model".
void check_fit(const TensorMap& from, const TensorMap& into, const std::string& what);

/// Copies values into existing tensors (of any device, dtype and layout; parameters included).
/// Where check_fit() throws, nothing is changed. Those that look into `files` are read one after
/// the other, so that at any time little of the files is in memory.
void copy_into(const TensorMap& from, TensorMap& into, const std::string& what,
               const std::vector<std::shared_ptr<const WeightFiles>>& files = {});

}  // namespace brim::checkpoint
