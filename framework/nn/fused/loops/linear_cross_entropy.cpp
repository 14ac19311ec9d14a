// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/linear_cross_entropy.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

LinearCrossEntropyTable linear_cross_entropy_table();

namespace {

constexpr int kCount = kLanes<float>;

template <class T>
void exponentials(int64_t rows, const float* logits, float* highest, float* sums, T* to,
                  int64_t stride) {
  for (int64_t t = 0; t < kBlockTokens; t += kCount) {
    Floats high = load(logits + t, Whole());
    for (int64_t r = 1; r < rows; ++r) {
      high = greater(load(logits + r * kBlockTokens + t, Whole()), high);
    }
    Floats sum = {};
    for (int64_t r = 0; r < rows; ++r) {
      const Floats value = exp_of(load(logits + r * kBlockTokens + t, Whole()) - high);
      sum += value;
      store(value, to + r * stride + t, Whole());
    }
    store(high, highest + t, Whole());
    store(sum, sums + t, Whole());
  }
}

void merge(int64_t blocks, int64_t stride, const float* sums, const float* shares, float* highest,
           float* log_sums) {
  for (int64_t t = 0; t < kBlockTokens; t += kCount) {
    Floats high = load(highest + t, Whole());
    for (int64_t b = 1; b < blocks; ++b) {
      high = greater(load(highest + b * stride + t, Whole()), high);
    }
    Floats sum = {};
    for (int64_t b = 0; b < blocks; ++b) {
      sum += load(sums + b * stride + t, Whole()) *
             exp_of(load(highest + b * stride + t, Whole()) - high);
    }
    Floats log_sum = high;
    for (int i = 0; i < kCount; ++i) log_sum[i] += __builtin_logf(sum[i]);
    const Floats factor = load(shares + t, Whole()) / sum;
    for (int64_t b = 0; b < blocks; ++b) {
      float* const of_block = highest + b * stride + t;
      store(exp_of(load(of_block, Whole()) - high) * factor, of_block, Whole());
    }
    store(log_sum, log_sums + t, Whole());
  }
}

template <class T, class To>
void scale(int64_t rows, int64_t columns, const float* factors, const T* from, int64_t stride,
           To* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    for (int64_t i = 0; i < columns; i += kCount) {
      store(load(from + i, Whole()) * load(factors + i, Whole()), to + i, Whole());
    }
  }
}

template <class T>
LinearCrossEntropyLoops<T> loops() {
  return {exponentials<T>, merge, scale<T, T>, scale<T, float>};
}

}  // namespace

LinearCrossEntropyTable linear_cross_entropy_table() { return {loops<float>(), loops<BFloat16>()}; }

}  // namespace brim::nn::loops::BRIM_ISA
