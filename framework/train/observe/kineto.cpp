#include "framework/train/observe/kineto.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdlib>
#include <set>
#include <unordered_set>

namespace brim::train {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

}  // namespace

void start_kineto(c10::Device device, bool is_trace) {
  // Built for CUDA, Kineto asks for GPUs even where none is wanted, and prints that it found none.
  if (device.is_cpu()) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  std::unordered_set<at::RecordScope> scopes = {at::RecordScope::FUNCTION,
                                                at::RecordScope::BACKWARD_FUNCTION};
  if (is_trace) scopes.insert(at::RecordScope::USER_SCOPE);
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/is_trace,
                              /*profile_memory=*/is_trace);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities, scopes);
}

std::unique_ptr<kineto::ProfilerResult> end_kineto(c10::Device device) {
  // What was launched belongs to those who launched it.
  if (device.is_cuda()) torch::profiler::impl::cudaStubs()->synchronize();
  return kineto::disableProfiler();
}

}  // namespace brim::train
