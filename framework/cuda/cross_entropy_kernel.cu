// A row's logits are read by one warp, or where there are many by one block, each thread keeping a
// running maximum and the sum of exponentials about it.
#undef NDEBUG  // labels are checked in every build, as LibTorch does
#include <cassert>

#include "framework/cuda/cross_entropy_kernel.h"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/values.cuh"

namespace brim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxPerWarp = 1024;  // classes
constexpr unsigned kAll = 0xffffffffU;

template <class W>
struct SoftmaxSums {
  W highest = -INFINITY;
  W exponentials = 0;  // Σ exp(x - highest)
  W values = 0;        // Σ x
};

/// exp(from - to), where both may be -infinity.
template <class W>
__device__ W moved(W from, W to) {
  return from == to ? W(1) : exp(from - to);
}

template <class W>
__device__ SoftmaxSums<W> merged(const SoftmaxSums<W>& a, const SoftmaxSums<W>& b) {
  const W highest = a.highest > b.highest ? a.highest : b.highest;
  return {highest,
          a.exponentials * moved(a.highest, highest) + b.exponentials * moved(b.highest, highest),
          a.values + b.values};
}

template <class T, int N>
__device__ void add(const Pack<T, N>& pack, SoftmaxSums<Wide<T>>& sums) {
  using W = Wide<T>;
  W highest = sums.highest;
#pragma unroll
  for (int i = 0; i < N; ++i)
    highest = wide(pack.values[i]) > highest ? wide(pack.values[i]) : highest;
  sums.exponentials *= moved(sums.highest, highest);
  sums.highest = highest;
  const W shift = highest == -INFINITY ? W(0) : highest;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    sums.exponentials += exp(wide(pack.values[i]) - shift);
    sums.values += wide(pack.values[i]);
  }
}

/// Over the kWidth threads that share a row, in all of them.
template <class W, int kWidth>
__device__ SoftmaxSums<W> over_row(SoftmaxSums<W> sums) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const SoftmaxSums<W> other = {__shfl_xor_sync(kAll, sums.highest, distance),
                                  __shfl_xor_sync(kAll, sums.exponentials, distance),
                                  __shfl_xor_sync(kAll, sums.values, distance)};
    // The same order on both sides: all lanes get the same bits.
    sums = (threadIdx.x & distance) == 0 ? merged(sums, other) : merged(other, sums);
  }
  if constexpr (kWidth > kWarp) {
    constexpr int kWarps = kWidth / kWarp;
    __shared__ W highest[kWarps], exponentials[kWarps], values[kWarps];
    const int warp = threadIdx.x / kWarp;
    if (threadIdx.x % kWarp == 0) {
      highest[warp] = sums.highest;
      exponentials[warp] = sums.exponentials;
      values[warp] = sums.values;
    }
    __syncthreads();
    sums = {highest[0], exponentials[0], values[0]};
    for (int i = 1; i < kWarps; ++i) {
      sums = merged(sums, SoftmaxSums<W>{highest[i], exponentials[i], values[i]});
    }
  }
  return sums;
}

/// A row's labels, each with its part of the target; parts of missing ones are 0.
struct RowTarget {
  int64_t label, partner;
  double part, partner_part;

  __device__ RowTarget(const CrossEntropyInputs& inputs, int64_t row)
      : label(inputs.labels[row]),
        partner(inputs.partner_labels == nullptr ? inputs.ignore_index
                                                 : inputs.partner_labels[row]) {
    const double share = inputs.partner_labels == nullptr ? 1 : inputs.label_shares[row];
    part = label == inputs.ignore_index ? 0 : share;
    partner_part = partner == inputs.ignore_index ? 0 : 1 - share;
  }
};

__device__ void check_label(int64_t label, const CrossEntropyInputs& inputs) {
  assert((label == inputs.ignore_index || (label >= 0 && label < inputs.classes)) &&
         "cross-entropy: a label is no class");
}

template <class T>
__device__ double label_loss(const CrossEntropyInputs& inputs, const T* x, int64_t label,
                             double part, const SoftmaxSums<Wide<T>>& sums) {
  if (part == 0) return 0;
  const double log_sum = log(static_cast<double>(sums.exponentials));
  const double highest = sums.highest;
  double loss = (1 - inputs.smoothing) * ((highest - wide(x[label])) + log_sum);
  if (inputs.smoothing != 0) {
    const double mean = static_cast<double>(sums.values) / static_cast<double>(inputs.classes);
    loss += inputs.smoothing * ((highest - mean) + log_sum);
  }
  return part * loss;
}

template <int kWidth>
__device__ int64_t own_row() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / kWidth) + threadIdx.x / kWidth;
}

template <class T, int N, int kWidth>
__global__ void row_losses(CrossEntropyInputs inputs, double* losses, Wide<T>* kept) {
  using W = Wide<T>;
  const int64_t row = own_row<kWidth>();
  if (row >= inputs.rows) return;  // a whole warp or block
  const T* x = static_cast<const T*>(inputs.logits) + row * inputs.stride;
  SoftmaxSums<W> sums;
  const int64_t thread = threadIdx.x % kWidth;
  for (int64_t c = thread * N; c + N <= inputs.classes; c += kWidth * N) {
    add(load<T, N>(x + c), sums);
  }
  for (int64_t c = inputs.classes / N * N + thread; c < inputs.classes; c += kWidth) {
    add(load<T, 1>(x + c), sums);
  }
  sums = over_row<W, kWidth>(sums);
  if (thread != 0) return;
  const RowTarget target(inputs, row);
  check_label(target.label, inputs);
  check_label(target.partner, inputs);
  losses[row] = label_loss(inputs, x, target.label, target.part, sums) +
                label_loss(inputs, x, target.partner, target.partner_part, sums);
  kept[row] = sums.highest;
  kept[inputs.rows + row] = W(1) / sums.exponentials;
}

