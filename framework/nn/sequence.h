// A model that is a sequence of parts, each computed from what the one before it gives: its forward
// pass can be cut between any two of them, and ranks take a stage each (stage.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/nn/block.h"
#include "framework/nn/model.h"

namespace brim::nn {

/// One tensor in, one tensor out; both have the samples of a pass as dimension 0. It leaves its
/// input as it is.
struct Part {
  std::string name;
  /// The names of what it reads: modules, and parameters and buffers that lie directly in the model
  /// or in a module of which it does not read all. Two parts may read the same, as tied weights.
  std::vector<std::string> reads;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// Adds its parts in its constructor; every parameter is read by one at least.
class Sequence : public Model {
 public:
  using Model::Model;

  const std::vector<Part>& parts() const { return parts_; }
  at::Tensor forward(const at::Tensor& inputs) final;

  /// Before the parts of a pass are computed: what several of them need of the model's inputs,
  /// beside what the part before gives. Called again before the backward pass where that of another
  /// pass has come between. Of images, ranks that have later parts alone see shapes: pixels are 0.
  virtual void begin(const at::Tensor& /*inputs*/) {}
  /// Parts first … end - 1 of x, which the part before has given; the first one's x is the model's
  /// inputs.
  at::Tensor run(size_t first, size_t end, at::Tensor x) const;

 protected:
  void add_part(std::string name, std::vector<std::string> reads,
                std::function<at::Tensor(const at::Tensor&)> forward);
  /// A part that is a block of this name.
  void add_part(const std::string& name, std::shared_ptr<Block> block);

 private:
  std::vector<Part> parts_;
};

}  // namespace brim::nn
