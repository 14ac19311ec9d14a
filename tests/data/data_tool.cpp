// What data_core does to a file, for test_peer.py to compare with Python packages:
//   data_tool decode FILE OUT           the decoded pixels
//   data_tool fit FILE RESIZE SIZE OUT  shorter side to RESIZE, then the centre SIZE x SIZE
//   data_tool resize|draw|fast FILE bilinear|bicubic TOP LEFT HEIGHT WIDTH H W OUT
//       that part of the image, resized to H x W: from the decoded image; decoding what is needed
//       only; the same with fast_decode
//   data_tool list FOLDER               "label path" of each image
//   data_tool cifar FOLDER LABELS OUT   "label" of each image
//   data_tool tokens FILE TYPE VOCABULARY LENGTH PACKING OUT
// The first three print "height width"; OUT gets uint8 RGB of the image or images, or all rows of
// tokens one after the other.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "framework/base/files.h"
#include "framework/data/augment/augment.h"
#include "framework/data/image/image.h"
#include "framework/data/sources/cifar.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/tokens.h"

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

/// All samples in their own order; `each` is told the label.
template <class Each>
void save_samples(const Dataset& dataset, const char* path, Each each) {
  const auto bytes = static_cast<size_t>(dataset.sample_bytes());
  std::vector<uint8_t> all(bytes * static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    each(dataset.read(i, nullptr, std::span(all).subspan(static_cast<size_t>(i) * bytes, bytes)));
  }
  write_file(path, {reinterpret_cast<const char*>(all.data()), all.size()});
}

void cifar(char** words) {
  CifarConfig config;
  config.path = words[2];
  config.labels =
      std::string_view(words[3]) == "coarse" ? CifarLabels::kCoarse : CifarLabels::kFine;
  save_samples(*config.open_train({}), words[4], [](int64_t label) { fmt::print("{}\n", label); });
}

void tokens(char** words) {
  const std::string_view packing = words[6];
  TokensConfig config;
  config.train = words[2];
  config.type = std::string_view(words[3]) == "uint32" ? TokenType::kUint32 : TokenType::kUint16;
  config.vocabulary = std::atoll(words[4]);
  config.length = std::atoll(words[5]);
  config.packing = packing == "stream"      ? Packing::kStream
                   : packing == "documents" ? Packing::kDocuments
                                            : Packing::kPadded;
  save_samples(*config.open_train({}), words[7], [](int64_t) {});
}

int body(int count, char** words) {
  const std::string_view command = count > 2 ? words[1] : "";
  if (command == "cifar") {
    cifar(words);
    return 0;
  }
  if (command == "tokens") {
    tokens(words);
    return 0;
  }
  if (command == "list") {
    ImageFolderConfig config;
    config.train = words[2];
    const auto dataset = config.open_train({});
    std::vector<uint8_t> pixels(static_cast<size_t>(dataset->images()->shape().bytes()));
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
  if (command == "fit") {
    const int64_t size = std::atoi(words[4]);
    const ImageShape shape = {size, size, 3};
    Image out = allocate_rgb(size, size, words[2]);
    resize(view(image), place_whole(image.height, image.width, shape, std::atoi(words[3])),
           Filter::kBilinear, out.pixels);
    save(out, words[5]);
    return 0;
  }
  const Filter filter =
      words[3] == std::string_view("bicubic") ? Filter::kBicubic : Filter::kBilinear;
  const Box box = {std::atoi(words[4]), std::atoi(words[5]), std::atoi(words[6]),
                   std::atoi(words[7])};
  Image out = allocate_rgb(std::atoi(words[8]), std::atoi(words[9]), words[2]);
  const CropPlan placement = {box, out.height, out.width, {0, 0, out.height, out.width}};
  if (command == "resize") {
    resize(view(image), placement, filter, out.pixels);
  } else {
    const std::string bytes = read_file(words[2], Exit::kData, int64_t{1} << 30);
    draw_image(
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, words[2],
        [&](int64_t, int64_t) { return placement; },
        {.filter = filter, .fast_decode = command == "fast"}, out.pixels);
  }
  save(out, words[10]);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
