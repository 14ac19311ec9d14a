#include "framework/cuda/channel_sums.cuh"
#include "framework/cuda/gelu_kernel.h"

namespace brim::cuda {
namespace {

constexpr double kInverseSqrt2Pi = 0.39894228040143268;
constexpr double kSqrtHalf = 0.70710678118654752;
constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
constexpr double kCubic = 0.044715;

/// A gate of v and its slope: y = v · gate, y' = gate + v · slope.
template <class W>
struct Gate {
  W gate, slope;
};

template <class W, bool kTanh>
__device__ Gate<W> gate_of(W v) {
  if constexpr (kTanh) {
    const W square = v * v;
    const W z = v * W(kTwoSqrt2OverPi) * (square * W(kCubic) + 1);
    const W e = exp(z < 0 ? z : -z);
    const W share = 1 / (1 + e);
    const W steepness = W(kTwoSqrt2OverPi) * (square * W(3 * kCubic) + 1);
    return {z < 0 ? e * share : share, e * share * share * steepness};
  } else {
    return {W(0.5) * erfc(-v * W(kSqrtHalf)), exp(v * v * W(-0.5)) * W(kInverseSqrt2Pi)};
  }
}

template <class T, int N, bool kTanh>
__global__ void forward(GeluShape shape, const T* x, const Wide<T>* bias, T* y) {
  using W = Wide<T>;
  const Place at = place<N>();
  if (at.channel >= shape.channels) return;
  const auto added = channels_of<W, N>(bias, at.channel, shape.channels);
  for (int64_t r = at.row; r < shape.rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto in = load<T, N>(x + offset);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W v = wide(in.values[i]) + added.values[i];
      narrow(v * gate_of<W, kTanh>(v).gate, out.values[i]);
    }
    store(out, y + offset);
  }
}

template <class T, int N, bool kTanh>
__global__ void backward(GeluShape shape, GeluBackward tensors) {
  using W = Wide<T>;
  const Place at = place<N>();
  const auto added = channels_of<W, N>(tensors.bias, at.channel, shape.channels);
  Sums<W, N, 1> own;
  const int64_t rows = at.channel < shape.channels ? shape.rows : 0;
  for (int64_t r = at.row; r < rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto in = load<T, N>(static_cast<const T*>(tensors.x) + offset);
    const auto gradient = load<T, N>(static_cast<const T*>(tensors.gradient) + offset);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W v = wide(in.values[i]) + added.values[i];
      const Gate<W> gate = gate_of<W, kTanh>(v);
      const W g = wide(gradient.values[i]) * (gate.gate + v * gate.slope);
      own.of[0][i] += g;
      narrow(g, out.values[i]);
    }
    store(out, static_cast<T*>(tensors.x_gradient) + offset);
  }
  store_sums(own, shape.channels, tensors.sums);
}

/// A warp for each channel.
template <class W>
__global__ void finish(GeluShape shape, const double* sums, int blocks, W* bias_gradient) {
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<1> sum = total<1>(sums, blocks, shape.channels, channel);
  if (threadIdx.x == 0) bias_gradient[channel] = static_cast<W>(sum.of[0]);
}

template <class T, int N>
void backward_as(GeluShape shape, const GeluBackward& tensors, cudaStream_t stream) {
  const SumLayout at = sum_layout(shape.rows, shape.channels, N, 1);
  const auto run = [&](auto* kernel) {
    launch(kernel, {at.grid, at.block, at.shared_bytes, stream}, shape, tensors);
  };
  shape.tanh ? run(backward<T, N, true>) : run(backward<T, N, false>);
  launch(finish<Wide<T>>, {warp_each(shape.channels), warps(), 0, stream}, shape, tensors.sums,
         static_cast<int>(at.grid.y), static_cast<Wide<T>*>(tensors.bias_gradient));
}

template <class T, int N>
void forward_as(GeluShape shape, const void* x, const void* bias, void* y, cudaStream_t stream) {
  const SumLayout at = sum_layout(shape.rows, shape.channels, N, 1);
  const auto run = [&](auto* kernel) {
    launch(kernel, {at.grid, at.block, 0, stream}, shape, static_cast<const T*>(x),
           static_cast<const Wide<T>*>(bias), static_cast<T*>(y));
  };
  shape.tanh ? run(forward<T, N, true>) : run(forward<T, N, false>);
}

}  // namespace

int64_t gelu_sums(GeluShape shape) { return sums_memory(shape.rows, shape.channels, 1); }

cudaError_t launch_bias_gelu(GeluShape shape, const void* x, const void* bias, void* y,
                             cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    packs<T>(shape.channels, {x, bias, y}) ? forward_as<T, kPack<T>>(shape, x, bias, y, stream)
                                           : forward_as<T, 1>(shape, x, bias, y, stream);
  });
}

cudaError_t launch_bias_gelu_backward(GeluShape shape, const GeluBackward& tensors,
                                      cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    packs<T>(shape.channels, {tensors.gradient, tensors.x, tensors.bias, tensors.x_gradient})
        ? backward_as<T, kPack<T>>(shape, tensors, stream)
        : backward_as<T, 1>(shape, tensors, stream);
  });
}

}  // namespace brim::cuda
