#include "framework/cuda/batch_norm_kernel.h"
#include "framework/cuda/channel_sums.cuh"

namespace brim::cuda {
namespace {

constexpr int kShiftRows = 4;

/// What values of N channels are multiplied by.
template <class W, int N>
__device__ Pack<W, N> scales_of(const NormFactors& factors, int channel, int channels) {
  auto scales = channels_of<W, N>(factors.weight, channel, channels);
  const auto over_std = channels_of<W, N>(factors.inverse_std, channel, channels);
#pragma unroll
  for (int i = 0; i < N; ++i) scales.values[i] *= over_std.values[i];
  return scales;
}

/// Values near the channels' means, so that sums of squares about them lose no digits.
template <class T, int N>
__device__ Pack<Wide<T>, N> near_means(NormShape shape, const T* x, int channel) {
  const int count = shape.rows < kShiftRows ? static_cast<int>(shape.rows) : kShiftRows;
  double sums[N] = {};
  for (int r = 0; r < count; ++r) {
    const auto pack = load<T, N>(x + static_cast<int64_t>(r) * shape.channels + channel);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += wide(pack.values[i]);
  }
  Pack<Wide<T>, N> means;
#pragma unroll
  for (int i = 0; i < N; ++i) means.values[i] = static_cast<Wide<T>>(sums[i] / count);
  return means;
}

/// The values summed about go to `shifts`.
template <class T, int N>
__global__ void sum_moments(NormShape shape, const T* x, double* sums, Wide<T>* shifts) {
  const Place at = place<N>();
  Sums<Wide<T>, N, 2> own;
  if (at.channel < shape.channels) {
    const Pack<Wide<T>, N> shift = near_means<T, N>(shape, x, at.channel);
    if (at.row == 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) shifts[at.channel + i] = shift.values[i];
    }
    for (int64_t r = at.row; r < shape.rows; r += at.step) {
      const auto pack = load<T, N>(x + r * shape.channels + at.channel);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Wide<T> value = wide(pack.values[i]) - shift.values[i];
        own.of[0][i] += value;
        own.of[1][i] += value * value;
      }
    }
  }
  store_sums(own, shape.channels, sums);
}

struct ChannelMoments {
  double mean, variance;  // biased
};

/// By the sums about `shift`.
static __device__ ChannelMoments moments_of(const Totals<2>& sum, int64_t rows, double shift) {
  const auto n = static_cast<double>(rows);
  const double distance = sum.of[0] / n;
  const double squares = sum.of[1] - n * distance * distance;
  return {shift + distance, squares < 0 ? 0 : squares / n};  // not-a-number stays it
}

/// A warp for each channel; statistics.mean holds what was summed about.
template <class T>
__global__ void finish_statistics(NormShape shape, const double* sums, int blocks,
                                  NormStatistics statistics) {
  using W = Wide<T>;
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<2> sum = total<2>(sums, blocks, shape.channels, channel);
  if (threadIdx.x != 0) return;
  W& kept_mean = static_cast<W*>(statistics.mean)[channel];
  const auto [mean, variance] = moments_of(sum, shape.rows, kept_mean);
  kept_mean = static_cast<W>(mean);
  static_cast<W*>(statistics.inverse_std)[channel] =
      static_cast<W>(1 / sqrt(variance + statistics.eps));
  const double share = statistics.momentum;
  if (share == 0) return;
  W& old_mean = static_cast<W*>(statistics.running_mean)[channel];
  W& old_var = static_cast<W*>(statistics.running_var)[channel];
  old_mean = static_cast<W>(share * mean + (1 - share) * old_mean);
  const auto n = static_cast<double>(shape.rows);
  old_var = static_cast<W>(share * variance * n / (n - 1) + (1 - share) * old_var);
}

/// A warp for each channel.
template <class W>
__global__ void finish_moments(NormShape shape, const double* sums, int blocks, const W* shifts,
                               double* moments) {
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<2> sum = total<2>(sums, blocks, shape.channels, channel);
  if (threadIdx.x != 0) return;
  const auto [mean, variance] = moments_of(sum, shape.rows, shifts[channel]);
  moments[channel] = mean;
  moments[shape.channels + channel] = variance;
}

