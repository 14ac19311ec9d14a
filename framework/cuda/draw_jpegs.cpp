#include "framework/cuda/draw_jpegs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
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

constexpr int64_t kChunkBytes = int64_t{256} << 20;  // on the device at once, or one image's
constexpr size_t kDecoders =
    2;  // of a device: while one computes, the other one's files are parsed
constexpr int64_t kAlignment = 256;
constexpr auto kPoll = std::chrono::microseconds(100);  // an event's own wait takes a core

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
  const std::string why = handle == nullptr ? dlerror() : "";
  if (handle == nullptr) handle = dlopen(beside_libtorch().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {{},
            fmt::format("{}; it is part of the CUDA toolkit, and of the Python package "
                        "nvidia-nvjpeg",
                        why)};
  }
  Library library;
  const auto bind = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr) library.problem = fmt::format("{} has no {}", name, symbol);
  };
  bind("nvjpegCreateExV2", library.api.create);
  bind("nvjpegDestroy", library.api.destroy);
  bind("nvjpegJpegStateCreate", library.api.create_state);
  bind("nvjpegGetImageInfo", library.api.image_info);
  bind("nvjpegDecodeBatchedInitialize", library.api.start_batch);
  bind("nvjpegDecodeBatched", library.api.decode_batch);
  return library;
}

const Library& library() {
  static const Library result = load();
  return result;
}

void check(Status status, const char* call) {
  if (status == Status::kSuccess) return;
  TORCH_CHECK_WITH(OutOfMemoryError, status != Status::kAllocatorFailure,
                   "CUDA out of memory in nvJPEG's ", call);
  TORCH_CHECK(status != Status::kArchMismatch,
              "this GPU has no engine that decodes JPEG (data-centre GPUs from A100 on have one)");
  TORCH_CHECK(false, "nvJPEG's ", call, " failed with status ", static_cast<int>(status));
}

/// Calls of the library may be under way together. Who waits for their end holds the gate, so that
/// no new ones go before it.
struct Calls {
  std::mutex gate;
  std::shared_mutex under_way;
};

Calls& calls() {
  static auto* const result = new Calls();
  return *result;
}

std::shared_lock<std::shared_mutex> begin_calls() {
  const std::lock_guard through(calls().gate);
  return std::shared_lock(calls().under_way);
}

// --- decoding ------------------------------------------------------------------------------------

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The columns that an axis reads: the first one, and the one behind the last.
std::pair<int32_t, int32_t> range_of(const device::AxisWeights& axis) {
  int32_t end = 0;
  for (size_t i = 0; i < axis.runs.size(); i += 2) {
    end = std::max(end, axis.runs[i] + axis.runs[i + 1]);
  }
  return {axis.runs.front(), end};
}

/// What an image takes on the device.
struct Bytes {
  int64_t decoded = 0,
          between = 0;  // between the passes of resizing: its rows are as many as out's
  int64_t out = 0;
  int64_t sum() const { return decoded + between + out; }
};

Bytes bytes_of(const DrawnJpeg& jpeg) {
  const auto [left, right] = range_of(jpeg.across);
  const auto rows = static_cast<int64_t>(jpeg.down.runs.size() / 2);
  return {.decoded = aligned(int64_t{3} * jpeg.height * jpeg.width),
          .between = aligned(3 * rows * (right - left)),
          .out = static_cast<int64_t>(jpeg.pixels.size())};
}

