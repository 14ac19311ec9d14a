#include "framework/cuda/draw_jpegs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/cuda/nvjpeg_api.h"
#include "framework/cuda/resize_images_kernel.h"
#include "framework/device/stream_event.h"

namespace brim::cuda {
namespace {

namespace fs = std::filesystem;
using device::DrawnJpeg;
using nvjpeg::Status;

constexpr int64_t kChunkBytes = int64_t{256} << 20;  // of decoded images at once, or one image
constexpr size_t kDecoders =
    2;  // of a device: while one computes, the other one's files are parsed
constexpr int64_t kAlignment = 256;

// --- the library ---------------------------------------------------------------------------------

struct Library {
  nvjpeg::Api api;
  std::string problem;  // "": none
};

/// "libnvjpeg.so.13" of CUDA 13.
std::string library_name() { return fmt::format("libnvjpeg.so.{}", CUDART_VERSION / 1000); }

/// Where NVIDIA's wheels have it, beside LibTorch's.
fs::path beside_libtorch() {
  Dl_info torch{};
  if (dladdr(reinterpret_cast<const void*>(&c10::GetAllocator), &torch) == 0) return {};
  const fs::path packages = fs::path(torch.dli_fname).parent_path() / "../../nvidia";
  return packages / fmt::format("cu{}", CUDART_VERSION / 1000) / "lib" / library_name();
}

Library load() {
  const std::string name = library_name();
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) handle = dlopen(beside_libtorch().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {{},
            fmt::format("{} was not found: it is part of the CUDA toolkit, and of the Python "
                        "package nvidia-nvjpeg",
                        name)};
  }
  Library library;
  const auto bind = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr) library.problem = fmt::format("{} has no {}", name, symbol);
  };
  bind("nvjpegCreateEx", library.api.create);
  bind("nvjpegJpegStateCreate", library.api.create_state);
  bind("nvjpegDecodeBatchedInitialize", library.api.start_batch);
  bind("nvjpegDecodeBatched", library.api.decode_batch);
  return library;
}

const Library& library() {
  static const Library result = load();
  return result;
}

// --- its memory: LibTorch's, whose cache would leave it none -------------------------------------

std::mutex memory_mutex;
std::map<void*, c10::DataPtr>& memory() {
  static auto* const blocks = new std::map<void*, c10::DataPtr>();
  return *blocks;
}

int allocate(void** block, size_t bytes) {
  try {
    c10::DataPtr pointer = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(bytes);
    *block = pointer.get();
    const std::lock_guard lock(memory_mutex);
    memory().insert_or_assign(*block, std::move(pointer));
    return 0;
  } catch (const std::exception&) {  // nvJPEG then says kAllocatorFailure
    return 1;
  }
}

int release(void* block) {
  const std::lock_guard lock(memory_mutex);
  memory().erase(block);
  return 0;
}

nvjpeg::DeviceAllocator device_allocator = {allocate, release};

// --- decoding ------------------------------------------------------------------------------------

/// Whether the file is to blame.
bool is_of_file(Status status) {
  return status == Status::kBadJpeg || status == Status::kNotSupported ||
         status == Status::kIncomplete;
}

void check(Status status, const char* call) {
  if (status == Status::kSuccess) return;
  TORCH_CHECK_WITH(OutOfMemoryError, status != Status::kAllocatorFailure,
                   "CUDA out of memory in nvJPEG's ", call);
  TORCH_CHECK(false, "nvJPEG's ", call, " failed with status ", static_cast<int>(status));
}

