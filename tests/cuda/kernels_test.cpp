// The CUDA kernels, run on the CPU by emulation.h, against LibTorch's operators in float64.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "framework/cuda/batch_norm_kernel.h"
#include "framework/cuda/cross_entropy_kernel.h"
#include "framework/cuda/gelu_kernel.h"
#include "framework/cuda/layer_norm_kernel.h"
#include "framework/cuda/max_pool_kernel.h"
#include "framework/cuda/resize_images_kernel.h"
#include "framework/cuda/tensor_values.h"
#include "framework/cuda/transform_images_kernel.h"
#include "framework/data/image/resize.h"
#include "framework/data/transfer/transform_images.h"
#include "tests/cuda/image_changes.h"

namespace brim::cuda {

namespace emulation {
void reseed(uint64_t seed);
}

namespace {

constexpr std::array kTypes = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

at::ScalarType wide(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

/// A copy that lies `offset` values into its memory, and ends with it.
at::Tensor placed(const at::Tensor& values, int64_t offset) {
  const at::Tensor memory = at::empty({values.numel() + offset}, values.options());
  return memory.slice(0, offset).view(values.sizes()).copy_(values);
}

at::Tensor randn(at::IntArrayRef sizes, at::ScalarType type, int64_t offset) {
  return placed(at::randn(sizes, at::kDouble).to(type), offset);
}

/// Not-a-number, until it is written.
at::Tensor unwritten(at::IntArrayRef sizes, at::ScalarType type, int64_t offset = 0) {
  return placed(at::full(sizes, std::numeric_limits<double>::quiet_NaN(), type), offset);
}

at::Tensor leaf(const at::Tensor& t) { return t.to(at::kDouble).detach().clone().requires_grad_(); }

double* doubles(const at::Tensor& t) { return t.data_ptr<double>(); }

void expect_close(const char* what, const at::Tensor& found, const at::Tensor& expected) {
  const double tolerance = found.scalar_type() == at::kDouble     ? 1e-10
                           : found.scalar_type() == at::kFloat    ? 1e-5
                           : found.scalar_type() == at::kBFloat16 ? 8e-3
                                                                  : 1e-3;
  const double largest = expected.abs().max().item<double>();
  const double apart =
      (found.to(at::kDouble) - expected.reshape(found.sizes())).abs().max().item<double>();
  EXPECT_LE(apart, tolerance * (1 + largest)) << what;  // also where it is not-a-number
}

/// How many values into their memory tensors begin: those of rows, those of one value a channel.
struct Offsets {
  int64_t rows, channels;
};

struct Rows {
  int64_t rows;
  int32_t channels;
};

/// Runs check(offsets) on aligned and on unaligned tensors, each in another order of threads.
template <class F>
void each_order(const F& check) {
  uint64_t seed = 0;
  for (const Offsets offsets : {Offsets{0, 0}, {1, 0}, {0, 1}}) {
    SCOPED_TRACE(testing::Message() << "offsets " << offsets.rows << ", " << offsets.channels);
    at::manual_seed(3);
    emulation::reseed(++seed);
    check(offsets);
  }
}

/// `has_more`: the gradient comes in two parts.
void check_batch_norm(Rows size, at::ScalarType type, bool has_residual, bool relu, bool has_more,
                      Offsets offsets) {
  const auto [offset, of_channels] = offsets;
  const auto [rows, channels] = size;
  const NormShape shape = {rows, channels, format_of("batch_norm", type)};
  const at::ScalarType w = wide(type);
  const at::Tensor x = randn({rows, channels}, type, offset);
  const at::Tensor residual = randn({rows, channels}, type, offset);
  const at::Tensor gradient = randn({rows, channels}, type, offset);
  const at::Tensor more = randn({rows, channels}, type, offset);
  const at::Tensor weight = randn({channels}, w, of_channels);
  const at::Tensor bias = randn({channels}, w, of_channels);
  const at::Tensor running_mean = at::ones({channels}, w), running_var = at::ones({channels}, w);
  const at::Tensor mean = unwritten({channels}, w), inverse_std = unwritten({channels}, w);
  const at::Tensor sums = unwritten({norm_sums(shape)}, at::kDouble);
  const double eps = 1e-5, momentum = 0.25;
  launch_norm_statistics(shape, x.data_ptr(), doubles(sums),
                         {mean.data_ptr(), inverse_std.data_ptr(), running_mean.data_ptr(),
                          running_var.data_ptr(), momentum, eps},
                         nullptr);
  const NormFactors factors = {mean.data_ptr(), inverse_std.data_ptr(), weight.data_ptr(),
                               bias.data_ptr()};
  const at::Tensor y = unwritten({rows, channels}, type, offset);
  launch_normalise(shape, x.data_ptr(), has_residual ? residual.data_ptr() : nullptr, factors, relu,
                   y.data_ptr(), nullptr);
  const at::Tensor slopes = unwritten({2, channels}, w), weight_gradient = unwritten({channels}, w);
  const at::Tensor bias_gradient = unwritten({channels}, w);
  const at::Tensor residual_gradient = unwritten({rows, channels}, type, offset);
  const at::Tensor x_gradient = unwritten({rows, channels}, type, offset);
  sums.fill_(std::numeric_limits<double>::quiet_NaN());
  launch_norm_backward(shape,
                       {.gradient = gradient.data_ptr(),
                        .more = has_more ? more.data_ptr() : nullptr,
                        .x = x.data_ptr(),
                        .y = has_residual && relu ? y.data_ptr() : nullptr,
                        .relu = relu,
                        .factors = factors,
                        .sums = doubles(sums),
                        .slopes = slopes.data_ptr(),
                        .residual = has_residual ? residual_gradient.data_ptr() : nullptr,
                        .weight = weight_gradient.data_ptr(),
                        .bias = bias_gradient.data_ptr(),
                        .x_gradient = x_gradient.data_ptr()},
                       nullptr);

  const at::Tensor of_x = leaf(x), of_residual = leaf(residual);
  const at::Tensor of_weight = leaf(weight), of_bias = leaf(bias);
  const at::Tensor true_mean = of_x.mean(0), true_var = of_x.var(0, /*unbiased=*/false);
  at::Tensor true_y = (of_x - true_mean) / (true_var + eps).sqrt() * of_weight + of_bias;
  if (has_residual) true_y = true_y + of_residual;
  if (relu) true_y = true_y.relu();
  true_y.backward((has_more ? gradient + more : gradient).to(at::kDouble));
  expect_close("mean", mean, true_mean);
  expect_close("1 / std", inverse_std, (true_var + eps).rsqrt());
  expect_close("running mean", running_mean, momentum * true_mean + (1 - momentum));
  expect_close("running variance", running_var, momentum * of_x.var(0) + (1 - momentum));
  expect_close("y", y, true_y);
  expect_close("gradient of x", x_gradient, of_x.grad());
  expect_close("gradient of the weight", weight_gradient, of_weight.grad());
  expect_close("gradient of the bias", bias_gradient, of_bias.grad());
  if (has_residual) expect_close("gradient of the residual", residual_gradient, of_residual.grad());
}

/// The passes in parts give what they give as a whole.
void check_batch_norm_in_parts(Rows size, at::ScalarType type, bool has_residual, bool relu,
                               Offsets offsets) {
  const auto [offset, of_channels] = offsets;
  const auto [rows, channels] = size;
  const NormShape shape = {rows, channels, format_of("batch_norm", type)};
  const at::ScalarType w = wide(type);
  const at::Tensor x = randn({rows, channels}, type, offset);
  const at::Tensor y = randn({rows, channels}, type, offset);  // of which the sign counts
  const at::Tensor gradient = randn({rows, channels}, type, offset);
  const at::Tensor weight = randn({channels}, w, of_channels);
  const at::Tensor bias = randn({channels}, w, of_channels);
  const at::Tensor sums = unwritten({norm_sums(shape)}, at::kDouble);
  const at::Tensor shifts = unwritten({channels}, w),
                   moments = unwritten({2, channels}, at::kDouble);
  launch_norm_moments(shape, x.data_ptr(), doubles(sums), shifts.data_ptr(), doubles(moments),
                      nullptr);
  const at::Tensor exact = x.to(at::kDouble);
  expect_close("mean", moments[0].to(w), exact.mean(0));
  expect_close("variance", moments[1].to(w), exact.var(0, /*unbiased=*/false));

  const at::Tensor mean = moments[0].to(w), inverse_std = (moments[1] + 1e-5).rsqrt().to(w);
  const at::Tensor masked = unwritten({rows, channels}, type, offset);
  const at::Tensor totals = unwritten({2, channels}, at::kDouble);
  NormBackward tensors = {
      .gradient = gradient.data_ptr(),
      .x = x.data_ptr(),
      .y = has_residual && relu ? y.data_ptr() : nullptr,
      .relu = relu,
      .factors = {mean.data_ptr(), inverse_std.data_ptr(), weight.data_ptr(), bias.data_ptr()},
      .sums = doubles(sums),
      .residual = masked.data_ptr()};
  sums.fill_(std::numeric_limits<double>::quiet_NaN());
  launch_norm_gradient_sums(shape, tensors, doubles(totals), nullptr);
  const at::Tensor centred = exact - mean.to(at::kDouble);
  const at::Tensor scale = (weight * inverse_std).to(at::kDouble);
  at::Tensor through = gradient.to(at::kDouble);
  if (relu && has_residual) {
    through = through * (y > 0);
  } else if (relu) {
    through = through * (centred * scale + bias.to(at::kDouble) > 0);
  }
  expect_close("what the ReLU lets through", masked, through);
  expect_close("sum", totals[0].to(w), through.sum(0));
  expect_close("sum of products", totals[1].to(w), (through * centred).sum(0));

  const at::Tensor slopes = randn({2, channels}, w, of_channels);
  const at::Tensor x_gradient = unwritten({rows, channels}, type, offset);
  tensors.gradient = masked.data_ptr();
  tensors.y = tensors.residual = nullptr;
  tensors.relu = false;
  tensors.slopes = slopes.data_ptr();
  tensors.x_gradient = x_gradient.data_ptr();
  launch_norm_input_gradient(shape, tensors, nullptr);
  expect_close("gradient of x", x_gradient,
               scale * through + slopes[0].to(at::kDouble) * centred + slopes[1].to(at::kDouble));
}

TEST(Kernels, BatchNormOverMoreBlocksThanAWarpHasLanes) {
  each_order([&](Offsets offsets) {
    check_batch_norm({4300, 32}, at::kFloat, /*has_residual=*/false, /*relu=*/false,
                     /*has_more=*/false, offsets);
  });
}

TEST(Kernels, BatchNorm) {
  for (const Rows size : {Rows{2, 1}, {3, 5}, {7, 8}, {600, 16}, {65, 130}}) {
    for (const at::ScalarType type : kTypes) {
      for (const bool has_residual : {false, true}) {
        for (const bool relu : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << size.rows << " rows of " << size.channels << ", " << type << ", residual "
                       << has_residual << ", ReLU " << relu);
          each_order([&](Offsets offsets) {
            check_batch_norm(size, type, has_residual, relu, /*has_more=*/false, offsets);
            check_batch_norm_in_parts(size, type, has_residual, relu, offsets);
            if (has_residual && relu) {
              check_batch_norm(size, type, has_residual, relu, /*has_more=*/true, offsets);
            }
          });
        }
      }
    }
  }
}

void check_layer_norm(Rows size, at::ScalarType type, at::ScalarType norm_type, bool has_branch,
                      Offsets offsets) {
  const auto [offset, of_channels] = offsets;
  const auto [rows, channels] = size;
  const LayerNormShape shape = {rows, channels, format_of("layer_norm", type),
                                format_of("layer_norm", norm_type)};
  const at::ScalarType w = wide(type);
  const double eps = 1e-5;
  const at::Tensor x = randn({rows, channels}, type, offset);
  const at::Tensor branch = randn({rows, channels}, norm_type, offset);
  const at::Tensor weight = randn({channels}, w, of_channels);
  const at::Tensor bias = randn({channels}, w, of_channels);
  at::Tensor sum = unwritten({rows, channels}, type, offset);
  const at::Tensor mean = unwritten({rows}, w), inverse_std = unwritten({rows}, w);
  const at::Tensor norm = unwritten({rows, channels}, norm_type, offset);
  launch_layer_norm(shape,
                    {.x = x.data_ptr(),
                     .branch = has_branch ? branch.data_ptr() : nullptr,
                     .weight = weight.data_ptr(),
                     .bias = bias.data_ptr(),
                     .eps = eps,
                     .sum = has_branch ? sum.data_ptr() : nullptr,
                     .mean = mean.data_ptr(),
                     .inverse_std = inverse_std.data_ptr(),
                     .norm = norm.data_ptr()},
                    nullptr);
  if (has_branch) {
    expect_close("sum", sum, x.to(at::kDouble) + branch.to(at::kDouble));
  } else {
    sum = x;
  }
  const at::Tensor gradient = randn({rows, channels}, norm_type, offset);
  const at::Tensor sum_gradient = randn({rows, channels}, type, offset);
  const at::Tensor x_gradient = unwritten({rows, channels}, type, offset);
  const at::Tensor branch_gradient = unwritten({rows, channels}, norm_type, offset);
  const at::Tensor weight_gradient = unwritten({channels}, w),
                   bias_gradient = unwritten({channels}, w);
  const at::Tensor sums = unwritten({layer_norm_sums(shape)}, at::kDouble);
  launch_layer_norm_backward(
      shape,
      {.gradient = gradient.data_ptr(),
       .sum_gradient = has_branch ? sum_gradient.data_ptr() : nullptr,
       .sum = sum.data_ptr(),
       .mean = mean.data_ptr(),
       .inverse_std = inverse_std.data_ptr(),
       .weight = weight.data_ptr(),
       .sums = doubles(sums),
       .x_gradient = x_gradient.data_ptr(),
       .branch_gradient = type == norm_type ? nullptr : branch_gradient.data_ptr(),
       .weight_gradient = weight_gradient.data_ptr(),
       .bias_gradient = bias_gradient.data_ptr()},
      nullptr);

  const at::Tensor of_sum = leaf(sum), of_weight = leaf(weight), of_bias = leaf(bias);
  const at::Tensor true_norm = at::layer_norm(of_sum, {channels}, of_weight, of_bias, eps);
  true_norm.backward(gradient.to(at::kDouble));
  at::Tensor true_gradient = of_sum.grad();
  if (has_branch) true_gradient = true_gradient + sum_gradient.to(at::kDouble);
  expect_close("mean", mean, of_sum.mean(1));
  expect_close("norm", norm, true_norm);
  expect_close("gradient of x", x_gradient, true_gradient);
  if (type != norm_type) expect_close("gradient of the branch", branch_gradient, true_gradient);
  expect_close("gradient of the weight", weight_gradient, of_weight.grad());
  expect_close("gradient of the bias", bias_gradient, of_bias.grad());
}

using Types = std::pair<at::ScalarType, at::ScalarType>;

void check_layer_norms(const std::vector<Rows>& sizes, const std::vector<Types>& types) {
  for (const Rows size : sizes) {
    for (const auto& [type, norm_type] : types) {
      for (const bool has_branch : {false, true}) {
        SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.channels << ", " << type
                                        << " to " << norm_type << ", branch " << has_branch);
        each_order([&, t = type, n = norm_type](Offsets offsets) {
          check_layer_norm(size, t, n, has_branch, offsets);
        });
      }
    }
  }
}

TEST(Kernels, LayerNormByWarps) {
  std::vector<Types> types = {{at::kFloat, at::kBFloat16}, {at::kFloat, at::kHalf}};
  for (const at::ScalarType type : kTypes) types.emplace_back(type, type);
  check_layer_norms({{1, 8}, {3, 37}, {9, 64}, {70, 24}}, types);
}

TEST(Kernels, LayerNormByBlocks) {
  check_layer_norms({{3, 1032}}, {{at::kFloat, at::kBFloat16}, {at::kDouble, at::kDouble}});
  check_layer_norms({{2, 1025}}, {{at::kHalf, at::kHalf}});
}

struct CrossEntropyCase {
  int64_t rows, classes, gap = 0;  // values between rows
};

void check_cross_entropy(CrossEntropyCase size, at::ScalarType type, bool has_partners,
                         double smoothing, Offsets offsets) {
  const int64_t offset = offsets.rows;
  const auto [rows, classes, gap] = size;
  const at::ScalarType w = wide(type);
  const at::Tensor logits = randn({rows, classes + gap}, type, offset);
  const at::Tensor used = logits.slice(1, 0, classes);
  const at::Tensor labels = at::randint(classes, {rows}, at::kLong);
  const at::Tensor partners = at::randint(classes, {rows}, at::kLong);
  const at::Tensor shares = has_partners ? at::rand({rows}) : at::ones({rows});
  if (rows > 2) {
    labels[1] = -100;
    if (has_partners) partners[2] = -100;
  }
  const CrossEntropyInputs inputs = {
      .format = format_of("cross_entropy", type),
      .logits = logits.data_ptr(),
      .rows = rows,
      .classes = classes,
      .stride = classes + gap,
      .labels = labels.data_ptr<int64_t>(),
      .partner_labels = has_partners ? partners.data_ptr<int64_t>() : nullptr,
      .label_shares = has_partners ? shares.data_ptr<float>() : nullptr,
      .ignore_index = -100,
      .smoothing = smoothing};
  const at::Tensor losses = unwritten({rows}, at::kDouble), kept = unwritten({2, rows}, w);
  const at::Tensor loss = unwritten({1}, w), share = unwritten({1}, w);
  launch_cross_entropy(inputs, doubles(losses), kept.data_ptr(), loss.data_ptr(), share.data_ptr(),
                       nullptr);
  const at::Tensor gradient = at::full({1}, 3, w);
  const at::Tensor padded = unwritten({rows, classes + gap}, type, offset);
  const at::Tensor logits_gradient = padded.slice(1, 0, classes);
  launch_cross_entropy_backward(inputs, kept.data_ptr(), share.data_ptr(), gradient.data_ptr(),
                                padded.data_ptr(), padded.stride(0), nullptr);

  EXPECT_TRUE(padded.slice(1, classes).isnan().all().item<bool>()) << "written between rows";

  const at::Tensor of_logits = leaf(used);
  const auto row_losses = [&](const at::Tensor& of) {
    return at::cross_entropy_loss(of_logits, of, {}, at::Reduction::None, -100, smoothing);
  };
  const at::Tensor part = shares.to(at::kDouble);
  at::Tensor all = part * row_losses(labels);
  if (has_partners) all = all + (1 - part) * row_losses(partners);
  const double count =
      has_partners ? static_cast<double>(rows) : labels.ne(-100).sum().item().toDouble();
  const at::Tensor true_loss = all.sum() / count;
  true_loss.backward(at::full({}, 3, at::kDouble));
  expect_close("loss", loss, true_loss.reshape({1}));
  expect_close("share", share, at::full({1}, 1 / count, at::kDouble));
  expect_close("gradient", logits_gradient * static_cast<double>(rows),
               of_logits.grad() * static_cast<double>(rows));
}

void check_cross_entropies(const std::vector<CrossEntropyCase>& sizes,
                           const std::vector<at::ScalarType>& types) {
  for (const CrossEntropyCase size : sizes) {
    for (const at::ScalarType type : types) {
      for (const bool has_partners : {false, true}) {
        for (const double smoothing : {0.0, 0.1}) {
          SCOPED_TRACE(testing::Message()
                       << size.rows << " rows of " << size.classes << ", " << type << ", partners "
                       << has_partners << ", " << smoothing);
          each_order([&](Offsets offsets) {
            check_cross_entropy(size, type, has_partners, smoothing, offsets);
          });
        }
      }
    }
  }
}

TEST(Kernels, CrossEntropy) {
  check_cross_entropies(
      {{1, 1}, {5, 2}, {20, 24}, {3, 1001}, {2, 1032}, {3, 2050, 6}, {2, 2048, 8}},
      {kTypes.begin(), kTypes.end()});
  check_cross_entropies({{300, 10}}, {at::kFloat});
}

struct PoolCase {
  int32_t images, channels, height, width, kernel, stride, padding;
};

/// Against LibTorch's on float64, of values that are all apart or, `has_ties`, often the same.
void check_max_pool(PoolCase size, at::ScalarType type, bool has_ties, int64_t offset) {
  const auto [images, channels, height, width, kernel, stride, padding] = size;
  const auto pooled = [&size](int32_t side) {
    return (side + 2 * size.padding - size.kernel) / size.stride + 1;
  };
  const PoolShape shape = {.images = images,
                           .height = height,
                           .width = width,
                           .channels = channels,
                           .out_height = pooled(height),
                           .out_width = pooled(width),
                           .kernel = kernel,
                           .stride = stride,
                           .padding = padding,
                           .format = format_of("max_pool", type)};
  at::Tensor values = at::randn({images, height, width, channels}, at::kDouble);
  if (has_ties) values = values.round();
  values.view({-1})[0] = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor x = placed(values.to(type), offset);
  const at::Tensor y =
      unwritten({images, shape.out_height, shape.out_width, channels}, type, offset);
  const at::Tensor places = at::full(y.sizes(), 255, at::kByte);
  launch_max_pool(shape, x.data_ptr(), y.data_ptr(), places.data_ptr<uint8_t>(), nullptr);
  const at::Tensor gradient = randn(y.sizes(), type, offset);
  const at::Tensor x_gradient = unwritten(x.sizes(), type, offset);
  launch_max_pool_backward(shape, gradient.data_ptr(), places.data_ptr<uint8_t>(),
                           x_gradient.data_ptr(), nullptr);

  const at::Tensor of_x = leaf(x);
  const at::Tensor expected =
      at::max_pool2d(of_x.permute({0, 3, 1, 2}), kernel, stride, padding).permute({0, 2, 3, 1});
  expected.backward(gradient.to(at::kDouble));
  EXPECT_TRUE(y.to(at::kDouble).allclose(expected, 0, 0, /*equal_nan=*/true));
  expect_close("gradient", x_gradient, of_x.grad());
}

TEST(Kernels, MaxPool) {
  for (const PoolCase size :
       {PoolCase{1, 1, 1, 1, 1, 1, 0}, PoolCase{2, 8, 7, 9, 3, 2, 1}, PoolCase{3, 5, 6, 4, 3, 2, 0},
        PoolCase{1, 16, 5, 5, 2, 2, 0}, PoolCase{2, 3, 8, 8, 5, 1, 2},
        PoolCase{1, 24, 20, 300, 3, 2, 1}, PoolCase{1, 8, 16, 16, 16, 16, 8}}) {
    for (const at::ScalarType type : kTypes) {
      for (const bool has_ties : {false, true}) {
        SCOPED_TRACE(testing::Message() << size.height << "x" << size.width << " of "
                                        << size.channels << " by " << size.kernel << " " << type);
        each_order([&](Offsets offsets) { check_max_pool(size, type, has_ties, offsets.rows); });
      }
    }
  }
}

TEST(Kernels, CrossEntropyOfInfiniteAndUnknownLogits) {
  const double infinite = std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::zeros({2, 40}, at::kFloat);
  logits[0].slice(0, 3).fill_(-infinite);
  logits[1][7] = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor labels = at::zeros({2}, at::kLong);
  const at::Tensor losses = unwritten({2}, at::kDouble), kept = unwritten({2, 2}, at::kFloat);
  const at::Tensor loss = unwritten({1}, at::kFloat), share = unwritten({1}, at::kFloat);
  launch_cross_entropy({.logits = logits.data_ptr(),
                        .rows = 2,
                        .classes = 40,
                        .stride = 40,
                        .labels = labels.data_ptr<int64_t>(),
                        .ignore_index = -100},
                       doubles(losses), kept.data_ptr(), loss.data_ptr(), share.data_ptr(),
                       nullptr);
  EXPECT_NEAR(losses[0].item<double>(), std::log(3.0), 1e-6);
  EXPECT_TRUE(std::isnan(losses[1].item<double>()));
}

void check_gelu(Rows size, at::ScalarType type, bool tanh, Offsets offsets) {
  const auto [offset, of_channels] = offsets;
  const auto [rows, channels] = size;
  const GeluShape shape = {rows, channels, format_of("gelu", type), tanh};
  const at::ScalarType w = wide(type);
  const at::Tensor x = randn({rows, channels}, type, offset);
  const at::Tensor gradient = randn({rows, channels}, type, offset);
  const at::Tensor bias = randn({channels}, w, of_channels);
  const at::Tensor y = unwritten({rows, channels}, type, offset);
  launch_bias_gelu(shape, x.data_ptr(), bias.data_ptr(), y.data_ptr(), nullptr);
  const at::Tensor x_gradient = unwritten({rows, channels}, type, offset);
  const at::Tensor bias_gradient = unwritten({channels}, w);
  const at::Tensor sums = unwritten({gelu_sums(shape)}, at::kDouble);
  launch_bias_gelu_backward(shape,
                            {.gradient = gradient.data_ptr(),
                             .x = x.data_ptr(),
                             .bias = bias.data_ptr(),
                             .sums = doubles(sums),
                             .x_gradient = x_gradient.data_ptr(),
                             .bias_gradient = bias_gradient.data_ptr()},
                            nullptr);
  const at::Tensor of_x = leaf(x), of_bias = leaf(bias);
  const at::Tensor true_y = at::gelu(of_x + of_bias, tanh ? "tanh" : "none");
  true_y.backward(gradient.to(at::kDouble));
  expect_close("y", y, true_y);
  expect_close("gradient of x", x_gradient, of_x.grad());
  expect_close("gradient of the bias", bias_gradient, of_bias.grad());
}

TEST(Kernels, Gelu) {
  for (const Rows size : {Rows{1, 1}, {5, 3}, {33, 8}, {300, 40}, {5, 520}}) {
    for (const at::ScalarType type : kTypes) {
      for (const bool tanh : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << size.rows << " rows of " << size.channels << ", " << type << ", " << tanh);
        each_order([&](Offsets offsets) { check_gelu(size, type, tanh, offsets); });
      }
    }
  }
}

