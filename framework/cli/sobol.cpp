#include "framework/cli/sobol.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_sobol_engine_draw.h>
#include <ATen/ops/_sobol_engine_initialize_state.h>
#include <ATen/ops/_sobol_engine_scramble.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/random.h"

namespace brim::cli {
namespace {

constexpr int64_t kBits = 30;  // of a coordinate, as LibTorch's operators have them
constexpr size_t kMaxKeys = 1000;
constexpr uint64_t kMatrix = 1, kShift = 2;  // streams of random bits

/// [keys, kBits] direction numbers and [keys] the shift, scrambled.
std::pair<at::Tensor, at::Tensor> scrambled(int64_t seed, int64_t keys) {
  at::Tensor state = at::zeros({keys, kBits}, at::kLong);
  at::_sobol_engine_initialize_state_(state, keys);
  at::Tensor matrix = at::zeros({keys, kBits, kBits}, at::kLong);
  at::Tensor shift = at::zeros({keys}, at::kLong);
  for (int64_t key = 0; key < keys; ++key) {
    RandomStream bits(static_cast<uint64_t>(seed), kMatrix, static_cast<uint64_t>(key));
    auto rows = matrix.accessor<int64_t, 3>()[key];
    for (int64_t row = 0; row < kBits; ++row) {
      for (int64_t column = 0; column < row; ++column) rows[row][column] = bits.next_u32() & 1U;
      rows[row][row] = 1;
    }
    RandomStream shifts(static_cast<uint64_t>(seed), kShift, static_cast<uint64_t>(key));
    shift.accessor<int64_t, 1>()[key] = shifts.next_u32() >> (32 - kBits);
  }
  at::_sobol_engine_scramble_(state, matrix, keys);
  return {state, shift};
}

}  // namespace

sweep::Points sobol_points(int64_t seed, size_t keys) {
  if (keys > kMaxKeys) {
    throw Error(Exit::kRecipe, "--search sobol: expected at most {} keys, found {}", kMaxKeys,
                keys);
  }
  const auto dimension = static_cast<int64_t>(keys);
  return [numbers = scrambled(seed, dimension), dimension, count = int64_t{0}]() mutable {
    auto& [state, now] = numbers;
    std::vector<double> point(static_cast<size_t>(dimension));
    for (int64_t i = 0; i < dimension; ++i) {  // the point that the state stands at
      point[static_cast<size_t>(i)] = static_cast<double>(now.accessor<int64_t, 1>()[i]) /
                                      static_cast<double>(int64_t{1} << kBits);
    }
    now = std::get<1>(at::_sobol_engine_draw(now, 1, state, dimension, count++, at::kDouble));
    return point;
  };
}

}  // namespace brim::cli
