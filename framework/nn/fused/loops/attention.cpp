// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/attention.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

AttentionTable attention_table();

namespace {

constexpr int kCount = kLanes<float>;
constexpr float kLowest = -3.4e38F;

int64_t stride_of(const Scores& block) {
  return (block.columns + kScoreColumns - 1) / kScoreColumns * kScoreColumns;
}

BRIM_INLINE float largest_lane(Floats v) {
  float most = v[0];
  for (int i = 1; i < kCount; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

BRIM_INLINE Floats lanes_of(float x) { return Floats{} + x; }

/// What is kept as T: of e or, where it is rounded anyway, of 2.
template <class T>
struct Power {
  static constexpr float kUnit = 1;  // log of e
  BRIM_INLINE Floats of(Floats x) { return exp_of(x); }
};
template <>
struct Power<BFloat16> {
  static constexpr float kUnit = static_cast<float>(kLog2E);
  BRIM_INLINE Floats of(Floats x) { return coarse_exp2(x); }
};

template <class T>
void softmax(Scores block, int64_t seen, int64_t step, const float* scores, T* weights, float* sums,
             float* log_sums) {
  const int64_t stride = stride_of(block);
  for (int64_t r = 0; r < block.rows; ++r, scores += stride, weights += stride) {
    const int64_t all = seen + r * step, count = all < block.columns ? all : block.columns;
    Floats high = lanes_of(kLowest);
    for_each_vector<float>(count, [&](int64_t i, auto part) {
      high = greater(high, load(scores + i, part, kLowest));
    });
    const float top = largest_lane(high);
    Floats sum = {};
    const auto weigh = [&](int64_t i, auto part) {
      const Floats weight = Power<T>::of((load(scores + i, part, -__builtin_inff()) - top) *
                                         (block.scale * Power<T>::kUnit));
      sum += weight;
      store(weight, weights + i, Whole());
    };
    for_each_vector<float>(count, weigh);
    for (int64_t i = (count + kCount - 1) / kCount * kCount; i < stride; i += kCount) {
      store(Floats{}, weights + i, Whole());
    }
    sums[r] = sum_of_lanes<float>(sum);
    log_sums[r] = top * block.scale + __builtin_logf(sums[r]);
  }
}

template <class T>
void normalize(int64_t rows, int64_t columns, const float* products, const float* sums, T* to,
               int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, products += columns, to += stride) {
    const float factor = 1.F / sums[r];
    for_each_vector<float>(columns, [&](int64_t i, auto part) {
      store(load(products + i, part) * factor, to + i, part);
    });
  }
}

template <class T>
void dots(int64_t rows, int64_t columns, const T* a, int64_t a_stride, const T* b, int64_t b_stride,
          float* sums) {
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride) {
    Floats sum = {};
    for_each_vector<float>(
        columns, [&](int64_t i, auto part) { sum += load(a + i, part) * load(b + i, part); });
    sums[r] = sum_of_lanes<float>(sum);
  }
}

template <class T>
void gradients(Scores block, int64_t step, const float* scores, const float* of_weights,
               const float* log_sums, const float* dots, T* weights, T* of_scores) {
  const int64_t stride = stride_of(block);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t hidden = r * step < block.columns ? r * step : block.columns;
    for (int64_t i = hidden / kCount * kCount; i < stride; i += kCount) {
      const Floats weight =
          Power<T>::of((load(scores + i, Whole()) * block.scale - load(log_sums + i, Whole())) *
                       Power<T>::kUnit);
      const Floats change = load(of_weights + i, Whole()) - load(dots + i, Whole());
      store(weight, weights + i, Whole());
      store(weight * change * block.scale, of_scores + i, Whole());
    }
    const auto clear = [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) weights[i] = of_scores[i] = T{};
    };
    clear(0, hidden);
    clear(block.columns, stride);
    scores += stride, of_weights += stride, weights += stride, of_scores += stride;
  }
}

template <class T>
AttentionLoops<T> loops() {
  return {softmax<T>, normalize<T>, dots<T>, gradients<T>};
}

}  // namespace

AttentionTable attention_table() { return {loops<float>(), loops<BFloat16>()}; }

}  // namespace brim::nn::loops::BRIM_ISA
