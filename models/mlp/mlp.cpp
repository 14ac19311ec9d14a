#include "models/mlp/mlp.h"

#include <limits>

#include "framework/base/error.h"
#include "framework/nn/linear.h"
#include "framework/nn/sequence.h"

namespace brim::models::mlp {
namespace {

class Layers : public torch::nn::Module {
 public:
  nn::Linear add(int64_t inputs, int64_t outputs) {
    return register_module(std::to_string(children().size()), nn::Linear(inputs, outputs));
  }
};

class Mlp : public nn::Sequence {
 public:
  Mlp(const MlpConfig& config, int64_t inputs, int64_t classes) : dropout_(config.dropout) {
    const auto layers = register_module("layers", std::make_shared<Layers>());
    for (int64_t i = 0; i <= config.depth; ++i) {
      const bool is_hidden = i < config.depth;
      nn::Linear layer = layers->add(inputs, is_hidden ? config.hidden : classes);
      inputs = config.hidden;
      const std::string name = "layers." + std::to_string(i);
      add_part(name, {name}, [this, layer, is_first = i == 0, is_hidden](const at::Tensor& given) {
        const at::Tensor y = layer.ptr()->forward(is_first ? given.flatten(1) : given);
        return is_hidden ? activated(y) : y;
      });
    }
  }

 private:
  at::Tensor activated(const at::Tensor& x) const {
    x.relu_();
    return dropout_ > 0 ? at::dropout(x, dropout_, is_training()) : x;
  }

  double dropout_;
};

}  // namespace

void MlpConfig::fields(recipe::Fields& f) {
  f.value("hidden", hidden, "width of each hidden layer", recipe::between(1, 65536));
  f.value("depth", depth, "number of hidden layers; 0 is a linear classifier",
          recipe::between(0, 256));
  f.value("dropout", dropout, "probability of dropping an output of a hidden layer",
          recipe::between_open_high(0, 1));
}

std::shared_ptr<nn::Model> MlpConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape("mlp", shape, 1);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  int64_t inputs = 0;
  if (__builtin_mul_overflow(shape.channels, shape.height, &inputs) ||
      __builtin_mul_overflow(inputs, shape.width, &inputs) || inputs > kMax) {
    throw Error(Exit::kRecipe, "model mlp takes at most {} values per image; the data has {}x{}x{}",
                kMax, shape.channels, shape.height, shape.width);
  }
  return std::make_shared<Mlp>(*this, inputs, shape.classes);
}

}  // namespace brim::models::mlp
