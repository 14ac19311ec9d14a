// A row belongs to one warp, or where it is long to one block, which goes over it again while it is
// in the cache. The parameters' gradients are sums a channel, in a pass of their own.
#include "framework/cuda/channel_sums.cuh"
#include "framework/cuda/layer_norm_kernel.h"

namespace brim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxPerWarp = 1024;  // channels

template <int kWidth>
__device__ int64_t own_row() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / kWidth) + threadIdx.x / kWidth;
}

/// Σ over the kWidth threads that share a row, in all of them.
template <int kWidth, class W>
__device__ W over_row(W value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  }
  if constexpr (kWidth > kWarp) {
    __shared__ W of_warps[kWidth / kWarp];
    __syncthreads();  // an earlier sum has been read
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < kWidth / kWarp; ++i) value += of_warps[i];
  }
  return value;
}

template <class X, class Y, int N, int kWidth>
__global__ void forward(LayerNormShape shape, LayerNormForward tensors) {
  using W = Wide<X>;
  const int64_t row = own_row<kWidth>();
  if (row >= shape.rows) return;  // a whole warp or block
  const int64_t at = row * shape.channels;
  const int first = threadIdx.x % kWidth * N;
  const X* x = static_cast<const X*>(tensors.x) + at;
  W total = 0;
  if (tensors.branch != nullptr) {
    const Y* branch = static_cast<const Y*>(tensors.branch) + at;
    X* sum = static_cast<X*>(tensors.sum) + at;
    for (int c = first; c < shape.channels; c += kWidth * N) {
      const auto a = load<X, N>(x + c);
      const auto b = load<Y, N>(branch + c);
      Pack<X, N> both;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        narrow(wide(a.values[i]) + wide(b.values[i]), both.values[i]);
        total += wide(both.values[i]);
      }
      store(both, sum + c);
    }
    x = sum;  // each thread reads again what it wrote
  } else {
    for (int c = first; c < shape.channels; c += kWidth * N) {
      const auto a = load<X, N>(x + c);
#pragma unroll
      for (int i = 0; i < N; ++i) total += wide(a.values[i]);
    }
  }
  const W mean = over_row<kWidth>(total) / shape.channels;
  W squares = 0;
  for (int c = first; c < shape.channels; c += kWidth * N) {
    const auto a = load<X, N>(x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W centred = wide(a.values[i]) - mean;
      squares += centred * centred;
    }
  }
  const W variance = over_row<kWidth>(squares) / shape.channels;
  const W inverse_std = W(1 / sqrt(static_cast<double>(variance) + tensors.eps));
  if (first == 0) {
    static_cast<W*>(tensors.mean)[row] = mean;
    static_cast<W*>(tensors.inverse_std)[row] = inverse_std;
  }
  const W* weight = static_cast<const W*>(tensors.weight);
  const W* bias = static_cast<const W*>(tensors.bias);
  Y* norm = static_cast<Y*>(tensors.norm) + at;
  for (int c = first; c < shape.channels; c += kWidth * N) {
    const auto a = load<X, N>(x + c);
    const auto w = load<W, N>(weight + c), added = load<W, N>(bias + c);
    Pack<Y, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      narrow((wide(a.values[i]) - mean) * inverse_std * w.values[i] + added.values[i],
             out.values[i]);
    }
    store(out, norm + c);
  }
}

template <class X, class Y, int N, int kWidth>
__global__ void input_gradient(LayerNormShape shape, LayerNormBackward tensors) {
  using W = Wide<X>;
  const int64_t row = own_row<kWidth>();
  if (row >= shape.rows) return;
  const int64_t at = row * shape.channels;
  const int first = threadIdx.x % kWidth * N;
  const X* x = static_cast<const X*>(tensors.sum) + at;
  const Y* gradient = static_cast<const Y*>(tensors.gradient) + at;
  const W* weight = static_cast<const W*>(tensors.weight);
  const W mean = static_cast<const W*>(tensors.mean)[row];
  const W inverse_std = static_cast<const W*>(tensors.inverse_std)[row];
  W sum = 0, product = 0;
  for (int c = first; c < shape.channels; c += kWidth * N) {
    const auto a = load<X, N>(x + c);
    const auto g = load<Y, N>(gradient + c);
    const auto w = load<W, N>(weight + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W scaled = wide(g.values[i]) * w.values[i];
      sum += scaled;
      product += scaled * ((wide(a.values[i]) - mean) * inverse_std);
    }
  }
  const W offset = over_row<kWidth>(sum) / shape.channels;
  const W slope = over_row<kWidth>(product) / shape.channels;
  const X* other = static_cast<const X*>(tensors.sum_gradient);
  X* result = static_cast<X*>(tensors.x_gradient) + at;
  Y* copy = static_cast<Y*>(tensors.branch_gradient);
  for (int c = first; c < shape.channels; c += kWidth * N) {
    const auto a = load<X, N>(x + c);
    const auto g = load<Y, N>(gradient + c);
    const auto w = load<W, N>(weight + c);
    Pack<X, N> more, out;
    if (other != nullptr) more = load<X, N>(other + at + c);
    Pack<Y, N> again;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W normal = (wide(a.values[i]) - mean) * inverse_std;
      W value = (wide(g.values[i]) * w.values[i] - offset - normal * slope) * inverse_std;
      if (other != nullptr) value += wide(more.values[i]);
      narrow(value, out.values[i]);
      narrow(value, again.values[i]);
    }
    store(out, result + c);
    if (copy != nullptr) store(again, copy + at + c);
  }
}