at::Tensor pinned(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

/// A copy on the device, made on the current stream from pinned memory.
at::Tensor upload(const void* values, size_t bytes, c10::Device device) {
  const at::Tensor memory = pinned(static_cast<int64_t>(bytes));
  std::memcpy(memory.mutable_data_ptr(), values, bytes);
  return memory.to(device, /*non_blocking=*/true);
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

/// Used by one thread at a time. Lives as long as the process once it is made.
class Decoder {
 public:
  explicit Decoder(c10::Device device)
      : device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {
    const c10::StreamGuard guard(stream_);
    check(api().create(nvjpeg::kHardware, &device_allocator_, &pinned_allocator_,
                       nvjpeg::kInterpolates, &handle_),
          "nvjpegCreateExV2");
    const Status status = api().create_state(handle_, &state_);
    if (status != Status::kSuccess) api().destroy(handle_);
    check(status, "nvjpegJpegStateCreate");
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  void draw(std::span<DrawnJpeg> jpegs) {
    const c10::StreamGuard guard(stream_);
    std::vector<DrawnJpeg*> chunk;
    int64_t bytes = 0;
    const auto draw_chunk = [&] {
      if (!chunk.empty()) draw_together(chunk);
      chunk.clear();
      bytes = 0;
    };
    for (DrawnJpeg& jpeg : jpegs) {
      jpeg.is_drawn = false;
      if (!has_size(jpeg)) continue;
      const int64_t more = bytes_of(jpeg).sum();
      if (bytes + more > kChunkBytes) draw_chunk();
      chunk.push_back(&jpeg);
      bytes += more;
    }
    draw_chunk();
  }

 private:
  /// The work of the stream has ended where this ends, however that is: memory goes back to its
  /// pools then, and the engine does not write in the order of streams.
  class WaitAtEnd {
   public:
    explicit WaitAtEnd(const Decoder& decoder) : decoder_(decoder) {}
    ~WaitAtEnd() {
      try {
        decoder_.wait();
      } catch (const std::exception&) {  // of the device, which whatever comes next will find
      }
    }
    WaitAtEnd(const WaitAtEnd&) = delete;
    WaitAtEnd& operator=(const WaitAtEnd&) = delete;

   private:
    const Decoder& decoder_;
  };

  static const nvjpeg::Api& api() { return library().api; }

  void wait() const {
    const auto event = device::StreamEvent::now_on(stream_);
    while (!event->is_done()) std::this_thread::sleep_for(kPoll);
  }

  /// nvJPEG writes an image of the size that it reads itself.
  bool has_size(const DrawnJpeg& jpeg) const {
    int components = 0, subsampling = 0;
    std::array<int, 4> widths{}, heights{};
    const Status status = api().image_info(handle_, jpeg.file.data(), jpeg.file.size(), &components,
                                           &subsampling, widths.data(), heights.data());
    return status == Status::kSuccess && (components == 1 || components == 3) &&
           widths[0] == jpeg.width && heights[0] == jpeg.height;
  }

  void draw_together(std::span<DrawnJpeg* const> jpegs) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
    Bytes bytes;
    int64_t file_bytes = 0;
    for (const DrawnJpeg* jpeg : jpegs) {
      const Bytes more = bytes_of(*jpeg);
      bytes = {bytes.decoded + more.decoded, bytes.between + more.between, bytes.out + more.out};
      file_bytes += static_cast<int64_t>(jpeg->file.size());
    }
    // Zeros, so that what an engine leaves out is the same each time.
    const at::Tensor decoded = at::zeros({bytes.decoded}, options);
    const at::Tensor between = at::empty({bytes.between}, options);
    const at::Tensor out = at::empty({bytes.out}, options);
    const at::Tensor files = pinned(file_bytes);
    const WaitAtEnd wait_at_end(*this);

    std::vector<nvjpeg::Image> images(jpegs.size());
    std::vector<std::span<const uint8_t>> sources;
    auto* image = static_cast<uint8_t*>(decoded.mutable_data_ptr());
    auto* source = static_cast<uint8_t*>(files.mutable_data_ptr());
    for (size_t i = 0; i < jpegs.size(); ++i) {
      const DrawnJpeg& jpeg = *jpegs[i];
      images[i].planes[0] = image;
      images[i].row_bytes[0] = static_cast<size_t>(jpeg.width) * 3;
      image += bytes_of(jpeg).decoded;
      std::memcpy(source, jpeg.file.data(), jpeg.file.size());
      sources.emplace_back(source, jpeg.file.size());
      source += jpeg.file.size();
    }
    // Where a file is refused, each is tried alone: what is drawn does not depend on which were
    // together.
    std::vector<bool> are_decoded(jpegs.size(), decode(sources, images));
    if (!are_decoded[0] && jpegs.size() > 1) {
      for (size_t i = 0; i < jpegs.size(); ++i) {
        are_decoded[i] = decode(std::span(sources).subspan(i, 1), std::span(images).subspan(i, 1));
      }
    }
    resize(jpegs, are_decoded, images, static_cast<uint8_t*>(between.mutable_data_ptr()), out);
    wait();
    for (size_t i = 0; i < jpegs.size(); ++i) jpegs[i]->is_drawn = are_decoded[i];
  }

  /// False where nvJPEG refuses any of them, for whatever reason.
  bool decode(std::span<const std::span<const uint8_t>> sources, std::span<nvjpeg::Image> images) {
    std::vector<const unsigned char*> files;
    std::vector<size_t> sizes;
    for (const std::span<const uint8_t> source : sources) {
      files.push_back(source.data());
      sizes.push_back(source.size());
    }
    wait();  // for the zeros, and for the engine: a state serves one batch
    Status status = api().start_batch(handle_, state_, static_cast<int>(sources.size()),
                                      /*cpu_threads=*/1, nvjpeg::kRgbInterleaved);
    if (status == Status::kSuccess) {
      status = api().decode_batch(handle_, state_, files.data(), sizes.data(), images.data(),
                                  c10::cuda::getCurrentCUDAStream(device_.index()));
    }
    if (status == Status::kAllocatorFailure) check(status, "nvjpegDecodeBatched");
    return status == Status::kSuccess;
  }

  void resize(std::span<const DrawnJpeg* const> jpegs, const std::vector<bool>& are_decoded,
              std::span<const nvjpeg::Image> images, uint8_t* between, const at::Tensor& out) {
    PackedAxes axes;
    for (const DrawnJpeg* jpeg : jpegs) {
      axes.add(jpeg->down);
      axes.add(jpeg->across);
    }
    axes.copy_to(device_);
    std::vector<ResizedImage> resized;
    std::vector<const DrawnJpeg*> drawn;
    ResizedSizes sizes = {.height = static_cast<int32_t>(jpegs.front()->down.runs.size() / 2),
                          .width = static_cast<int32_t>(jpegs.front()->across.runs.size() / 2)};
    for (size_t i = 0; i < jpegs.size(); ++i) {
      const DeviceAxis down = axes.next(jpegs[i]->down);
      const DeviceAxis across = axes.next(jpegs[i]->across);
      if (!are_decoded[i]) continue;
      const auto [left, right] = range_of(jpegs[i]->across);
      resized.push_back({.pixels = images[i].planes[0],
                         .row_bytes = static_cast<int64_t>(images[i].row_bytes[0]),
                         .down = down,
                         .across = across,
                         .left = left,
                         .columns = right - left,
                         .between = between});
      between += bytes_of(*jpegs[i]).between;
      drawn.push_back(jpegs[i]);
      sizes.columns = std::max(sizes.columns, right - left);
    }
    if (drawn.empty()) return;
    sizes.images = static_cast<int32_t>(drawn.size());
    const at::Tensor on_device =
        upload(resized.data(), resized.size() * sizeof(ResizedImage), device_);
    C10_CUDA_CHECK(
        launch_resize_images(static_cast<const ResizedImage*>(on_device.const_data_ptr()), sizes,
                             static_cast<uint8_t*>(out.mutable_data_ptr()),
                             c10::cuda::getCurrentCUDAStream(device_.index())));
    const auto bytes = static_cast<int64_t>(drawn.size() * drawn[0]->pixels.size());
    copy_to_host(out.narrow(0, 0, bytes).view({sizes.images, -1}), drawn);
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

  // --- nvJPEG's memory is LibTorch's, whose cache would leave it none; any thread may ask for it
  template <class Make>
  int allocate(void** block, const Make& make) {
    try {
      const c10::StreamGuard guard(stream_);
      const at::Tensor memory = make();
      *block = memory.mutable_data_ptr();
      const std::lock_guard lock(memory_mutex_);
      memory_.insert_or_assign(*block, memory);
      return 0;
    } catch (const std::exception&) {  // nvJPEG then says kAllocatorFailure
      return 1;
    }
  }
  static int allocate_on_device(void* self, void** block, size_t bytes, cudaStream_t /*stream*/) {
    auto* const decoder = static_cast<Decoder*>(self);
    return decoder->allocate(block, [&] {
      return at::empty({static_cast<int64_t>(bytes)},
                       at::TensorOptions().dtype(at::kByte).device(decoder->device_));
    });
  }
  static int allocate_pinned(void* self, void** block, size_t bytes, cudaStream_t /*stream*/) {
    return static_cast<Decoder*>(self)->allocate(
        block, [&] { return pinned(static_cast<int64_t>(bytes)); });
  }
  static int release(void* self, void* block, size_t /*bytes*/, cudaStream_t /*stream*/) {
    auto* const decoder = static_cast<Decoder*>(self);
    try {
      decoder->wait();  // as cudaFree() does
    } catch (const std::exception&) {
      return 1;
    }
    const std::lock_guard lock(decoder->memory_mutex_);
    decoder->memory_.erase(block);
    return 0;
  }

  const c10::Device device_;
  const c10::Stream stream_;
  std::mutex memory_mutex_;
  std::map<void*, at::Tensor> memory_;
  nvjpeg::Allocator device_allocator_ = {allocate_on_device, release, this};
  nvjpeg::Allocator pinned_allocator_ = {allocate_pinned, release, this};
  nvjpeg::Handle handle_ = nullptr;
  nvjpeg::State state_ = nullptr;
};

/// The decoders of one device.
class Decoders {
 public:
  explicit Decoders(c10::Device device) : device_(device) {
    all_.reserve(kDecoders);
    free_.reserve(kDecoders);
  }

  void draw(std::span<DrawnJpeg> jpegs) {
    Decoder* const decoder = take();
    const auto give_back = [this](Decoder* given) {
      const std::lock_guard lock(mutex_);
      free_.push_back(given);
      is_free_.notify_one();
    };
    const std::unique_ptr<Decoder, decltype(give_back)> at_end(decoder, give_back);
    const auto call = begin_calls();
    decoder->draw(jpegs);
  }

 private:
  Decoder* take() {
    std::unique_lock lock(mutex_);
    if (free_.empty() && all_.size() < kDecoders) {
      try {
        const auto call = begin_calls();
        all_.push_back(std::make_unique<Decoder>(device_));
        free_.push_back(all_.back().get());
      } catch (const c10::OutOfMemoryError&) {
        if (all_.empty()) throw;  // else one does
      }
    }
    is_free_.wait(lock, [&] { return !free_.empty(); });
    Decoder* const decoder = free_.back();
    free_.pop_back();
    return decoder;
  }

  const c10::Device device_;
  std::mutex mutex_;
  std::condition_variable is_free_;
  std::vector<std::unique_ptr<Decoder>> all_;
  std::vector<Decoder*> free_;
};

/// They live as long as the process.
Decoders& decoders(c10::Device device) {
  static std::mutex mutex;
  static auto* const all = new std::map<c10::DeviceIndex, Decoders>();
  const std::lock_guard lock(mutex);
  return all->try_emplace(device.index(), device).first->second;
}

}  // namespace

WithoutNvJpeg::WithoutNvJpeg() : gate_(calls().gate), calls_(calls().under_way) {}

std::string nvjpeg_problem(c10::Device device) {
  if (!library().problem.empty()) return library().problem;
  try {
    decoders(device).draw({});
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

void draw_jpegs(std::span<device::DrawnJpeg> jpegs, c10::Device device) {
  decoders(device).draw(jpegs);
}

}  // namespace brim::cuda
