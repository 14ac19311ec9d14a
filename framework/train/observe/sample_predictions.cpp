#include "framework/train/observe/sample_predictions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/printable.h"
#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/data/image/png_encode.h"
#include "framework/data/image/resize.h"

namespace brim::train {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kDrawing = 0x73616d706c6573;  // names the permutation: no epoch has this number

/// How a sample came out.
struct Prediction {
  int64_t sample = 0;  // its number in the evaluation data
  int64_t label = 0;
  int64_t prediction = 0;
  float confidence = 0;
  float loss = 0;  // infinite where it is not a number
};

/// The mistakes with the highest losses, highest first.
std::vector<Prediction> worst_of(std::vector<Prediction> all) {
  std::erase_if(all, [](const Prediction& each) { return each.prediction == each.label; });
  std::ranges::stable_sort(all, std::greater<>{}, &Prediction::loss);
  all.resize(std::min<size_t>(all.size(), SamplePredictions::kShown));
  return all;
}

/// The same ones after each evaluation.
std::vector<Prediction> random_of(const std::vector<Prediction>& all, uint64_t seed) {
  std::vector<Prediction> drawn;
  const auto count = static_cast<int64_t>(all.size());
  const KeyedPermutation place(seed, kDrawing, count);
  for (int64_t i = 0; i < std::min(count, SamplePredictions::kShown); ++i) {
    drawn.push_back(all[static_cast<size_t>(place(i))]);
  }
  return drawn;
}

/// The colour or grey channels of a sample as the model sees it, no larger than is shown.
data::Image shown_image(const data::ImageShape& shape, const std::vector<uint8_t>& pixels) {
  const int64_t longest = std::max(shape.height, shape.width);
  const int64_t side = std::min(longest, SamplePredictions::kLargestSide);
  const auto scaled = [&](int64_t length) { return std::max<int64_t>(1, length * side / longest); };
  data::Image small = {scaled(shape.height), scaled(shape.width), shape.channels, {}};
  small.pixels = pixels;
  if (side < longest) {
    small.pixels.resize(static_cast<size_t>(small.height * small.width * small.channels));
    const data::ImageView whole = {pixels.data(), shape.height, shape.width, shape.channels,
                                   shape.width * shape.channels};
    data::resize(whole,
                 {.source = {0, 0, shape.height, shape.width},
                  .height = small.height,
                  .width = small.width,
                  .window = {0, 0, small.height, small.width}},
                 data::Filter::kBilinear, small.pixels);
  }
  data::Image image = {small.height, small.width, shape.channels < 3 ? 1 : 3, {}};
  for (size_t at = 0; at < small.pixels.size(); at += static_cast<size_t>(shape.channels)) {
    image.pixels.insert(image.pixels.end(), &small.pixels[at], &small.pixels[at] + image.channels);
  }
  return image;
}

/// PNG files of these samples by their numbers, read in that order: samples may lie in shards.
/// Those that can't be read are left out, as is the rest after a stop was asked for.
std::map<int64_t, std::vector<uint8_t>> images_of(const data::ImageSamples& data,
                                                  std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  std::map<int64_t, std::vector<uint8_t>> images;
  std::vector<uint8_t> pixels(static_cast<size_t>(data.shape().bytes()));
  for (const int64_t sample : samples) {
    if (images.contains(sample)) continue;
    try {
      data.read(sample, /*random=*/nullptr, pixels);
    } catch (const Error& error) {
      if (error.status() == Exit::kStopped) break;
      continue;
    }
    images[sample] = data::encode_png(shown_image(data.shape(), pixels));
  }
  return images;
}

std::string file_name(const std::string& kind, int64_t index) {
  return fmt::format("samples/{}-{:02}.png", kind, index + 1);
}

/// An image counts once run.json names it, so it needs no rename; and twenty-four fsyncs would take
/// longer than a short run's evaluation.
void write_image(const fs::path& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  file.close();
  if (!file) throw Error(Exit::kResource, "{}: cannot write: {}", path.string(), errno_text(errno));
}

std::string name_of(const std::vector<std::string>& names, int64_t label) {
  const auto at = static_cast<size_t>(label);
  return at < names.size() ? names[at] : std::to_string(label);
}

/// Those of samples from `first` on that could be read, from rows as add() makes them.
void append(int64_t first, const at::Tensor& rows, std::vector<Prediction>& all) {
  const auto value = rows.accessor<float, 2>();
  for (int64_t i = 0; i < rows.size(1); ++i) {
    if (value[0][i] < 0) continue;
    const float loss = value[3][i];
    all.push_back({.sample = first + i,
                   .label = std::lround(value[0][i]),
                   .prediction = std::lround(value[1][i]),
                   .confidence = value[2][i],
                   .loss = std::isnan(loss) ? std::numeric_limits<float>::infinity() : loss});
  }
}

nlohmann::json to_json(const std::vector<Prediction>& predictions) {
  nlohmann::json list = nlohmann::json::array();
  for (const Prediction& each : predictions) {
    list.push_back({{"sample", each.sample},
                    {"label", each.label},
                    {"prediction", each.prediction},
                    {"confidence", each.confidence},
                    {"loss", each.loss}});
  }
  return list;
}

}  // namespace

void SamplePredictions::add(int64_t first, const Guesses& guesses) {
  const auto as_float = [](const at::Tensor& values) { return values.to(at::kFloat); };
  parts_.push_back({first, at::stack({as_float(guesses.labels), as_float(guesses.classes),
                                      as_float(guesses.probabilities), as_float(guesses.losses)})});
}

nlohmann::json SamplePredictions::chosen(uint64_t seed) const {
  std::vector<Prediction> all;
  for (const Part& part : parts_) append(part.first, part.rows.cpu(), all);
  return {{"step", step_},
          {"worst", to_json(worst_of(all))},
          {"random", to_json(random_of(all, seed))}};
}

nlohmann::json write_samples(const nlohmann::json& chosen, const data::ImageSamples& data,
                             const std::vector<std::string>& class_names, const fs::path& run) {
  std::vector<int64_t> wanted;
  for (const char* kind : {"worst", "random"}) {
    for (const nlohmann::json& each : chosen.at(kind)) wanted.push_back(each.at("sample"));
  }
  const auto images = images_of(data, std::move(wanted));
  make_folder(run / "samples");
  nlohmann::json record = chosen;
  for (const char* kind : {"worst", "random"}) {
    nlohmann::json& list = record[kind] = nlohmann::json::array();
    for (nlohmann::json each : chosen.at(kind)) {
      const int64_t sample = each["sample"];
      const auto image = images.find(sample);
      if (image == images.end()) continue;
      const std::string file = file_name(kind, std::ssize(list));
      write_image(run / file, image->second);
      each["file"] = file;
      each["sample"] = printable(data.name(sample));
      each["label"] = name_of(class_names, each["label"]);
      each["prediction"] = name_of(class_names, each["prediction"]);
      list.push_back(std::move(each));
    }
    // an earlier part of the run had more
    for (int64_t i = std::ssize(list); i < SamplePredictions::kShown; ++i) {
      std::error_code ignored;
      fs::remove(run / file_name(kind, i), ignored);
    }
  }
  return record;
}

}  // namespace brim::train
