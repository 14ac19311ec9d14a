// The part of a sequence that one rank computes, as a model: its tensors are those that its parts
// read, under the whole model's names, and the rest of the sequence has no memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "framework/nn/sequence.h"

namespace brim::nn {

class Stage : public Model {
 public:
  /// Parts first … end - 1 of `whole`, whose other parameters lose their memory. Throws Error(kBug)
  /// where no part says that it reads one of them.
  Stage(std::shared_ptr<Sequence> whole, size_t first, size_t end);

  /// Of what the stage before gives; the first stage's x is the model's inputs.
  at::Tensor forward(const at::Tensor& x) override { return whole_->run(first_, end_, x); }
  void train(bool on = true) override;
  Sequence& whole() { return *whole_; }

 private:
  /// Registers a module, parameter or buffer of the whole under its name.
  void adopt(const std::string& name);
  void free_others();

  std::shared_ptr<Sequence> whole_;
  size_t first_, end_;
};

/// The whole model, of which `model` may be a stage.
Model& whole_of(Model& model);

/// Whether the part reads the parameter or buffer of that name.
bool reads(const Part& part, const std::string& tensor);

}  // namespace brim::nn
