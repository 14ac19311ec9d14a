// Which form of an operation is taken where there are two, LibTorch's and a fused one: the faster
// one for these shapes on this machine. The first training pass over tensors of a shape takes the
// time of both forms, forward and backward, and every pass over that shape takes the faster one
// from then on, as cuDNN's benchmark mode does among its algorithms.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/nn/fused.h"

namespace brim::nn {

/// An operation that has two forms, with the tensors that it is about to be done on.
struct TwoForms {
  std::string_view name;  // with all that makes it another operation: "batch norm, add, ReLU"
  /// The first dimension of each is the samples' or rows'; some may be undefined. Of a large batch
  /// the first 16 MiB are measured, which is more than the caches of a core keep, or fewer where a
  /// pass over these takes long; on a GPU 256 MiB, over which a pass takes longer than its launch.
  at::TensorList batch;
  at::TensorList parameters;
  /// Whether the pass belongs to training. In evaluation nothing is measured: the form is
  /// training's for this shape.
  bool is_training;
  /// What is taken where there is no measurement: by Fused::kUsual, in evaluation, or where memory
  /// runs out in it.
  bool is_fused_otherwise = true;
  /// Rounds that are measured at least: more where a wrong choice would cost the whole run.
  int rounds = 0;
  /// Whether the parameters are a model's, see expect_parameters().
  bool is_of_model = true;
};

/// One of them: the result of the operation on tensors like those. It changes nothing else, such as
/// running statistics.
using Form = c10::function_ref<std::vector<at::Tensor>(const std::vector<at::Tensor>& batch,
                                                       const std::vector<at::Tensor>& parameters)>;

/// Whether to take the fused form now.
bool takes_fused(Fused when, const TwoForms& operation, Form fused, Form plain);

/// How large a model's parameters are, in bytes, from now on. In a step a CPU's caches hold less of
/// a parameter than in a loop over it: between two passes come the other parameters, all gradients,
/// and the optimizer's state. Passes are measured over copies of the operation's parameters,
/// each over the next: as many as take three times the model's memory, 16 and 32 MiB at most.
void expect_parameters(int64_t bytes);

/// Seconds that both forms take, forward and backward.
struct FormTimes {
  double fused_s, plain_s;
  /// A fused form keeps less for backward: where both are as fast as measurements can tell, it is
  /// taken.
  bool prefers_fused() const { return fused_s <= 1.02 * plain_s; }
};
/// By the operation's name, shapes, formats, copies of parameters and number of threads.
using MeasuredForms = std::map<std::string, FormTimes>;

/// What this process goes by so far.
MeasuredForms measured_forms();
/// From now on it goes by these, whatever a file says.
void remember_forms(const MeasuredForms& forms);

/// From now on measurements are shared with other processes by this file, of which one measures at
/// a time: a line each; what is damaged is skipped. It belongs to one machine and one version of
/// the kernels. Empty, or where it can't be written: each process measures for itself.
void share_measured_forms(std::filesystem::path file);

/// Whether a measurement is under way: what is allocated now is no part of a step.
bool is_measuring_forms();

}  // namespace brim::nn
