// What data_core does to a file, for test_peer.py to compare with Python packages:
//   data_tool decode FILE OUT           the decoded pixels
//   data_tool resize FILE H W OUT       the same, resized
//   data_tool fit FILE RESIZE SIZE OUT  shorter side to RESIZE, then the centre SIZE x SIZE
//   data_tool list FOLDER               "label path" of each image
// Prints "height width"; OUT gets uint8 RGB.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "framework/base/files.h"
#include "framework/data/augment.h"
#include "framework/data/image.h"
#include "framework/data/image_folder.h"

namespace brim::data {
namespace {

void save(const Image& image, const char* path) {
  fmt::print("{} {}\n", image.height, image.width);
  write_file(path, {reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()});
}

Image load(const char* path) {
  const std::string bytes = read_file(path, Exit::kData, int64_t{1} << 30);
  return decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
}

int body(int count, char** words) {
  const std::string_view command = count > 2 ? words[1] : "";
  if (command == "list") {
    ImageFolderConfig config;
    config.train = words[2];
    const auto dataset = as_images(config.open_train({}));
    std::vector<uint8_t> pixels(static_cast<size_t>(dataset->shape().bytes()));
    for (int64_t i = 0; i < dataset->size(); ++i) {
      fmt::print("{} {}\n", dataset->read(i, nullptr, pixels), dataset->name(i));
    }
    return 0;
  }
  const Image image = load(words[2]);
  if (command == "decode") {
    save(image, words[3]);
    return 0;
  }
  const int64_t first = std::atoi(words[3]);
  const int64_t second = std::atoi(words[4]);
  Image out = {command == "fit" ? second : first, second, 3, {}};
  out.pixels.resize(static_cast<size_t>(out.height * out.width * 3));
  if (command == "fit") {
    fit_image(view(image), {second, second, 3}, first, out.pixels);
  } else {
    resize_window(view(image), first, second, {0, 0, first, second}, out.pixels);
  }
  save(out, words[5]);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