void check_images(const std::vector<int64_t>& size, at::ScalarType type, bool channels_last,
                  bool has_changes) {
  const at::Tensor pixels = at::randint(256, size, at::kByte);
  const at::Tensor scale = at::rand({size[3]}), bias = at::rand({size[3]});
  const std::optional<at::Tensor> changes =
      has_changes ? std::optional(changes_for(pixels)) : std::nullopt;
  const at::Tensor expected =
      data::transform_images(pixels, scale, bias, changes, channels_last, type);
  const at::Tensor found = at::full_like(expected, std::numeric_limits<double>::quiet_NaN());
  const FloatType format = type == at::kFloat      ? FloatType::kFloat
                           : type == at::kBFloat16 ? FloatType::kBFloat16
                                                   : FloatType::kHalf;
  launch_transform_images(
      {pixels.data_ptr<uint8_t>(), scale.data_ptr<float>(), bias.data_ptr<float>(),
       has_changes ? static_cast<const data::ImageChange*>(changes->data_ptr()) : nullptr},
      {size[0], size[1], size[2], size[3]}, channels_last, format, found.data_ptr(), nullptr);
  EXPECT_TRUE(at::equal(found, expected)) << "the bits differ";
}

TEST(Kernels, TransformImages) {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 1, 1, 1}, {2, 8, 8, 1},   {3, 7, 5, 1},   {1, 1, 1, 3}, {5, 7, 9, 3},  {9, 16, 24, 3},
      {2, 3, 5, 4}, {3, 12, 16, 4}, {2, 16, 16, 2}, {2, 5, 5, 5}, {1, 4, 4, 70}, {2, 2, 3, 3}};
  for (const std::vector<int64_t>& size : sizes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const bool channels_last : {false, true}) {
        for (const bool has_changes : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << at::IntArrayRef(size) << " " << type << " channels_last " << channels_last
                       << " changes " << has_changes);
          check_images(size, type, channels_last, has_changes);
        }
      }
    }
  }
}

