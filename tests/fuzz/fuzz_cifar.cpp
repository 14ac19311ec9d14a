// CIFAR files: any bytes are images with labels that have names or are refused by an Error. The
// first byte chooses the version.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/data/sources/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace brim::data;
  if (size == 0) return 0;
  const int64_t classes = data[0] % 3 == 0 ? 10 : data[0] % 3 == 1 ? 20 : 100;
  const CifarFormat format = {.has_two_labels = classes != 10,
                              .labels = classes == 20 ? CifarLabels::kCoarse : CifarLabels::kFine,
                              .class_names = numbered_classes(classes)};
  try {
    std::vector<std::unique_ptr<ByteSource>> files;
    files.push_back(std::make_unique<MemoryBytes>(std::span(data, size).subspan(1), "input"));
    const auto dataset = open_cifar(std::move(files), format, {});
    std::vector<uint8_t> pixels(static_cast<size_t>(dataset->sample_bytes()));
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const int64_t label = dataset->read(i, nullptr, pixels);
      if (label < 0 || label >= classes) std::abort();
    }
  } catch (const brim::Error&) {
  }
  return 0;
}
