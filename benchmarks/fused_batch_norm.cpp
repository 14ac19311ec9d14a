// Batch norm and ReLU, forward and backward, by Brim's fused operator and by LibTorch's own, in
// turn in one process:
//
//   fused_batch_norm [ROUNDS]
//
// A line for each size and format: medians of ROUNDS (default 15) and their ratio.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "framework/device/memory.h"
#include "framework/nn/batch_norm.h"

namespace brim {
namespace {

double seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

struct Work {
  nn::BatchNorm2d norm;
  at::Tensor x, residual, gradient;

  /// Seconds of one forward and backward pass.
  double run(bool fused) {
    nn::use_fused(*norm, fused);
    const double start = seconds();
    const at::Tensor y =
        residual.defined() ? norm->forward_add_relu(x, residual) : norm->forward_relu(x);
    y.backward(gradient);
    const double taken = seconds() - start;
    x.mutable_grad() = at::Tensor();
    if (residual.defined()) residual.mutable_grad() = at::Tensor();
    norm->zero_grad();
    return taken;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(at::IntArrayRef sizes, at::ScalarType type, bool has_residual, int rounds) {
  const auto images = [&] {
    return at::randn(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast);
  };
  Work work = {nn::BatchNorm2d(sizes[1]), images().requires_grad_(),
               has_residual ? images().requires_grad_() : at::Tensor(), images()};
  std::vector<double> plain, fused;
  for (int i = -2; i < rounds; ++i) {  // two to warm up
    const double one = work.run(false), other = work.run(true);
    if (i < 0) continue;
    plain.push_back(one);
    fused.push_back(other);
  }
  fmt::print("[{}] {} {}: LibTorch {:.2f} ms, fused {:.2f} ms, {:.2f}×\n", fmt::join(sizes, ", "),
             c10::toString(type), has_residual ? "add, ReLU" : "ReLU", 1e3 * median(plain),
             1e3 * median(fused), median(plain) / median(fused));
}

}  // namespace
}  // namespace brim

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  const auto memory = brim::device::memory_of(c10::kCPU, {});
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{32, 64, 112, 112}, {32, 256, 56, 56}, {32, 2048, 7, 7}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const bool has_residual : {false, true}) {
        brim::measure(sizes, type, has_residual, rounds);
      }
    }
  }
  return 0;
}