template <class X, class Y, int N>
__global__ void sum_gradients(LayerNormShape shape, LayerNormBackward tensors) {
  using W = Wide<X>;
  const Place at = place<N>();
  Sums<W, N, 2> own;
  const int64_t rows = at.channel < shape.channels ? shape.rows : 0;
  for (int64_t r = at.row; r < rows; r += at.step) {
    const int64_t offset = r * shape.channels + at.channel;
    const auto a = load<X, N>(static_cast<const X*>(tensors.sum) + offset);
    const auto g = load<Y, N>(static_cast<const Y*>(tensors.gradient) + offset);
    const W mean = static_cast<const W*>(tensors.mean)[r];
    const W inverse_std = static_cast<const W*>(tensors.inverse_std)[r];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      own.of[0][i] += wide(g.values[i]) * ((wide(a.values[i]) - mean) * inverse_std);
      own.of[1][i] += wide(g.values[i]);
    }
  }
  store_sums(own, shape.channels, tensors.sums);
}

/// A warp for each channel.
template <class W>
__global__ void finish_gradients(LayerNormShape shape, LayerNormBackward tensors, int blocks) {
  const int channel = blockIdx.x * blockDim.y + threadIdx.y;
  if (channel >= shape.channels) return;
  const Totals<2> sums = total<2>(tensors.sums, blocks, shape.channels, channel);
  if (threadIdx.x != 0) return;
  static_cast<W*>(tensors.weight_gradient)[channel] = static_cast<W>(sums.of[0]);
  static_cast<W*>(tensors.bias_gradient)[channel] = static_cast<W>(sums.of[1]);
}

/// f(Tag<X>, Tag<Y>) for the formats' types; the status of the launch.
template <class F>
cudaError_t with_types(LayerNormShape shape, const F& f) {
  if (shape.x != Format::kFloat || shape.norm == Format::kFloat) {
    return with_type(shape.x, [&](auto tag) { f(tag, tag); });
  }
  shape.norm == Format::kHalf ? f(Tag<float>(), Tag<__half>())
                              : f(Tag<float>(), Tag<__nv_bfloat16>());
  return cudaGetLastError();
}

/// f(Number<kWidth>, blocks): the threads that suit a row, and the blocks that all rows take.
template <class F>
void with_width(LayerNormShape shape, const F& f) {
  if (shape.channels <= kMaxPerWarp) {
    constexpr int64_t kRows = kThreads / kWarp;
    f(Number<kWarp>(), static_cast<unsigned>((shape.rows + kRows - 1) / kRows));
  } else {
    f(Number<kThreads>(), static_cast<unsigned>(shape.rows));
  }
}

template <class X, class Y, int N>
void forward_as(LayerNormShape shape, const LayerNormForward& tensors, cudaStream_t stream) {
  with_width(shape, [&](auto width, unsigned blocks) {
    constexpr int kWidth = decltype(width)::value;
    launch(forward<X, Y, N, kWidth>, {blocks, kThreads, 0, stream}, shape, tensors);
  });
}

template <class X, class Y, int N>
void backward_as(LayerNormShape shape, const LayerNormBackward& tensors, cudaStream_t stream) {
  with_width(shape, [&](auto width, unsigned blocks) {
    constexpr int kWidth = decltype(width)::value;
    launch(input_gradient<X, Y, N, kWidth>, {blocks, kThreads, 0, stream}, shape, tensors);
  });
  const SumLayout at = sum_layout(shape.rows, shape.channels, N, 2);
  launch(sum_gradients<X, Y, N>, {at.grid, at.block, at.shared_bytes, stream}, shape, tensors);
  launch(finish_gradients<Wide<X>>, {warp_each(shape.channels), warps(), 0, stream}, shape, tensors,
         static_cast<int>(at.grid.y));
}

}  // namespace

int64_t layer_norm_sums(LayerNormShape shape) { return sums_memory(shape.rows, shape.channels, 2); }

cudaError_t launch_layer_norm(LayerNormShape shape, const LayerNormForward& tensors,
                              cudaStream_t stream) {
  return with_types(shape, [&](auto x, auto norm) {
    using X = typename decltype(x)::type;
    using Y = typename decltype(norm)::type;
    packs<X>(shape.channels,
             {tensors.x, tensors.branch, tensors.sum, tensors.norm, tensors.weight, tensors.bias})
        ? forward_as<X, Y, kPack<X>>(shape, tensors, stream)
        : forward_as<X, Y, 1>(shape, tensors, stream);
  });
}

cudaError_t launch_layer_norm_backward(LayerNormShape shape, const LayerNormBackward& tensors,
                                       cudaStream_t stream) {
  return with_types(shape, [&](auto x, auto norm) {
    using X = typename decltype(x)::type;
    using Y = typename decltype(norm)::type;
    packs<X>(shape.channels, {tensors.gradient, tensors.sum_gradient, tensors.sum,
                              tensors.x_gradient, tensors.branch_gradient, tensors.weight})
        ? backward_as<X, Y, kPack<X>>(shape, tensors, stream)
        : backward_as<X, Y, 1>(shape, tensors, stream);
  });
}

}  // namespace brim::cuda
