// Images and vectors of channels are cut into tasks for the threads here; what is done with an
// image's vector is loops/depthwise.cpp's.
#include "framework/nn/fused/depthwise_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "framework/nn/fused/cpu.h"
#include "framework/nn/fused/loops/depthwise.h"

namespace brim::nn::cpu {
namespace {

using loops::DepthwiseShape;
using loops::DepthwiseSide;

constexpr int64_t kMaxSums = 16;  // sets of sums over images, the same for any number of threads

DepthwiseSide side_of(int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
  return {in, (in + 2 * padding - kernel) / stride + 1, kernel, stride, padding};
}

DepthwiseShape shape_of(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride,
                        at::IntArrayRef padding) {
  TORCH_CHECK(x.dim() == 4 && x.numel() > 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast),
              "depthwise_convolution: expected channels_last x [N, C, H, W], found ", x.sizes(),
              " with strides ", x.strides());
  TORCH_CHECK(weight.dim() == 4 && weight.size(0) == x.size(1) && weight.size(1) == 1 &&
                  weight.scalar_type() == opmath_type(x) && weight.size(2) > 0 &&
                  weight.size(2) <= loops::kHighestKernel &&
                  (weight.size(3) == 3 || weight.size(3) == 5 || weight.size(3) == 7),
              "depthwise_convolution: expected a weight ", opmath_type(x), " [", x.size(1),
              ", 1, KH, KW] with KH at most 7 and KW 3, 5 or 7, found ", weight.scalar_type(), " ",
              weight.sizes());
  TORCH_CHECK(stride.size() == 2 && padding.size() == 2,
              "depthwise_convolution: expected stride "
              "and padding of two sides");
  for (const int i : {0, 1}) {
    TORCH_CHECK(stride[i] > 0 && padding[i] >= 0 && padding[i] < weight.size(2 + i) &&
                    x.size(2 + i) + 2 * padding[i] >= weight.size(2 + i),
                "depthwise_convolution: a kernel of ", weight.size(2 + i), " with stride ",
                stride[i], " and padding ", padding[i], " does not fit ", x.size(2 + i));
  }
  return {.channels = x.size(1),
          .count = 0,
          .height = side_of(x.size(2), weight.size(2), stride[0], padding[0]),
          .width = side_of(x.size(3), weight.size(3), stride[1], padding[1])};
}

/// What computes x's gradient from that of the outputs, with the kernel turned round.
DepthwiseSide turned(const DepthwiseSide& side) {
  return {.in = side.out,
          .out = side.in,
          .kernel = side.kernel,
          .stride = 1,
          .padding = side.kernel - 1 - side.padding,
          .spread = side.stride};
}

/// [C, 1, KH, KW] to [KH · KW, C].
at::Tensor taps_of(const at::Tensor& weight) { return weight.flatten(1).t().contiguous(); }

int64_t pixels(const DepthwiseSide& height, const DepthwiseSide& width, bool of_outputs) {
  return of_outputs ? height.out * width.out : height.in * width.in;
}

/// work(image or set of them, shape of some channels, the first of these, scratch) for all.
template <class S, class Work>
void for_each_part(int64_t count, const DepthwiseShape& shape, int64_t cost, const Work& work) {
  const loops::DepthwiseLoops<S>& loop = loops::depthwise_loops<S>();
  const int64_t parts = (shape.channels + loop.lanes - 1) / loop.lanes;
  at::parallel_for(0, count * parts, grain_of(cost * loop.lanes), [&](int64_t begin, int64_t end) {
    const at::Tensor scratch =
        at::empty({loop.scratch_values(shape) * static_cast<int64_t>(sizeof(Wide<S>))}, at::kByte);
    for (int64_t i = begin; i < end; ++i) {
      DepthwiseShape part = shape;
      const int64_t first = i % parts * loop.lanes;
      part.count = std::min(loop.lanes, shape.channels - first);
      work(i / parts, part, first, writable<Wide<S>>(scratch));
    }
  });
}

template <class S>
void convolve(const DepthwiseShape& shape, int64_t images, const S* x, const at::Tensor& taps,
              const Wide<S>* bias, S* y) {
  const int64_t of_x = pixels(shape.height, shape.width, false) * shape.channels;
  const int64_t of_y = pixels(shape.height, shape.width, true) * shape.channels;
  const auto* weight = data<Wide<S>>(taps);
  for_each_part<S>(images, shape, of_y / shape.channels * shape.taps(),
                   [&](int64_t image, const DepthwiseShape& part, int64_t c, Wide<S>* scratch) {
                     loops::depthwise_loops<S>().convolve(part, x + image * of_x + c, weight + c,
                                                          bias == nullptr ? nullptr : bias + c,
                                                          y + image * of_y + c, scratch);
                   });
}

/// Of the taps and of the bias, [taps + 1, C].
template <class S>
at::Tensor weight_gradients(const DepthwiseShape& shape, int64_t images, const S* gradient,
                            const S* x, const at::TensorOptions& options) {
  const int64_t of_x = pixels(shape.height, shape.width, false) * shape.channels;
  const int64_t of_y = pixels(shape.height, shape.width, true) * shape.channels;
  const int64_t sets = std::min(images, kMaxSums), values = (shape.taps() + 1) * shape.channels;
  const at::Tensor sums = at::zeros({sets, shape.taps() + 1, shape.channels}, options);
  auto* const all = writable<Wide<S>>(sums);
  for_each_part<S>(sets, shape, images / sets * of_y / shape.channels * shape.taps(),
                   [&](int64_t set, const DepthwiseShape& part, int64_t c, Wide<S>* scratch) {
                     for (int64_t i = images * set / sets; i < images * (set + 1) / sets; ++i) {
                       loops::depthwise_loops<S>().add_weight_gradients(
                           part, gradient + i * of_y + c, x + i * of_x + c, all + set * values + c,
                           scratch);
                     }
                   });
  return sums.sum(0);
}

}  // namespace