template <class T, int N, bool kResidual, bool kRelu>
__global__ void normalise(NormShape shape, const T* x, const T* residual, NormFactors factors,
                          T* y) {
  using W = Wide<T>;
  const Place at = place<N>();
  if (at.channel >= shape.channels) return;
  const auto mean = channels_of<W, N>(factors.mean, at.channel, shape.channels);
  const auto scale = scales_of<W, N>(factors, at.channel, shape.channels);
  const auto bias = channels_of<W, N>(factors.bias, at.channel, shape.channels);
  for (int64_t r = at.row; r < shape.rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto in = load<T, N>(x + offset);
    Pack<T, N> add;
    if constexpr (kResidual) add = load<T, N>(residual + offset);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      W value = (wide(in.values[i]) - mean.values[i]) * scale.values[i] + bias.values[i];
      if constexpr (kResidual) value += wide(add.values[i]);
      if constexpr (kRelu) value = value < 0 ? W(0) : value;  // not-a-number stays it
      narrow(value, out.values[i]);
    }
    *reinterpret_cast<Pack<T, N>*>(y + offset) = out;
  }
}

enum class Mask { kNone, kFromInput, kFromOutput };

template <class T, int N, Mask kMask, bool kMore>
__global__ void sum_gradients(NormShape shape, NormBackward tensors) {
  using W = Wide<T>;
  const Place at = place<N>();
  const auto mean = channels_of<W, N>(tensors.factors.mean, at.channel, shape.channels);
  const auto scale = scales_of<W, N>(tensors.factors, at.channel, shape.channels);
  const auto bias = channels_of<W, N>(tensors.factors.bias, at.channel, shape.channels);
  T* masked = static_cast<T*>(tensors.residual);
  Sums<W, N, 2> own;
  const int64_t rows = at.channel < shape.channels ? shape.rows : 0;
  for (int64_t r = at.row; r < rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto gradient = load<T, N>(static_cast<const T*>(tensors.gradient) + offset);
    const auto x = load<T, N>(static_cast<const T*>(tensors.x) + offset);
    Pack<T, N> y, more, kept;
    if constexpr (kMore) more = load<T, N>(static_cast<const T*>(tensors.more) + offset);
    if constexpr (kMask == Mask::kFromOutput) {
      y = load<T, N>(static_cast<const T*>(tensors.y) + offset);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W centred = wide(x.values[i]) - mean.values[i];
      W g = wide(gradient.values[i]);
      if constexpr (kMore) {  // rounded, as a sum of its own would be
        narrow(g + wide(more.values[i]), kept.values[i]);
        g = wide(kept.values[i]);
      }
      if constexpr (kMask == Mask::kFromInput) {
        g = centred * scale.values[i] + bias.values[i] <= 0 ? W(0) : g;
      } else if constexpr (kMask == Mask::kFromOutput) {
        g = wide(y.values[i]) <= 0 ? W(0) : g;
      }
      narrow(g, kept.values[i]);
      own.of[0][i] += g;
      own.of[1][i] += g * centred;
    }
    if (masked != nullptr) *reinterpret_cast<Pack<T, N>*>(masked + offset) = kept;
  }
  store_sums(own, shape.channels, tensors.sums);
}

/// A warp for each channel.
template <class T>
__global__ void finish_gradients(NormShape shape, NormBackward tensors, int blocks) {
  using W = Wide<T>;
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<2> sum = total<2>(tensors.sums, blocks, shape.channels, channel);
  if (threadIdx.x != 0) return;
  const auto n = static_cast<double>(shape.rows);
  const W over_std = static_cast<const W*>(tensors.factors.inverse_std)[channel];
  const double scale = static_cast<const W*>(tensors.factors.weight)[channel] * over_std;
  static_cast<W*>(tensors.weight)[channel] = static_cast<W>(sum.of[1] * over_std);
  static_cast<W*>(tensors.bias)[channel] = static_cast<W>(sum.of[0]);
  W* slope = static_cast<W*>(tensors.slopes);
  slope[channel] = static_cast<W>(-scale * over_std * over_std * sum.of[1] / n);
  slope[shape.channels + channel] = static_cast<W>(-scale * sum.of[0] / n);
}