int64_t decoded_bytes(const DrawnJpeg& jpeg) {
  const int64_t bytes = int64_t{3} * jpeg.height * jpeg.width;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// `bytes` of a copy on the device, made on the current stream from pinned memory.
at::Tensor upload(const void* values, size_t bytes, c10::Device device) {
  const at::Tensor pinned = at::empty({static_cast<int64_t>(bytes)},
                                      at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(pinned.mutable_data_ptr(), values, bytes);
  return pinned.to(device, /*non_blocking=*/true);
}

/// All axes' runs and weights in one piece of memory.
class PackedAxes {
 public:
  void add(const device::AxisWeights& axis) {
    values_.insert(values_.end(), axis.runs.begin(), axis.runs.end());
    values_.insert(values_.end(), axis.weights.begin(), axis.weights.end());
  }
  void copy_to(c10::Device device) {
    on_device_ = upload(values_.data(), values_.size() * sizeof(int32_t), device);
    next_ = static_cast<const int32_t*>(on_device_.const_data_ptr());
  }
  /// In the order in which they were added.
  DeviceAxis next(const device::AxisWeights& axis) {
    const DeviceAxis result = {next_, next_ + axis.runs.size(), axis.stride};
    next_ += axis.runs.size() + axis.weights.size();
    return result;
  }

 private:
  std::vector<int32_t> values_;
  at::Tensor on_device_;
  const int32_t* next_ = nullptr;
};

class Decoder {
 public:
  explicit Decoder(c10::Device device)
      : device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {
    const c10::StreamGuard guard(stream_);
    // Without an engine for it, by the device's cores.
    Status status = create(nvjpeg::Backend::kHardware);
    if (status != Status::kSuccess) status = create(nvjpeg::Backend::kGpuHybrid);
    check(status, "nvjpegCreateEx");
    check(api().create_state(handle_, &state_), "nvjpegJpegStateCreate");
  }

  void draw(std::span<DrawnJpeg> jpegs) const {
    const c10::StreamGuard guard(stream_);
    while (!jpegs.empty()) {
      size_t count = 0;
      int64_t bytes = 0;
      do bytes += decoded_bytes(jpegs[count++]);
      while (count < jpegs.size() && bytes + decoded_bytes(jpegs[count]) <= kChunkBytes);
      draw_chunk(jpegs.first(count), bytes);
      jpegs = jpegs.subspan(count);
    }
  }

 private:
  static const nvjpeg::Api& api() { return library().api; }

  Status create(nvjpeg::Backend backend) {
    return api().create(backend, &device_allocator, /*pinned_allocator=*/nullptr, nvjpeg::kStrict,
                        &handle_);
  }

  void draw_chunk(std::span<DrawnJpeg> jpegs, int64_t bytes) const {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
    const at::Tensor decoded = at::empty({bytes}, options);
    std::vector<nvjpeg::Image> images(jpegs.size());
    auto* next = static_cast<uint8_t*>(decoded.mutable_data_ptr());
    for (size_t i = 0; i < jpegs.size(); ++i) {
      images[i].planes[0] = next;
      images[i].row_bytes[0] = static_cast<size_t>(jpegs[i].width) * 3;
      next += decoded_bytes(jpegs[i]);
    }
    decode(jpegs, images);
    resize(jpegs, images);
    device::StreamEvent::now_on(stream_)->wait();
  }

  /// Sets is_drawn. Where nvJPEG refuses a batch for one of its files, each is tried alone: what is
  /// drawn does not depend on which were together.
  void decode(std::span<DrawnJpeg> jpegs, std::span<nvjpeg::Image> images) const {
    const bool are_all = decode_together(jpegs, images);
    for (size_t i = 0; i < jpegs.size(); ++i) {
      jpegs[i].is_drawn = are_all || (jpegs.size() > 1 &&
                                      decode_together(jpegs.subspan(i, 1), images.subspan(i, 1)));
    }
  }

  bool decode_together(std::span<const DrawnJpeg> jpegs, std::span<nvjpeg::Image> images) const {
    std::vector<const unsigned char*> files;
    std::vector<size_t> sizes;
    for (const DrawnJpeg& jpeg : jpegs) {
      files.push_back(jpeg.file.data());
      sizes.push_back(jpeg.file.size());
    }
    check(api().start_batch(handle_, state_, static_cast<int>(jpegs.size()), /*cpu_threads=*/1,
                            nvjpeg::kRgbInterleaved),
          "nvjpegDecodeBatchedInitialize");
    const Status status =
        api().decode_batch(handle_, state_, files.data(), sizes.data(), images.data(),
                           c10::cuda::getCurrentCUDAStream(device_.index()));
    if (is_of_file(status)) return false;
    check(status, "nvjpegDecodeBatched");
    return true;
  }

  void resize(std::span<const DrawnJpeg> jpegs, std::span<const nvjpeg::Image> images) const {
    PackedAxes axes;
    for (const DrawnJpeg& jpeg : jpegs) {
      axes.add(jpeg.down);
      axes.add(jpeg.across);
    }
    axes.copy_to(device_);
    std::vector<ResizedImage> resized;
    std::vector<const DrawnJpeg*> drawn;
    ResizedSizes sizes;
    for (size_t i = 0; i < jpegs.size(); ++i) {
      const DeviceAxis down = axes.next(jpegs[i].down);
      const DeviceAxis across = axes.next(jpegs[i].across);
      if (!jpegs[i].is_drawn) continue;
      const auto [left, right] = range_of(jpegs[i].across);
      resized.push_back({.pixels = images[i].planes[0],
                         .row_bytes = static_cast<int64_t>(images[i].row_bytes[0]),
                         .down = down,
                         .across = across,
                         .left = left,
                         .columns = right - left});
      drawn.push_back(&jpegs[i]);
      sizes.columns = std::max(sizes.columns, right - left);
    }
    if (drawn.empty()) return;
    sizes.images = static_cast<int32_t>(drawn.size());
    sizes.height = static_cast<int32_t>(jpegs.front().down.runs.size() / 2);
    sizes.width = static_cast<int32_t>(jpegs.front().across.runs.size() / 2);
    const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
    const at::Tensor on_device =
        upload(resized.data(), resized.size() * sizeof(ResizedImage), device_);
    const at::Tensor between = at::empty({sizes.images, sizes.height, sizes.columns, 3}, options);
    const at::Tensor out = at::empty({sizes.images, sizes.height, sizes.width, 3}, options);
    C10_CUDA_CHECK(
        launch_resize_images(static_cast<const ResizedImage*>(on_device.const_data_ptr()), sizes,
                             static_cast<uint8_t*>(between.mutable_data_ptr()),
                             static_cast<uint8_t*>(out.mutable_data_ptr()),
                             c10::cuda::getCurrentCUDAStream(device_.index())));
    copy_to_host(out, drawn);
  }

  /// The columns that an axis reads.
  static std::pair<int32_t, int32_t> range_of(const device::AxisWeights& axis) {
    int32_t end = 0;
    for (size_t i = 0; i < axis.runs.size(); i += 2) {
      end = std::max(end, axis.runs[i] + axis.runs[i + 1]);
    }
    return {axis.runs.front(), end};
  }

  /// Those whose pixels follow each other in the host's memory in one copy.
  static void copy_to_host(const at::Tensor& out, std::span<const DrawnJpeg* const> drawn) {
    for (size_t first = 0; first < drawn.size();) {
      uint8_t* const to = drawn[first]->pixels.data();
      const size_t bytes = drawn[first]->pixels.size();
      size_t count = 1;
      while (first + count < drawn.size() &&
             drawn[first + count]->pixels.data() == to + count * bytes) {
        ++count;
      }
      const at::Tensor from =
          out.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(count));
      at::from_blob(to, from.sizes(), at::kByte).copy_(from, /*non_blocking=*/true);
      first += count;
    }
  }

  const c10::Device device_;
  const c10::Stream stream_;
  nvjpeg::Handle handle_ = nullptr;
  nvjpeg::State state_ = nullptr;
};

/// The decoders of one device; they live as long as the process.
class Decoders {
 public:
  explicit Decoders(c10::Device device) : device_(device) {}

  void draw(std::span<DrawnJpeg> jpegs) {
    const std::shared_ptr<const Decoder> decoder = take();
    const auto give_back = [&](const void*) {
      const std::lock_guard lock(mutex_);
      free_.push_back(decoder);
      is_free_.notify_one();
    };
    const std::unique_ptr<const void, decltype(give_back)> at_end(this, give_back);
    decoder->draw(jpegs);
  }

 private:
  std::shared_ptr<const Decoder> take() {
    std::unique_lock lock(mutex_);
    if (free_.empty() && made_ < kDecoders) {
      free_.push_back(std::make_shared<const Decoder>(device_));
      ++made_;
    }
    is_free_.wait(lock, [&] { return !free_.empty(); });
    std::shared_ptr<const Decoder> decoder = std::move(free_.back());
    free_.pop_back();
    return decoder;
  }

  const c10::Device device_;
  std::mutex mutex_;
  std::condition_variable is_free_;
  std::vector<std::shared_ptr<const Decoder>> free_;
  size_t made_ = 0;
};

Decoders& decoders(c10::Device device) {
  static std::mutex mutex;
  static auto* const all = new std::map<c10::DeviceIndex, Decoders>();
  const std::lock_guard lock(mutex);
  return all->try_emplace(device.index(), device).first->second;
}

}  // namespace

std::string nvjpeg_problem(c10::Device device) {
  if (!library().problem.empty()) return library().problem;
  try {
    decoders(device).draw({});
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void draw_jpegs(std::span<device::DrawnJpeg> jpegs, c10::Device device) {
  decoders(device).draw(jpegs);
}

}  // namespace brim::cuda
