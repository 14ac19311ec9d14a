#include "framework/nn/fused/upcast.h"

#include <atomic>

#include "framework/nn/fused/loops/isa.h"

namespace brim::nn {
namespace {

std::atomic<bool>& has_bf16_products() {
  static std::atomic<bool> has = loops::has_bf16_products();
  return has;
}

}  // namespace

bool upcasts_matmul(const at::Tensor& x, at::ScalarType type) {
  return type == at::kBFloat16 && x.is_cpu() && !has_bf16_products();
}

bool assume_bf16_products(bool are_there) { return has_bf16_products().exchange(are_there); }

at::Tensor factor(const at::Tensor& weight, const at::Tensor& x) {
  return upcasts_matmul(x, x.scalar_type()) ? weight.to(at::kFloat) : weight;
}

}  // namespace brim::nn
