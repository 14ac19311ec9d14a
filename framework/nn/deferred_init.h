// A model built without memory for its large tensors, whose values are computed later, one by one:
// of a model that is split, a rank needs only a part. The operators that make a tensor's values are
// kept and run when they are asked for (deferred initialisation, as in torchdistX). Values are
// those of a model that is built whole, to the bit.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/nn/fake_tensors.h"

namespace brim::nn {

/// Belongs to one thread, on the CPU. Small tensors (kLargeTensorBytes) have memory at once.
class DeferredInit : private OperatorHandler {
 public:
  DeferredInit() = default;
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

  /// Calls work(), of whose large tensors only shapes are known. Random numbers are drawn as ever:
  /// the generator ends where it would, and no more memory is taken than the largest tensor's.
  void record(const std::function<void()>& work);
  /// False where values would be missing or wrong: work() has read some, or written them behind
  /// LibTorch's back, or keeps large tensors beside `kept`, which are to be filled.
  bool is_exact(const std::map<std::string, at::Tensor>& kept) const;

  /// Gives the tensor memory and values. No random number generator has changed then. Any other
  /// tensor stays as it is.
  void fill(at::Tensor& tensor);
  /// The same where `rows` of its rows, from the first-th on, are all that is asked for. Of a copy,
  /// such as that of a file's tensor, only these and row 0 are read: false then, and what is in the
  /// others' place is of no use.
  bool fill_rows(at::Tensor& tensor, int64_t first, int64_t rows);

 private:
  using Storages = std::set<c10::StorageImpl*>;
  /// An operator that was not run.
  struct Step {
    c10::OperatorHandle op;
    torch::jit::Stack arguments = {};
    std::vector<at::Tensor> results = {};  // of its own; none where it writes to arguments
    Storages reads = {}, writes = {};
    std::optional<at::Generator> generator = {};  // as it was before, where it draws numbers
  };
  struct Memory;

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
           torch::jit::Stack& stack) override;
  bool is_deferred(const at::Tensor& tensor) const;
  bool is_kept_elsewhere(const std::map<std::string, at::Tensor>& kept) const;
  bool has_deferred(const torch::jit::Stack& arguments) const;
  void run_now(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  /// It has no tensors among its arguments.
  void make(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  void defer_write(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void defer_results(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  Step step_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  std::vector<const Step*> steps_for(c10::StorageImpl* target, Storages& needed) const;

  std::map<const c10::StorageImpl*, c10::Storage> deferred_;
  std::vector<Step> steps_;
  bool is_exact_ = true;
};

}  // namespace brim::nn
