#include "framework/nn/block.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fnmatch.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "framework/base/error.h"
#include "framework/nn/random_state.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

thread_local bool recomputing = false;

/// What autocast does on a kind of device.
struct Autocast {
  c10::DeviceType device;
  bool enabled;
  c10::ScalarType type;

  static Autocast current(c10::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device),
            at::autocast::get_autocast_dtype(device)};
  }
  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
  }
};

/// A second pass while it lives: with the first one's autocast and random numbers.
class SecondPass {
 public:
  SecondPass(const Autocast& autocast, const RandomState& random, c10::Device device)
      : outer_autocast_(Autocast::current(device.type())),
        outer_random_(device),
        outer_(std::exchange(recomputing, true)) {
    autocast.set();
    at::autocast::increment_nesting();
    random.restore();
  }
  ~SecondPass() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    outer_autocast_.set();
    outer_random_.restore();
    recomputing = outer_;
  }
  SecondPass(const SecondPass&) = delete;
  SecondPass& operator=(const SecondPass&) = delete;

 private:
  Autocast outer_autocast_;
  RandomState outer_random_;
  bool outer_;
};

/// What the first pass leaves for the second.
struct Kept : torch::CustomClassHolder {
  Kept(Block& of, c10::Device on)
      : block(&of), autocast(Autocast::current(on.type())), random(on) {}
  Block* block;
  Autocast autocast;
  RandomState random;
};

class Recompute : public Function<Recompute> {
 public:
  /// `anchor` requires a gradient, and so the result does, whatever x is.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*anchor*/, Block* block) {
    context->save_for_backward({x});
    context->saved_data["kept"] =
        c10::IValue::make_capsule(c10::make_intrusive<Kept>(*block, x.device()));
    return block->forward(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor saved = context->get_saved_variables()[0];
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const at::Tensor x = saved.detach().requires_grad_(saved.requires_grad());
    at::Tensor result;
    {
      const at::AutoGradMode with_grad(true);
      const SecondPass pass(kept->autocast, kept->random, x.device());
      result = kept->block->forward(x);
    }
    torch::autograd::backward({result}, {gradients[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool is_recomputing() { return recomputing; }

at::Tensor Block::run(const at::Tensor& x) {
  if (observer_ == nullptr) return run_unobserved(x);
  observer_->before(*this, x);
  at::Tensor y = run_unobserved(x);
  observer_->after(*this, x, y);
  return y;
}

at::Tensor Block::run_unobserved(const at::Tensor& x) {
  if (!is_recomputed_ || !is_training() || !at::GradMode::is_enabled()) return forward(x);
  const at::Tensor anchor = at::empty({0}, x.options().dtype(at::kFloat)).requires_grad_();
  return Recompute::apply(x, anchor, this);
}

std::vector<std::pair<std::string, Block*>> named_blocks(torch::nn::Module& model) {
  std::vector<std::pair<std::string, Block*>> blocks;
  for (const auto& item :
       model.named_modules(/*name_prefix=*/std::string(), /*include_self=*/false)) {
    auto* block = dynamic_cast<Block*>(item.value().get());
    if (block != nullptr) blocks.emplace_back(item.key(), block);
  }
  return blocks;
}

void recompute(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  const auto blocks = named_blocks(model);
  std::string names;
  for (const auto& [name, block] : blocks) names += (names.empty() ? "" : ", ") + name;
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (const auto& [name, block] : blocks) {
      if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      block->set_recomputed(true);
      matches = true;
    }
    if (matches) continue;
    throw Error(Exit::kRecipe, "[train] recompute: \"{}\" is no block of this model; {}", pattern,
                names.empty() ? "it has none" : "it has " + names);
  }
}

}  // namespace brim::nn
