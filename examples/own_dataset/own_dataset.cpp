// A dataset of your own: numbered samples, which may be read by several threads at once.

#include <brim/data/source.h>
#include <brim/recipe/library.h>

namespace {

using brim::data::ImageShape;

/// Grey images with a bright row; which one it is, is the class.
class Rows final : public brim::data::ImageSamples {
 public:
  Rows(int64_t side, int64_t size) : side_(side), size_(size) {}
  int64_t size() const override { return size_; }
  ImageShape shape() const override { return {.height = side_, .width = side_, .channels = 1}; }
  int64_t classes() const override { return side_; }
  std::vector<std::string> class_names() const override {
    return brim::data::numbered_classes(side_);
  }
  std::string name(int64_t index) const override { return "rows[" + std::to_string(index) + "]"; }
  int64_t label(int64_t index) const override { return index % side_; }
  /// `random` would drive augmentation; it is null in evaluation.
  int64_t read(int64_t index, brim::RandomStream* /*random*/,
               std::span<uint8_t> pixels) const override {
    for (uint8_t& pixel : pixels) pixel = 40;
    for (uint8_t& pixel : pixels.subspan(label(index) * side_, side_)) pixel = 200;
    return label(index);
  }

 private:
  int64_t side_;
  int64_t size_;
};

struct RowsConfig : brim::data::SourceConfig {
  int64_t side = 8;
  int64_t samples = 1000;
  void fields(brim::recipe::Fields& f) override {
    f.value("side", side, "pixels each way, and classes", brim::recipe::between(2, 1024));
    f.value("samples", samples, "training images", brim::recipe::at_least(1));
  }
  std::unique_ptr<brim::data::Dataset> open_train(
      const brim::data::AugmentConfig& /*augment*/) const override {
    return std::make_unique<Rows>(side, samples);
  }
  std::unique_ptr<brim::data::Dataset> open_eval() const override {
    return std::make_unique<Rows>(side, side);
  }
};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::data::SourceConfig>().add<RowsConfig>("rows", "a bright row each");
}
