#include "framework/train/observe/profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <charconv>
#include <exception>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/train/observe/kineto.h"

namespace brim::train {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::cudaStubs;

constexpr int64_t kMaxProfiledSteps = 1000;
constexpr std::string_view kTraceEnding = ".pt.trace.json";  // TensorBoard looks for it

/// The whole of `text` as a number from 1 on.
std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

ProfileSteps read_profile_steps(const std::string& text) {
  constexpr std::string_view kKey = "steps=";
  constexpr std::string_view kTo = "..";
  const std::string_view words = text;
  const size_t to = words.find(kTo);
  if (words.starts_with(kKey) && to != std::string_view::npos) {
    const auto first = number(words.substr(kKey.size(), to - kKey.size()));
    const auto last = number(words.substr(to + kTo.size()));
    if (first && last && *first <= *last && *last - *first < kMaxProfiledSteps)
      return {*first, *last};
  }
  throw Error(
      Exit::kRecipe,
      "--profile: expected steps=FIRST..LAST with 1 ≤ FIRST ≤ LAST and at most {} steps, as "
      "in steps=10..15; found '{}'",
      kMaxProfiledSteps, text);
}

Profiler::Range::Range(const std::string& name, bool for_nsight) : for_nsight_(for_nsight) {
  if (record_.isActive()) record_.before(name);
  if (for_nsight_) cudaStubs()->rangePush(name.c_str());
}

Profiler::Range::~Range() {
  if (for_nsight_) cudaStubs()->rangePop();
}

Profiler::Profiler(Timeline& timeline, c10::Device device) : timeline_(timeline), device_(device) {
  timeline_.observe(*this);
}

Profiler::~Profiler() {
  timeline_.forget(*this);
  phase_.reset();
  step_.reset();
  if (!is_recording_) return;
  try {
    kineto::disableProfiler();  // the run failed in the middle of it
  } catch (const std::exception& error) {
    log::warning("the profile could not be ended: {}", error.what());
  }
}

void Profiler::record(ProfileSteps steps, std::filesystem::path file, device::Memory& memory) {
  steps_ = steps;
  memory_ = &memory;
  file_ = std::move(file);
}

void Profiler::before(int64_t step) {
  if (steps_ && !is_recording_ && step >= steps_->first && step <= steps_->last) start();
  // TensorBoard knows steps by this name.
  step_.emplace(fmt::format("ProfilerStep#{}", step), device_.is_cuda());
}

void Profiler::after(int64_t step) {
  phase_.reset();
  step_.reset();
  if (!is_recording_) return;
  ++recorded_steps_;
  if (step >= steps_->last) write();
}

void Profiler::finish(int64_t last_step) {
  phase_.reset();
  if (!steps_) return;
  if (is_recording_) write();
  const int64_t asked = steps_->last - steps_->first + 1;
  if (recorded_steps_ == asked) return;
  log::warning(
      "--profile steps={}..{}: this run ended at step {}, so {} of these steps {} profiled",
      steps_->first, steps_->last, last_step,
      recorded_steps_ == 0 ? "none" : fmt::format("only {}", recorded_steps_),
      recorded_steps_ == 1 ? "was" : "were");
}

void Profiler::begins(Phase phase) {
  phase_.reset();
  phase_.emplace(std::string(phase_name(phase)), device_.is_cuda());
}

void Profiler::start() {
  phase_.reset();  // it began outside
  memory_->start_history();
  start_kineto(device_, /*is_trace=*/true);
  is_recording_ = true;
}

void Profiler::write() {
  write_trace();
  std::string name = file_.string();
  if (name.ends_with(kTraceEnding)) name.resize(name.size() - kTraceEnding.size());
  write_file(name + ".memory.pickle", memory_->snapshot());
}

void Profiler::write_trace() {
  is_recording_ = false;
  const std::unique_ptr<kineto::ProfilerResult> result = end_kineto(device_);
  const std::filesystem::path unfinished = file_.string() + ".tmp";
  std::error_code error;
  make_folder(file_.parent_path());
  result->save(unfinished.string());  // says nothing where it can't
  const auto bytes = std::filesystem::file_size(unfinished, error);
  if (!error && bytes > 0) std::filesystem::rename(unfinished, file_, error);
  if (error || bytes == 0) {
    std::filesystem::remove(unfinished, error);
    log::warning("{}: the profile can't be written; is the disk full?", file_.string());
    return;
  }
  log::info("profile of {} step{}: {}; open it in https://ui.perfetto.dev or TensorBoard",
            recorded_steps_, recorded_steps_ == 1 ? "" : "s", file_.string());
}

}  // namespace brim::train