/// One block: the mean over the rows that count.
template <class W>
__global__ void mean_loss(CrossEntropyInputs inputs, const double* losses, W* loss, W* share) {
  __shared__ double sums[kThreads];
  __shared__ int64_t counts[kThreads];
  double sum = 0;
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < inputs.rows; row += kThreads) {
    sum += losses[row];
    const bool counts_all = inputs.partner_labels != nullptr;
    count += counts_all || inputs.labels[row] != inputs.ignore_index ? 1 : 0;
  }
  sums[threadIdx.x] = sum;
  counts[threadIdx.x] = count;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
    }
  }
  if (threadIdx.x != 0) return;
  const double over_count = 1 / static_cast<double>(counts[0] > 0 ? counts[0] : 1);
  *loss = static_cast<W>(sums[0] * over_count);
  *share = static_cast<W>(over_count);
}

template <class T, int N, int kWidth>
__global__ void row_gradients(CrossEntropyInputs inputs, const Wide<T>* kept, const Wide<T>* share,
                              const Wide<T>* gradient, T* logits_gradient,
                              int64_t gradient_stride) {
  using W = Wide<T>;
  const int64_t row = own_row<kWidth>();
  if (row >= inputs.rows) return;
  const T* x = static_cast<const T*>(inputs.logits) + row * inputs.stride;
  T* out = logits_gradient + row * gradient_stride;
  const RowTarget target(inputs, row);
  const double factor = static_cast<double>(*gradient) * static_cast<double>(*share);
  const double part = target.part + target.partner_part;
  const bool has_label = part != 0;
  const W highest = kept[row];
  const W scale = static_cast<W>(factor * part * kept[inputs.rows + row]);
  const W offset = static_cast<W>(factor * part * inputs.smoothing / inputs.classes);
  const W aimed = static_cast<W>(factor * (1 - inputs.smoothing) * target.part);
  const W partner_aimed = static_cast<W>(factor * (1 - inputs.smoothing) * target.partner_part);
  const auto gradient_at = [&](int64_t c, T from) {
    W value = exp(wide(from) - highest) * scale - offset;
    if (c == target.label) value -= aimed;
    if (c == target.partner) value -= partner_aimed;
    T result;
    narrow(has_label ? value : W(0), result);
    return result;
  };
  const int64_t thread = threadIdx.x % kWidth;
  for (int64_t c = thread * N; c + N <= inputs.classes; c += kWidth * N) {
    const auto in = load<T, N>(x + c);
    Pack<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result.values[i] = gradient_at(c + i, in.values[i]);
    store(result, out + c);
  }
  for (int64_t c = inputs.classes / N * N + thread; c < inputs.classes; c += kWidth) {
    out[c] = gradient_at(c, x[c]);
  }
}

template <int kWidth>
unsigned blocks_for(int64_t rows) {
  constexpr int64_t kRows = kThreads / kWidth;
  return static_cast<unsigned>((rows + kRows - 1) / kRows);
}

/// f(Number<N>, Number<kWidth>) for the pack and the number of threads that suit the rows. Rows
/// need only begin on packs: their last classes are read one by one.
template <class T, class F>
void with_layout(const CrossEntropyInputs& inputs, const void* other, int64_t other_stride,
                 const F& f) {
  const bool is_narrow = inputs.classes <= kMaxPerWarp;
  if (packs<T>(inputs.stride, {inputs.logits}) && packs<T>(other_stride, {other})) {
    is_narrow ? f(Number<kPack<T>>(), Number<kWarp>()) : f(Number<kPack<T>>(), Number<kThreads>());
  } else {
    is_narrow ? f(Number<1>(), Number<kWarp>()) : f(Number<1>(), Number<kThreads>());
  }
}

}  // namespace

cudaError_t launch_cross_entropy(const CrossEntropyInputs& inputs, double* losses, void* kept,
                                 void* loss, void* share, cudaStream_t stream) {
  return with_type(inputs.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    with_layout<T>(inputs, nullptr, 0, [&](auto pack, auto width) {
      constexpr int N = decltype(pack)::value, kWidth = decltype(width)::value;
      launch(row_losses<T, N, kWidth>, {blocks_for<kWidth>(inputs.rows), kThreads, 0, stream},
             inputs, losses, static_cast<W*>(kept));
    });
    launch(mean_loss<W>, {1, kThreads, 0, stream}, inputs, losses, static_cast<W*>(loss),
           static_cast<W*>(share));
  });
}

cudaError_t launch_cross_entropy_backward(const CrossEntropyInputs& inputs, const void* kept,
                                          const void* share, const void* gradient,
                                          void* logits_gradient, int64_t gradient_stride,
                                          cudaStream_t stream) {
  return with_type(inputs.format, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    with_layout<T>(inputs, logits_gradient, gradient_stride, [&](auto pack, auto width) {
      constexpr int N = decltype(pack)::value, kWidth = decltype(width)::value;
      launch(row_gradients<T, N, kWidth>, {blocks_for<kWidth>(inputs.rows), kThreads, 0, stream},
             inputs, static_cast<const W*>(kept), static_cast<const W*>(share),
             static_cast<const W*>(gradient), static_cast<T*>(logits_gradient), gradient_stride);
    });
  });
}

}  // namespace brim::cuda
