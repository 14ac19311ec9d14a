// nvJPEG of the simulated GPU, by libjpeg: lies where programs look for libnvjpeg.so. Like the
// engine of a GPU it writes images when it is called, whatever its stream still has to do, and it
// is as strict as the real one about how it is called.
//
// BRIM_NVJPEG_LOG: a file with a line for each batch: its images, and whether it was taken.
// BRIM_NVJPEG_REFUSES: it takes no file of a number of bytes that this divides.
// BRIM_NVJPEG_ENGINE=0: the GPU has none for JPEGs.
// BRIM_NVJPEG_MIB: what it takes of the GPU's memory for a batch, 1 by default.
#include <fcntl.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include "framework/cuda/nvjpeg_api.h"

namespace brim::cuda::nvjpeg {

struct HandleData {
  Allocator device, pinned;
};

struct StateData {
  int images = 0;
  void* memory = nullptr;  // on the device, as the real one needs it
  size_t bytes = 0;
};

namespace {

constexpr auto kInvalidParameter = static_cast<Status>(2);
constexpr auto kBadJpeg = static_cast<Status>(3);
constexpr auto kNotSupported = static_cast<Status>(4);

struct Jpeg {
  jpeg_decompress_struct header{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  ~Jpeg() { jpeg_destroy_decompress(&header); }
};

bool read_header(Jpeg& jpeg, std::span<const unsigned char> file) {
  jpeg.header.err = jpeg_std_error(&jpeg.errors);
  jpeg.header.client_data = &jpeg;
  jpeg.errors.emit_message = [](j_common_ptr, int) {};
  jpeg.errors.error_exit = [](j_common_ptr common) {
    std::longjmp(static_cast<Jpeg*>(common->client_data)->jump, 1);
  };
  if (setjmp(jpeg.jump) != 0) return false;
  jpeg_create_decompress(&jpeg.header);
  jpeg_mem_src(&jpeg.header, file.data(), file.size());
  jpeg_read_header(&jpeg.header, TRUE);
  return true;
}

Status status_of(std::span<const unsigned char> file) {
  const char* const refused = std::getenv("BRIM_NVJPEG_REFUSES");
  if (refused != nullptr && file.size() % std::strtoul(refused, nullptr, 10) == 0) {
    return kNotSupported;
  }
  Jpeg jpeg;
  if (!read_header(jpeg, file)) return kBadJpeg;
  const bool is_baseline = jpeg.header.progressive_mode == FALSE && jpeg.header.num_components != 4;
  return is_baseline ? Status::kSuccess : kNotSupported;
}

void decode(std::span<const unsigned char> file, const Image& image) {
  Jpeg jpeg;
  // Damage leaves a part of the image as it was.
  if (!read_header(jpeg, file) || setjmp(jpeg.jump) != 0) return;
  jpeg.header.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg.header);
  while (jpeg.header.output_scanline < jpeg.header.output_height) {
    unsigned char* row = image.planes[0] + jpeg.header.output_scanline * image.row_bytes[0];
    jpeg_read_scanlines(&jpeg.header, &row, 1);
  }
  jpeg_finish_decompress(&jpeg.header);
}

void log(size_t images, Status status) {
  const char* const path = std::getenv("BRIM_NVJPEG_LOG");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string line =
      std::to_string(images) + (status == Status::kSuccess ? " decoded\n" : " refused\n");
  if (::write(file, line.data(), line.size()) < 0) std::abort();
  ::close(file);
}

}  // namespace
}  // namespace brim::cuda::nvjpeg

using namespace brim::cuda::nvjpeg;  // its functions are C's

extern "C" {

Status nvjpegCreateExV2(int backend, Allocator* device, Allocator* pinned, unsigned /*flags*/,
                        Handle* handle) {
  if (backend != kHardware || device == nullptr || pinned == nullptr) return kInvalidParameter;
  const char* const engine = std::getenv("BRIM_NVJPEG_ENGINE");
  if (engine != nullptr && *engine == '0') return Status::kArchMismatch;
  *handle = new HandleData{*device, *pinned};
  return Status::kSuccess;
}

Status nvjpegDestroy(Handle handle) {
  delete handle;
  return Status::kSuccess;
}

Status nvjpegJpegStateCreate(Handle handle, State* state) {
  if (handle == nullptr) return kInvalidParameter;
  *state = new StateData();
  return Status::kSuccess;
}

Status nvjpegGetImageInfo(Handle, const unsigned char* file, size_t bytes, int* components,
                          int* subsampling, int* widths, int* heights) {
  Jpeg jpeg;
  if (!read_header(jpeg, {file, bytes})) return kBadJpeg;
  *components = jpeg.header.num_components;
  *subsampling = 0;
  widths[0] = static_cast<int>(jpeg.header.image_width);
  heights[0] = static_cast<int>(jpeg.header.image_height);
  return Status::kSuccess;
}

Status nvjpegDecodeBatchedInitialize(Handle handle, State state, int images, int cpu_threads,
                                     int output_format) {
  if (images < 1 || cpu_threads < 1 || output_format != kRgbInterleaved) return kInvalidParameter;
  const Allocator& device = handle->device;
  if (state->memory != nullptr) device.free(device.context, state->memory, state->bytes, nullptr);
  state->memory = nullptr;
  const char* const mib = std::getenv("BRIM_NVJPEG_MIB");
  state->bytes = (mib == nullptr ? 1 : std::strtoul(mib, nullptr, 10)) << 20;
  if (device.allocate(device.context, &state->memory, state->bytes, nullptr) != 0) {
    return Status::kAllocatorFailure;
  }
  state->images = images;
  return Status::kSuccess;
}

Status nvjpegDecodeBatched(Handle, State state, const unsigned char* const* files,
                           const size_t* bytes, Image* images, cudaStream_t) {
  const auto count = static_cast<size_t>(state->images);
  if (count == 0) return kInvalidParameter;
  state->images = 0;  // to be initialized again, as after a batch that failed
  for (size_t i = 0; i < count; ++i) {
    const Status status = status_of({files[i], bytes[i]});
    if (status == Status::kSuccess) continue;
    log(count, status);
    return status;
  }
  log(count, Status::kSuccess);
  for (size_t i = 0; i < count; ++i) decode({files[i], bytes[i]}, images[i]);
  return Status::kSuccess;
}

}  // extern "C"
