// Changes of an image, for test_augment_peer.py to compare with torchvision:
//   augment_tool apply NAME IN H W C OUT MAGNITUDE...  IN holds uint8 [H, W, C], OUT one such image
//                                                    for each magnitude
//   augment_tool magnitudes SPACE NAME H W           prints the 31 of "rand" or "trivial"
// NAME is torchvision's name of a RandAugment operation, or Hue.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"
#include "framework/data/augment/colour.h"
#include "framework/data/augment/policy.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, kImageOps> kNames = {
    "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
    "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};

ImageOp op_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ImageOp>(i);
  }
  throw Error(Exit::kRecipe, "no operation is called '{}'", name);
}

int body(int count, char** words) {
  const std::string_view command = count > 1 ? words[1] : "";
  if (command == "magnitudes" && count == 6) {
    const auto space = std::string_view(words[2]) == "rand" ? AutoAugment::kRandAugment
                                                            : AutoAugment::kTrivialAugment;
    const ImageShape shape = {std::atoi(words[4]), std::atoi(words[5]), 3};
    for (int64_t bin = 0; bin < kMagnitudeBins; ++bin) {
      fmt::print("{}\n", magnitude_of(space, op_named(words[3]), bin, shape));
    }
    return 0;
  }
  if (command != "apply" || count < 9) throw Error(Exit::kRecipe, "usage: see the source");
  const ImageShape shape = {std::atoi(words[4]), std::atoi(words[5]), std::atoi(words[6])};
  const std::string bytes = read_file(words[3], Exit::kData, int64_t{1} << 30);
  if (static_cast<int64_t>(bytes.size()) != shape.bytes()) {
    throw Error(Exit::kData, "{}: not of that size", words[3]);
  }
  std::string changed;
  for (int i = 8; i < count; ++i) {
    std::vector<uint8_t> image(bytes.begin(), bytes.end());
    const double magnitude = std::strtod(words[i], nullptr);
    if (std::string_view(words[2]) == "Hue") {
      adjust_hue(image, shape.channels, magnitude);
    } else {
      apply(op_named(words[2]), magnitude, image, shape);
    }
    changed.append(image.begin(), image.end());
  }
  write_file(words[7], changed);
  return 0;
}

}  // namespace
}  // namespace brim::data

int main(int count, char** words) { return brim::run_program(brim::data::body, count, words); }
