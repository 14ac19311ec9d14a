// What an operator does with its tensors, by its schema: which it writes, and how many bytes it
// moves.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <vector>

#include "framework/nn/flops.h"

namespace brim::train {

struct OperatorTraits {
  std::string name;                  // shortened where it is a node's
  bool is_node = false;              // of a backward pass, or autograd's engine around it
  nn::ProductFlops flops = nullptr;  // null: no product
  bool moves_nothing = false;        // makes a view, or memory that is not written
  bool gathers = false;              // reads no more of its first tensor than it writes
  bool takes_targets = false;        // a loss
  std::vector<bool> writes = {};     // by argument
  bool reads_what_it_writes = true;  // add_(), not copy_()
};

/// Of an operator or a node of a backward pass that is about to run.
OperatorTraits traits_of(const at::RecordFunction& call);

/// What a pass over all elements of `tensor` reads or writes; 0 where it has no memory.
int64_t bytes_of(const at::Tensor& tensor);

}  // namespace brim::train