struct CroppedImage {
  at::Tensor pixels;  // uint8 [height, width, 3]
  data::CropPlan plan;
};

/// Rows lie `gap` bytes apart in memory.
void check_resized(const std::vector<CroppedImage>& images, int64_t height, int64_t width,
                   data::Filter filter, int64_t gap) {
  std::vector<device::AxisWeights> axes;
  std::vector<at::Tensor> memory;
  std::vector<ResizedImage> resized;
  at::Tensor expected = at::zeros({std::ssize(images), height, width, 3}, at::kByte);
  ResizedSizes sizes = {.images = static_cast<int32_t>(images.size()),
                        .height = static_cast<int32_t>(height),
                        .width = static_cast<int32_t>(width)};
  axes.reserve(2 * images.size());
  for (const auto& [pixels, plan] : images) {
    const int64_t index = std::ssize(resized);
    const int64_t row_bytes = 3 * pixels.size(1);
    data::resize({pixels.data_ptr<uint8_t>(), pixels.size(0), pixels.size(1), 3, row_bytes}, plan,
                 filter,
                 {expected[index].data_ptr<uint8_t>(), static_cast<size_t>(height * width * 3)});
    memory.push_back(at::zeros({pixels.size(0), row_bytes + gap}, at::kByte));
    memory.back().narrow(1, 0, row_bytes).copy_(pixels.view({-1, row_bytes}));
    const device::AxisWeights& down = axes.emplace_back(data::weights_of(plan.rows(), filter));
    const device::AxisWeights& across = axes.emplace_back(data::weights_of(plan.columns(), filter));
    const int32_t left = across.runs.front();
    const int32_t right = across.runs[across.runs.size() - 2] + across.runs.back();
    memory.push_back(at::full({height, right - left, 3}, 77, at::kByte));
    resized.push_back({.pixels = memory[memory.size() - 2].data_ptr<uint8_t>(),
                       .row_bytes = row_bytes + gap,
                       .down = {down.runs.data(), down.weights.data(), down.stride},
                       .across = {across.runs.data(), across.weights.data(), across.stride},
                       .left = left,
                       .columns = right - left,
                       .between = memory.back().data_ptr<uint8_t>()});
    sizes.columns = std::max(sizes.columns, right - left);
  }
  const at::Tensor found = at::full_like(expected, 99);
  launch_resize_images(resized.data(), sizes, found.data_ptr<uint8_t>(), nullptr);
  EXPECT_TRUE(at::equal(found, expected)) << "the bytes differ";
}