/// A warp for each channel.
static __global__ void finish_totals(NormShape shape, const double* sums, int blocks,
                                     double* totals) {
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<2> sum = total<2>(sums, blocks, shape.channels, channel);
  if (threadIdx.x != 0) return;
  totals[channel] = sum.of[0];
  totals[shape.channels + channel] = sum.of[1];
}

template <class T, int N, bool kMasked>
__global__ void input_gradient(NormShape shape, NormBackward tensors, const T* gradients) {
  using W = Wide<T>;
  const Place at = place<N>();
  if (at.channel >= shape.channels) return;
  const auto mean = channels_of<W, N>(tensors.factors.mean, at.channel, shape.channels);
  const auto scale = scales_of<W, N>(tensors.factors, at.channel, shape.channels);
  const auto bias = channels_of<W, N>(tensors.factors.bias, at.channel, shape.channels);
  const W* slopes = static_cast<const W*>(tensors.slopes);
  const auto slope = channels_of<W, N>(slopes, at.channel, shape.channels);
  const auto offsets = channels_of<W, N>(slopes + shape.channels, at.channel, shape.channels);
  for (int64_t r = at.row; r < shape.rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto gradient = load<T, N>(gradients + offset);
    const auto x = load<T, N>(static_cast<const T*>(tensors.x) + offset);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W centred = wide(x.values[i]) - mean.values[i];
      W g = wide(gradient.values[i]);
      if constexpr (kMasked) g = centred * scale.values[i] + bias.values[i] <= 0 ? W(0) : g;
      narrow(scale.values[i] * g + (slope.values[i] * centred + offsets.values[i]), out.values[i]);
    }
    *reinterpret_cast<Pack<T, N>*>(static_cast<T*>(tensors.x_gradient) + offset) = out;
  }
}

SumLayout layout(NormShape shape, int pack) {
  return sum_layout(shape.rows, shape.channels, pack, 2);
}

template <class T, int N>
void statistics_as(NormShape shape, const T* x, double* sums, const NormStatistics& statistics,
                   cudaStream_t stream) {
  const SumLayout at = layout(shape, N);
  launch(sum_moments<T, N>, {at.grid, at.block, at.shared_bytes, stream}, shape, x, sums,
         static_cast<Wide<T>*>(statistics.mean));
  launch(finish_statistics<T>, {warp_each(shape.channels), warps(), 0, stream}, shape, sums,
         static_cast<int>(at.grid.y), statistics);
}

template <class T, int N>
void moments_as(NormShape shape, const T* x, double* sums, Wide<T>* shifts, double* moments,
                cudaStream_t stream) {
  const SumLayout at = layout(shape, N);
  launch(sum_moments<T, N>, {at.grid, at.block, at.shared_bytes, stream}, shape, x, sums, shifts);
  launch(finish_moments<Wide<T>>, {warp_each(shape.channels), warps(), 0, stream}, shape, sums,
         static_cast<int>(at.grid.y), shifts, moments);
}

template <class T, int N>
void normalise_as(NormShape shape, const T* x, const T* residual, NormFactors factors, bool relu,
                  T* y, cudaStream_t stream) {
  const SumLayout at = layout(shape, N);
  const auto run = [&](auto* kernel) {
    launch(kernel, {at.grid, at.block, 0, stream}, shape, x, residual, factors, y);
  };
  if (residual != nullptr) {
    relu ? run(normalise<T, N, true, true>) : run(normalise<T, N, true, false>);
  } else {
    relu ? run(normalise<T, N, false, true>) : run(normalise<T, N, false, false>);
  }
}

template <class T, int N>
void sum_gradients_as(NormShape shape, const NormBackward& tensors, cudaStream_t stream) {
  const SumLayout at = layout(shape, N);
  const auto sum = [&](auto* kernel) {
    launch(kernel, {at.grid, at.block, at.shared_bytes, stream}, shape, tensors);
  };
  if (tensors.relu && tensors.y != nullptr) {
    tensors.more != nullptr ? sum(sum_gradients<T, N, Mask::kFromOutput, true>)
                            : sum(sum_gradients<T, N, Mask::kFromOutput, false>);
  } else if (tensors.relu) {
    sum(sum_gradients<T, N, Mask::kFromInput, false>);
  } else {
    sum(sum_gradients<T, N, Mask::kNone, false>);
  }
}

