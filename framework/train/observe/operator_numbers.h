// Operators and the shapes that they are called with, numbered as they are met: found again in some
// nanoseconds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/telemetry/step_profile.h"
#include "framework/train/observe/operator_traits.h"

namespace brim::train {

class OperatorNumbers {
 public:
  /// Of the operator, or of the node of a backward pass, that is called.
  size_t number_of(const at::RecordFunction& call);

  /// Stays where it is.
  const OperatorTraits& traits(size_t number) const { return traits_[number]; }
  /// As LibTorch has it.
  const std::string& full_name(size_t number) const { return full_names_[number]; }

 private:
  std::optional<size_t> by_place(const char* name) const;
  std::optional<size_t> by_name(std::string_view name) const;

  std::deque<OperatorTraits> traits_;
  std::deque<std::string> full_names_;
  std::unordered_map<const char*, size_t> by_place_;    // a schema keeps its name for good
  std::unordered_map<std::string_view, size_t> nodes_;  // names are in full_names_
};

/// Shapes of an operator's tensors, one after the other.
class ShapeNumbers {
 public:
  /// Begins with the tensors of another call.
  void clear() { current_.clear(); }
  void add(const at::Tensor& tensor);
  /// Of the tensors that were added since.
  size_t number();
  std::vector<telemetry::TensorShape> shapes(size_t number) const;

 private:
  /// dtype, number of dimensions, sizes; of each tensor.
  using Signature = std::vector<int64_t>;
  struct Hash {
    size_t operator()(const Signature& signature) const;
  };
  Signature current_;
  std::unordered_map<Signature, size_t, Hash> numbers_;
  std::vector<const Signature*> signatures_;  // by number
};

}  // namespace brim::train