TEST(Kernels, ResizeImages) {
  at::manual_seed(3);
  const auto noise = [](int64_t height, int64_t width) {
    return at::randint(256, {height, width, 3}, at::kByte);
  };
  const auto window = [](int64_t height, int64_t width) { return data::Box{0, 0, height, width}; };
  for (const data::Filter filter : {data::Filter::kBilinear, data::Filter::kBicubic}) {
    for (const int64_t gap : {0, 5}) {
      check_resized({{noise(1, 1), {{0, 0, 1, 1}, 1, 1, window(1, 1)}}}, 1, 1, filter, gap);
      check_resized({{noise(9, 120), {{0, 0, 9, 120}, 4, 100, window(4, 100)}},
                     {noise(70, 31), {{11, 3, 50, 20}, 4, 100, window(4, 100)}},
                     {noise(4, 100), {{0, 0, 4, 100}, 4, 100, window(4, 100)}}},
                    4, 100, filter, gap);
      // The middle of a larger one, as evaluation takes it.
      check_resized({{noise(40, 53), {{0, 0, 40, 53}, 12, 15, {2, 4, 8, 8}}},
                     {noise(300, 8), {{0, 0, 300, 8}, 375, 10, {183, 1, 8, 8}}}},
                    8, 8, filter, gap);
    }
  }
}

}  // namespace
}  // namespace brim::cuda