at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight,
                                 const MaybeTensor& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding) {
  const DepthwiseShape shape = shape_of(x, weight, stride, padding);
  TORCH_CHECK(!bias || (bias->sizes() == at::IntArrayRef({shape.channels}) &&
                        bias->scalar_type() == weight.scalar_type() && bias->is_contiguous()),
              "depthwise_convolution: expected a bias ", weight.scalar_type(), " [", shape.channels,
              "]");
  at::Tensor y = at::empty({x.size(0), shape.channels, shape.height.out, shape.width.out},
                           x.options().memory_format(at::MemoryFormat::ChannelsLast));
  with_format_of("depthwise_convolution", x, [&]<class S>() {
    convolve<S>(shape, x.size(0), data<S>(x), taps_of(weight), data<Wide<S>>(bias), writable<S>(y));
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> depthwise_convolution_backward(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, std::array<bool, 3> wanted) {
  const DepthwiseShape shape = shape_of(x, weight, stride, padding);
  TORCH_CHECK(gradient.sizes() == at::IntArrayRef({x.size(0), shape.channels, shape.height.out,
                                                   shape.width.out}) &&
                  gradient.scalar_type() == x.scalar_type() &&
                  gradient.is_contiguous(at::MemoryFormat::ChannelsLast),
              "depthwise_convolution: expected a channels_last gradient like the output, found ",
              gradient.scalar_type(), " ", gradient.sizes(), " with strides ", gradient.strides());
  at::Tensor of_x, of_weight, of_bias;
  with_format_of("depthwise_convolution", x, [&]<class S>() {
    if (wanted[0]) {
      of_x = at::empty_like(x);
      const DepthwiseShape back = {.channels = shape.channels,
                                   .count = 0,
                                   .height = turned(shape.height),
                                   .width = turned(shape.width)};
      convolve<S>(back, x.size(0), data<S>(gradient), taps_of(weight.flip({2, 3})), nullptr,
                  writable<S>(of_x));
    }
    if (!wanted[1] && !wanted[2]) return;
    const at::Tensor sums =
        weight_gradients<S>(shape, x.size(0), data<S>(gradient), data<S>(x), weight.options());
    if (wanted[1]) {
      of_weight = at::empty_like(weight);
      of_weight.copy_(sums.narrow(0, 0, shape.taps()).t().reshape(weight.sizes()));
    }
    if (wanted[2]) of_bias = sums[shape.taps()].clone();
  });
  return {of_x, of_weight, of_bias};
}

}  // namespace brim::nn::cpu