template <class T, int N>
void backward_as(NormShape shape, const NormBackward& tensors, cudaStream_t stream) {
  const SumLayout at = layout(shape, N);
  sum_gradients_as<T, N>(shape, tensors, stream);
  launch(finish_gradients<T>, {warp_each(shape.channels), warps(), 0, stream}, shape, tensors,
         static_cast<int>(at.grid.y));
  // A residual's gradient is the masked one.
  const bool is_masked = tensors.residual != nullptr || !tensors.relu;
  const auto* gradient =
      static_cast<const T*>(tensors.residual != nullptr ? tensors.residual : tensors.gradient);
  if (is_masked) {
    launch(input_gradient<T, N, false>, {at.grid, at.block, 0, stream}, shape, tensors, gradient);
  } else {
    launch(input_gradient<T, N, true>, {at.grid, at.block, 0, stream}, shape, tensors, gradient);
  }
}

template <class T>
bool packs_of(NormShape shape, const NormBackward& tensors) {
  return packs<T>(shape.channels,
                  {tensors.gradient, tensors.more, tensors.x, tensors.y, tensors.residual,
                   tensors.x_gradient, tensors.factors.mean, tensors.factors.inverse_std,
                   tensors.factors.weight, tensors.factors.bias, tensors.slopes});
}

}  // namespace

int64_t norm_sums(NormShape shape) { return sums_memory(shape.rows, shape.channels, 2); }

cudaError_t launch_norm_statistics(NormShape shape, const void* x, double* sums,
                                   NormStatistics statistics, cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* values = static_cast<const T*>(x);
    packs<T>(shape.channels, {x})
        ? statistics_as<T, kPack<T>>(shape, values, sums, statistics, stream)
        : statistics_as<T, 1>(shape, values, sums, statistics, stream);
  });
}

cudaError_t launch_normalise(NormShape shape, const void* x, const void* residual,
                             NormFactors factors, bool relu, void* y, cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* in = static_cast<const T*>(x);
    const auto* add = static_cast<const T*>(residual);
    auto* out = static_cast<T*>(y);
    packs<T>(shape.channels,
             {x, residual, y, factors.mean, factors.inverse_std, factors.weight, factors.bias})
        ? normalise_as<T, kPack<T>>(shape, in, add, factors, relu, out, stream)
        : normalise_as<T, 1>(shape, in, add, factors, relu, out, stream);
  });
}

cudaError_t launch_norm_moments(NormShape shape, const void* x, double* sums, void* shifts,
                                double* moments, cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* values = static_cast<const T*>(x);
    auto* about = static_cast<Wide<T>*>(shifts);
    packs<T>(shape.channels, {x})
        ? moments_as<T, kPack<T>>(shape, values, sums, about, moments, stream)
        : moments_as<T, 1>(shape, values, sums, about, moments, stream);
  });
}

cudaError_t launch_norm_gradient_sums(NormShape shape, const NormBackward& tensors, double* totals,
                                      cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool is_packed = packs_of<T>(shape, tensors);
    is_packed ? sum_gradients_as<T, kPack<T>>(shape, tensors, stream)
              : sum_gradients_as<T, 1>(shape, tensors, stream);
    const SumLayout at = layout(shape, is_packed ? kPack<T> : 1);
    launch(finish_totals, {warp_each(shape.channels), warps(), 0, stream}, shape, tensors.sums,
           static_cast<int>(at.grid.y), totals);
  });
}

cudaError_t launch_norm_input_gradient(NormShape shape, const NormBackward& tensors,
                                       cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      const SumLayout at = layout(shape, N);
      launch(input_gradient<T, N, false>, {at.grid, at.block, 0, stream}, shape, tensors,
             static_cast<const T*>(tensors.gradient));
    };
    packs_of<T>(shape, tensors) ? run(Number<kPack<T>>()) : run(Number<1>());
  });
}

cudaError_t launch_norm_backward(NormShape shape, const NormBackward& tensors,
                                 cudaStream_t stream) {
  return with_type(shape.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    packs_of<T>(shape, tensors) ? backward_as<T, kPack<T>>(shape, tensors, stream)
                                : backward_as<T, 1>(shape, tensors, stream);
  });
}

}  // namespace brim::cuda
