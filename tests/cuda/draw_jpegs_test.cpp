// nvJPEG and the resizing kernels on a GPU against the loader's decoder: it interpolates colour
// otherwise, so grey images agree to a few levels and smooth colour to some more.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "framework/data/augment/augment.h"
#include "framework/data/image/image.h"
#include "framework/device/cuda_backend.h"
#include "tests/cuda/gpu.h"
#include "tests/data/pictures.h"

namespace brim::cuda {
namespace {

constexpr int64_t kSide = 64;

struct Difference {
  double mean = 0;
  int greatest = 0;
};

class GpuJpegs : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(backend().nvjpeg_problem(0), "");
  }

  static data::CropPlan plan(int64_t height, int64_t width) {
    return data::place_whole(height, width, {kSide, kSide, 3}, kSide + 8);
  }

  /// Draws them all in one call.
  std::vector<device::DrawnJpeg> draw(const std::vector<data::Bytes>& files,
                                      std::vector<std::vector<uint8_t>>& pixels) const {
    std::vector<device::DrawnJpeg> jpegs;
    pixels.assign(files.size(), std::vector<uint8_t>(kSide * kSide * 3));
    for (size_t i = 0; i < files.size(); ++i) {
      const auto size = data::plain_jpeg_size(files[i]).value();
      const data::CropPlan crop = plan(size.height, size.width);
      jpegs.push_back({.file = files[i],
                       .height = static_cast<int32_t>(size.height),
                       .width = static_cast<int32_t>(size.width),
                       .down = data::weights_of(crop.rows(), data::Filter::kBilinear),
                       .across = data::weights_of(crop.columns(), data::Filter::kBilinear),
                       .pixels = pixels[i]});
    }
    backend().draw_jpegs(jpegs, 0);
    return jpegs;
  }

  static Difference from_cpu(const data::Bytes& file, const std::vector<uint8_t>& found) {
    std::vector<uint8_t> expected(found.size());
    data::draw_image(file, "x", plan, {}, expected);
    Difference result;
    for (size_t i = 0; i < found.size(); ++i) {
      const int apart = std::abs(int{found[i]} - int{expected[i]});
      result.mean += apart / static_cast<double>(found.size());
      result.greatest = std::max(result.greatest, apart);
    }
    return result;
  }
};

TEST_F(GpuJpegs, AreThoseOfTheCpuUpToRounding) {
  std::vector<data::Bytes> files;
  for (const int side : {80, 97, 240}) {
    files.push_back(data::jpeg(side, side + 31, {.components = 1}));
    files.push_back(data::jpeg(side + 31, side, {.luma_samples = 1}));
    files.push_back(data::jpeg(side + 5, side, {.is_smooth = true}));
  }
  std::vector<std::vector<uint8_t>> pixels;
  const auto jpegs = draw(files, pixels);
  for (size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(jpegs[i].is_drawn);
    const Difference apart = from_cpu(files[i], pixels[i]);
    EXPECT_LE(apart.mean, i % 3 == 2 ? 2.0 : 0.5);
    EXPECT_LE(apart.greatest, i % 3 == 2 ? 16 : 4);
  }
}

TEST_F(GpuJpegs, DoNotDependOnWhichAreTogether) {
  std::vector<data::Bytes> files;
  for (int i = 0; i < 70; ++i) files.push_back(data::jpeg(70 + i, 110 - i, {.is_smooth = true}));
  std::vector<std::vector<uint8_t>> together, alone;
  draw(files, together);
  for (size_t i = 0; i < files.size(); ++i) {
    draw({files[i]}, alone);
    EXPECT_EQ(alone.front(), together[i]) << i;
  }
}

TEST_F(GpuJpegs, LeaveAloneWhatIsDamagedOnly) {
  std::vector<data::Bytes> files(5, data::jpeg(90, 120, {.is_smooth = true}));
  std::vector<std::vector<uint8_t>> pixels;
  auto jpegs = draw(files, pixels);
  data::Bytes cut(files[2].begin(), files[2].begin() + 30);
  jpegs[2].file = cut;
  backend().draw_jpegs(jpegs, 0);
  for (size_t i = 0; i < jpegs.size(); ++i) EXPECT_EQ(jpegs[i].is_drawn, i != 2) << i;
  EXPECT_EQ(pixels[4], pixels[0]);
}

}  // namespace
}  // namespace brim::cuda
