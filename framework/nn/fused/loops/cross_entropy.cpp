// BRIM_ISA is the name of the instruction set that this file is being compiled for.
#include "framework/nn/fused/loops/cross_entropy.h"

#include "framework/nn/fused/loops/vectors.h"

namespace brim::nn::loops::BRIM_ISA {

Table<CrossEntropyLoops> cross_entropy_table();

namespace {

constexpr int64_t kBlock = 2048;  // values, which stay in the first cache between two loops

template <class T>
Wide<T> highest_of(const T* x, int64_t count) {
  using W = Wide<T>;
  constexpr int64_t kCount = kLanes<W>;
  constexpr W kLowest = -__builtin_inf();
  Vector<T> a = Vector<T>{} + kLowest, b = a;
  int64_t i = 0;
  for (; i + 2 * kCount <= count; i += 2 * kCount) {
    a = greater(load(x + i, Whole()), a);
    b = greater(load(x + i + kCount, Whole()), b);
  }
  a = greater(a, b);
  for_each_vector<W>(count - i,
                     [&](int64_t j, auto part) { a = greater(load(x + i + j, part, kLowest), a); });
  W highest = kLowest;
  for (int lane = 0; lane < kCount; ++lane) highest = a[lane] > highest ? a[lane] : highest;
  return highest;
}

/// Σ exp(x - shift) and Σ x of a block.
template <class T>
void add_block(const T* x, int64_t count, Wide<T> shift, SoftmaxSums<T>& sums) {
  using W = Wide<T>;
  constexpr int64_t kCount = kLanes<W>;
  Vector<T> exponentials = {}, others = {}, values = {};
  int64_t i = 0;
  for (; i + 2 * kCount <= count; i += 2 * kCount) {
    __builtin_prefetch(x + i + kBlock);  // of the next block, or row: memory rests meanwhile
    const Vector<T> a = load(x + i, Whole()), b = load(x + i + kCount, Whole());
    exponentials += exp_of(a - shift);
    others += exp_of(b - shift);
    values += a + b;
  }
  exponentials += others;
  for_each_vector<W>(count - i, [&](int64_t j, auto part) {
    exponentials += exp_of(load(x + i + j, part, static_cast<W>(-__builtin_inf())) - shift);
    values += load(x + i + j, part);
  });
  sums.exponentials += static_cast<double>(sum_of_lanes<W>(exponentials));
  sums.values += static_cast<double>(sum_of_lanes<W>(values));
}

template <class T>
SoftmaxSums<T> sums(const T* x, int64_t count) {
  SoftmaxSums<T> all = {static_cast<Wide<T>>(-__builtin_inf()), 0, 0};
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t size = count - i < kBlock ? count - i : kBlock;
    const Wide<T> highest = highest_of(x + i, size);
    if (highest > all.highest) {
      all.exponentials *= __builtin_exp(static_cast<double>(all.highest) - highest);
      all.highest = highest;
    }
    // Where all so far is -infinity, exponentials are 0 about any other value.
    const Wide<T> shift = all.highest == -__builtin_inf() ? 0 : all.highest;
    add_block(x + i, size, shift, all);
  }
  return all;
}

template <class T>
void gradient(const T* x, int64_t count, Wide<T> highest, Wide<T> scale, Wide<T> offset,
              T* gradient) {
  for_each_vector<Wide<T>>(count, [&](int64_t i, auto part) {
    store(exp_of(load(x + i, part) - highest) * scale - offset, gradient + i, part);
  });
}

template <class T>
CrossEntropyLoops<T> loops() {
  return {sums<T>, gradient<T>};
}

}  // namespace

Table<CrossEntropyLoops> cross_entropy_table() {
  return {loops<float>(), loops<double>(), loops<BFloat16>()};
}

}  // namespace brim::nn::loops::BRIM_ISA
