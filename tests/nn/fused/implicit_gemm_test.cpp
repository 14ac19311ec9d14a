// Products of float32 over patches of images, and of many rows, by tiles: against float64. CPUs
// with AVX-512 have the kernel too, though they leave it to LibTorch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "framework/nn/flops.h"
#include "framework/nn/fused/block_linear.h"
#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/fused/implicit_gemm_cpu.h"
#include "framework/nn/fused/operator.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

bool has_kernel() { return loops::is_available(loops::Isa::kAvx2); }

at::Tensor channels_last(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

/// Channels_last [N, C, H, W] as [N · H · W, C].
at::Tensor rows_of_pixels(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).reshape({-1, images.size(1)});
}

at::Tensor rows_of_taps(const at::Tensor& weight) {
  return weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1});
}

// One segment and several, from any place in a row; columns of a whole tile and fewer; with a bias,
// added to what was there. What lies behind the columns stays.
TEST(ImplicitGemm, ATileIsAProduct) {
  at::manual_seed(1);
  for (const loops::Isa isa : available_isas()) {
    const loops::FloatProductLoop loop = loops::float_product_table(isa);
    EXPECT_EQ(loop != nullptr, isa == loops::Isa::kAvx2);
    if (loop == nullptr) continue;
    for (const int64_t segments : {0, 1, 3}) {
      for (const int64_t columns : {1, 8, 11, 16}) {
        for (const bool is_turned : {false, true}) {
          SCOPED_TRACE(testing::Message() << segments << " " << columns << " " << is_turned);
          constexpr int64_t kDepth = 9;
          const at::Tensor left = at::randn({3, loops::kTileRows, kDepth + 2});
          const at::Tensor lying = is_turned ? left.transpose(1, 2).contiguous() : left;
          const at::Tensor right = at::randn({3, kDepth, loops::kTileColumns});
          const at::Tensor bias = at::randn({columns});
          at::Tensor sums = at::full({loops::kTileRows, columns + 3}, 7.F);
          std::vector<const float*> left_rows, right_segments;
          std::vector<float*> sum_rows;
          for (int64_t s = 0; s < segments; ++s) {
            for (int64_t r = 0; r < loops::kTileRows; ++r) {
              const at::Tensor row = is_turned ? lying[s].select(1, r) : lying[s][r];
              left_rows.push_back(row.const_data_ptr<float>());
            }
            right_segments.push_back(right[s].const_data_ptr<float>());
          }
          for (int64_t r = 0; r < loops::kTileRows; ++r) {
            sum_rows.push_back(sums[r].mutable_data_ptr<float>());
          }
          const int64_t step = is_turned ? loops::kTileRows : 1;
          const auto used = [&](const at::Tensor& t) {
            return t.narrow(0, 0, segments).to(at::kDouble);
          };
          const at::Tensor once =
              at::bmm(used(left).narrow(2, 2, kDepth), used(right)).sum(0).narrow(1, 0, columns);
          for (const bool adds : {false, true}) {
            loop({.segments = segments,
                  .depth = kDepth,
                  .left = left_rows.data(),
                  .left_first = 2 * step,
                  .left_step = step,
                  .right = right_segments.data(),
                  .sums = sum_rows.data(),
                  .sums_first = 1,
                  .columns = columns,
                  .bias = adds ? bias.const_data_ptr<float>() : nullptr,
                  .adds = adds});
            const at::Tensor expected = adds ? 2 * once + bias : once;
            EXPECT_LE(relative_error(sums.narrow(1, 1, columns), expected), 1e-6);
          }
          EXPECT_TRUE(sums.select(1, 0).eq(7).all().item<bool>());
          EXPECT_TRUE(sums.narrow(1, columns + 1, 2).eq(7).all().item<bool>());
        }
      }
    }
  }
}

struct Case {
  std::vector<int64_t> x, weight;
  ConvolutionSteps steps;
};

