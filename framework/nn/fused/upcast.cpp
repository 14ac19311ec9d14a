#include "framework/nn/fused/upcast.h"

#include <ATen/ATen.h>

#include <atomic>
#include <vector>

#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/measured_forms.h"
#include "framework/nn/without_storage.h"

namespace brim::nn {
namespace {

std::atomic<bool>& is_bf16_faster() {
  static std::atomic<bool> is = loops::has_bf16_products();
  return is;
}

}  // namespace

bool multiplies_bf16_faster() { return is_bf16_faster(); }

void choose_products(Fused when) {
  if (WithoutStorage::is_on()) return;
  is_bf16_faster() = loops::has_bf16_products();
  if (!is_bf16_faster() || when != Fused::kMeasured) return;
  constexpr int64_t kSide = 512;  // of matrices that occupy all cores for milliseconds
  constexpr int kRounds = 12;     // that other work does not disturb all of, as it may one or two
  const at::Tensor x = at::ones({kSide, kSide}, at::kBFloat16), weight = at::ones({kSide, kSide});
  is_bf16_faster() = !takes_fused(
      when,
      {.name = "bf16 products in float32",
       .batch = {x},
       .parameters = {weight},
       .is_training = true,
       .is_fused_otherwise = false,
       .rounds = kRounds,
       .is_of_model = false},
      [](const auto& in, const auto& by) -> std::vector<at::Tensor> {
        return {in[0].to(at::kFloat).mm(by[0]).to(at::kBFloat16)};
      },
      [](const auto& in, const auto& by) -> std::vector<at::Tensor> {
        return {in[0].mm(by[0].to(at::kBFloat16))};
      });
}

bool upcasts_matmul(const at::Tensor& x, at::ScalarType type) {
  return type == at::kBFloat16 && x.is_cpu() && !multiplies_bf16_faster();
}

bool assume_bf16_faster(bool is_faster) { return is_bf16_faster().exchange(is_faster); }

at::Tensor factor(const at::Tensor& weight, const at::Tensor& x) {
  return upcasts_matmul(x, x.scalar_type()) ? weight.to(at::kFloat) : weight;
}

}  // namespace brim::nn
