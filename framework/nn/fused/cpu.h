// What the CPU kernels of fused operators share: pointers into tensors, rows cut into pieces for
// the threads, and sums a channel over those pieces.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>

#include "framework/nn/fused/dtypes.h"
#include "framework/nn/fused/loops/numbers.h"
#include "framework/nn/fused/loops/rows.h"

namespace brim::nn::cpu {

using loops::Rows;
using loops::Wide;

template <class T>
const T* data(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <class T>
const T* data(const MaybeTensor& tensor) {
  return tensor && tensor->defined() ? data<T>(*tensor) : nullptr;
}
template <class T>
T* writable(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

/// f.operator()<S>() for the stored format of x: float, double or loops::BFloat16. `name` is the
/// operator's, for the error that another format is.
template <class F>
auto with_format_of(const char* name, const at::Tensor& x, const F& f) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return f.template operator()<float>();
    case at::kDouble:
      return f.template operator()<double>();
    case at::kBFloat16:
      return f.template operator()<loops::BFloat16>();
    default:
      TORCH_CHECK(false, name, ": expected float32, float64 or bfloat16, found ", x.scalar_type());
  }
}

/// The rows along the last dimension of x, which is contiguous.
inline Rows rows_of(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

/// Values that are worth a thread.
inline constexpr int64_t kGrain = 1 << 15;

/// How many of what has that many values each are worth a thread.
inline int64_t grain_of(int64_t values) { return kGrain / std::max<int64_t>(1, values) + 1; }

/// Rows of channels, cut the same way whatever the number of threads.
class Pieces {
 public:
  explicit Pieces(Rows rows)
      : all_(rows), count_(std::clamp<int64_t>(rows.count / kPieceRows, 1, kMaxPieces)) {}

  int64_t count() const { return count_; }
  Rows all() const { return all_; }

  /// f(piece, its rows, values before them), pieces on several threads.
  template <class F>
  void for_each(const F& f) const {
    const int64_t values = all_.count / count_ * all_.channels;
    at::parallel_for(0, count_, grain_of(values), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        f(i, Rows{first(i + 1) - first(i), all_.channels}, first(i) * all_.channels);
      }
    });
  }

 private:
  static constexpr int64_t kPieceRows = 128;  // the sums of fewer would be a tensor of their own
  static constexpr int64_t kMaxPieces = 64;
  int64_t first(int64_t piece) const { return all_.count * piece / count_; }

  Rows all_;
  int64_t count_;
};

/// One or more sums a channel: a set of rows of them a piece, then one set for all.
class ChannelSums {
 public:
  ChannelSums(const Pieces& pieces, int64_t sums)
      : channels_(pieces.all().channels),
        sums_(at::zeros({pieces.count(), sums, channels_}, at::kDouble)) {}

  /// Of a piece, or after add_up() of all: [C].
  double* of(int64_t sum, int64_t piece = 0) {
    return writable<double>(sums_) + (piece * sums_.size(1) + sum) * channels_;
  }
  void add_up() {
    const int64_t values = sums_.size(1) * channels_, pieces = sums_.size(0);
    double* total = of(0);
    at::parallel_for(0, values, grain_of(pieces), [&](int64_t begin, int64_t end) {
      for (int64_t piece = 1; piece < pieces; ++piece) {
        const double* part = total + piece * values;
        for (int64_t i = begin; i < end; ++i) total[i] += part[i];
      }
    });
  }

 private:
  int64_t channels_;
  at::Tensor sums_;
};

}  // namespace brim::nn::cpu