/// Channels and places of whole tiles, fewer and more; more taps and channels than one product adds
/// up; one pixel, images of several that are higher than wide; kernels of one tap and of many,
/// larger than the image; steps over pixels, so that some have no tap; padding beyond the kernel,
/// gaps; a gradient of more than one part; one of more outputs than inputs, which threads share
/// out, and of more blocks of outputs and panels than are laid out at once.
const Case kCases[] = {
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{2, 3, 5, 4}, {7, 3, 1, 1}, {}},
    {{3, 16, 6, 6}, {16, 16, 3, 3}, {.padding = {1, 1}}},
    {{2, 20, 7, 5}, {33, 20, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
    {{2, 17, 9, 8}, {6, 17, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
    {{2, 5, 9, 7}, {12, 5, 1, 1}, {.stride = {3, 2}}},
    {{1, 4, 3, 3}, {5, 4, 3, 3}, {.padding = {4, 3}}},
    {{1, 8, 11, 12}, {18, 8, 3, 3}, {.stride = {2, 3}, .padding = {2, 1}, .dilation = {3, 2}}},
    {{1, 900, 3, 2}, {20, 900, 2, 1}, {}},
    {{40, 8, 13, 12}, {10, 8, 3, 3}, {.padding = {1, 1}}},
    {{2, 40, 21, 20}, {600, 40, 1, 1}, {}},
    {{1, 120, 21, 20}, {300, 120, 3, 3}, {.padding = {1, 1}}},
};

cpu::Patches patches_of_case(const Case& c) {
  return {.image = {c.x[0], c.x[1], c.x[2], c.x[3]},
          .kernel = {c.weight[2], c.weight[3]},
          .steps = c.steps};
}

TEST(ImplicitGemm, IsTheConvolutionInFloat64) {
  if (!has_kernel()) return;
  at::manual_seed(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(c.x) << at::IntArrayRef(c.weight));
    const at::Tensor x = channels_last(c.x), weight = channels_last(c.weight);
    const at::Tensor bias = at::randn({c.weight[0]});
    const auto& [stride, padding, dilation] = c.steps;
    const auto exact = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor y =
        at::conv2d(exact(x), exact(weight), exact(bias), stride, padding, dilation);
    const at::Tensor g = channels_last(y.sizes());
    const auto [of_x, of_weight, of_bias] = at::convolution_backward(
        exact(g), exact(x), exact(weight), std::nullopt, stride, padding, dilation,
        /*transposed=*/false, {0, 0}, /*groups=*/1, {true, true, false});
    const cpu::Patches patches = patches_of_case(c);
    const at::Tensor pixels = rows_of_pixels(x), taps = rows_of_taps(weight);
    const at::Tensor gradient = rows_of_pixels(g);
    EXPECT_LE(relative_error(cpu::implicit_gemm(pixels, taps, bias, patches), rows_of_pixels(y)),
              1e-6);
    EXPECT_LE(relative_error(cpu::implicit_gemm_of_weight(gradient, pixels, patches),
                             rows_of_taps(of_weight)),
              1e-6);
    at::Tensor found = at::full_like(pixels, 7);
    cpu::implicit_gemm_of_images(gradient, taps, patches, found, /*adds=*/false);
    EXPECT_LE(relative_error(found, rows_of_pixels(of_x)), 1e-6);
    cpu::implicit_gemm_of_images(gradient, taps, patches, found, /*adds=*/true);
    EXPECT_LE(relative_error(found, 2 * rows_of_pixels(of_x)), 1e-6);
  }
}

// Rows of a linear layer, whose weight may be a transpose.
TEST(ImplicitGemm, TakesRowsAsPixels) {
  if (!has_kernel()) return;
  at::manual_seed(3);
  for (const int64_t inputs : {1, 16, 70}) {
    for (const int64_t outputs : {1, 16, 37}) {
      const at::Tensor x = at::randn({301, inputs}), g = at::randn({301, outputs});
      for (const at::Tensor& weight :
           {at::randn({outputs, inputs}), at::randn({inputs, outputs}).t()}) {
        SCOPED_TRACE(testing::Message() << weight.sizes() << weight.strides());
        const cpu::Patches rows = {.image = {1, inputs, 1, 301}, .kernel = {1, 1}, .steps = {}};
        const at::Tensor exact = weight.to(at::kDouble);
        EXPECT_LE(relative_error(cpu::implicit_gemm(x, weight, std::nullopt, rows),
                                 x.to(at::kDouble).mm(exact.t())),
                  1e-6);
        const at::Tensor found = at::empty_like(x);
        cpu::implicit_gemm_of_images(g, weight, rows, found, /*adds=*/false);
        EXPECT_LE(relative_error(found, g.to(at::kDouble).mm(exact)), 1e-6);
      }
    }
  }
}

TEST(ImplicitGemm, IsTheSameOnAnyNumberOfThreads) {
  if (!has_kernel()) return;
  at::manual_seed(4);
  const int before = at::get_num_threads();
  for (const Case& c : {kCases[3], kCases[9], kCases[10], kCases[11]}) {
    const cpu::Patches patches = patches_of_case(c);
    const at::Tensor x = rows_of_pixels(channels_last(c.x));
    const at::Tensor weight = rows_of_taps(channels_last(c.weight));
    const at::Tensor g = at::randn({patches.rows(), c.weight[0]});
    const auto all = [&](int threads) {
      at::set_num_threads(threads);
      const at::Tensor of_x = at::empty_like(x);
      cpu::implicit_gemm_of_images(g, weight, patches, of_x, /*adds=*/false);
      return std::vector<at::Tensor>{cpu::implicit_gemm(x, weight, std::nullopt, patches), of_x,
                                     cpu::implicit_gemm_of_weight(g, x, patches)};
    };
    const std::vector<at::Tensor> one = all(1), three = all(3);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(three[i].equal(one[i])) << i;
  }
  at::set_num_threads(before);
}

// --- the operators -------------------------------------------------------------------------------

const c10::List<int64_t> kSteps({2, 1, 1, 0, 1, 1});  // strides, padding, dilation

using Forward = at::Tensor(const at::Tensor&, const at::Tensor&, at::IntArrayRef);
using OfWeight = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            at::IntArrayRef);

TEST(ImplicitGemm, ShapesAreKnownWithoutComputing) {
  const auto meta = [](at::IntArrayRef sizes) { return channels_last(sizes).to(at::kMeta); };
  const at::Tensor x = meta({2, 5, 9, 7}), weight = meta({4, 5, 3, 2});
  const at::Tensor y = find_operator<Forward>("brim::implicit_gemm").call(x, weight, kSteps.vec());
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 4, 5, 6}));
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor of_weight =
      find_operator<OfWeight>("brim::implicit_gemm_of_weight").call(y, x, weight, kSteps.vec());
  EXPECT_EQ(of_weight.sizes(), weight.sizes());
  EXPECT_TRUE(of_weight.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ImplicitGemm, ItsProductsAreCounted) {
  const at::Tensor x = at::randn({2, 5, 9, 7}), weight = at::randn({4, 5, 3, 2});
  const at::Tensor g = at::randn({2, 4, 5, 6});
  const auto flops = [](const char* name, const std::vector<c10::IValue>& inputs) {
    return product_flops(name)(c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  };
  constexpr int64_t kEach = 2 * 2 * (5 * 6) * 4 * (5 * 3 * 2);
  EXPECT_EQ(flops("brim::implicit_gemm", {x, weight, kSteps}), kEach);
  EXPECT_EQ(flops("brim::implicit_gemm_of_input", {g, weight, kSteps, x, false}), kEach);
  EXPECT_EQ(flops("brim::implicit_gemm_of_weight", {g, x, weight, kSteps}), kEach);
}

TEST(ImplicitGemm, RefusesWhatItDoesNotTake) {
  if (!cpu::multiplies_float_tiles()) return;
  const auto forward = [](const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef steps) {
    return find_operator<Forward>("brim::implicit_gemm").call(x, weight, steps);
  };
  const at::Tensor x = channels_last({2, 4, 5, 5}), weight = channels_last({6, 4, 3, 3});
  const std::vector<int64_t> ones = {1, 1, 0, 0, 1, 1};
  EXPECT_EQ(forward(x, weight, ones).sizes(), at::IntArrayRef({2, 6, 3, 3}));
  EXPECT_THROW(forward(x.to(at::kDouble), weight, ones), c10::Error);
  EXPECT_THROW(forward(at::randn({2, 4, 5, 5}), weight, ones), c10::Error);
  EXPECT_THROW(forward(x, channels_last({6, 3, 3, 3}), ones), c10::Error);
  EXPECT_THROW(forward(x, channels_last({6, 4, 6, 3}), ones), c10::Error);
  EXPECT_THROW(forward(x, weight, {0, 1, 0, 0, 1, 1}), c10::Error);
  EXPECT_THROW(forward(x, weight, {1, 1}), c10::Error);
  EXPECT_THROW(find_operator<OfWeight>("brim::implicit_gemm_of_weight")
                   .call(channels_last({2, 6, 3, 2}), x, weight, ones),
               c10::Error);
}

// Where a CPU has no other kernel for float32.
TEST(ImplicitGemm, LayersTakeIt) {
  const at::Tensor x = at::randn({257, 6}), weight = at::randn({5, 6}), none;
  EXPECT_EQ(has_block_linear(x, weight, none), cpu::multiplies_float_tiles());
  EXPECT_EQ(has_block_linear(x, at::randn({6, 5}).t(), none), cpu::multiplies_float_tiles());
  EXPECT_FALSE(has_block_linear(x, at::randn({5, 12}).narrow(1, 0, 6), none));
  if (!cpu::multiplies_float_tiles()) return;
  for (const bool is_transposed : {false, true}) {
    const at::Tensor whole = is_transposed ? at::randn({6, 5}).t() : weight;
    const auto trained = [&](bool is_fused) {
      const auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
      const at::Tensor in = leaf(x), by = leaf(whole), bias = leaf(at::ones({5}));
      const at::Tensor y = is_fused ? block_linear(in, by, bias) : at::linear(in, by, bias);
      y.square().sum().backward();
      EXPECT_EQ(by.grad().strides(), by.strides());
      return std::vector<at::Tensor>{y, in.grad(), by.grad(), bias.grad()};
    };
    const std::vector<at::Tensor> found = trained(true), expected = trained(false);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_LE(relative_error(found[i], expected[i]), 1e-6) << i;
    }
  }
}

}  // namespace
}  // namespace brim::nn
