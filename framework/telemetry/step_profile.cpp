#include "framework/telemetry/step_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace brim::telemetry {
namespace {

using nlohmann::json;

constexpr size_t kLongestProfiledName = 512;
constexpr size_t kMaxOperators = 200'000;
constexpr size_t kMaxShapes = 64;
constexpr double kMaxNumber = 1e30, kMinNumber = 1e-30;  // of anything counted or timed but 0
constexpr int64_t kMaxInteger = int64_t{1} << 50;

json phases_json(const std::array<double, kPhaseCount>& seconds) {
  json phases;
  for (int i = 0; i < kPhaseCount; ++i) {
    phases[std::string(phase_name(static_cast<Phase>(i)))] = seconds[static_cast<size_t>(i)];
  }
  return phases;
}

json operator_json(const OperatorCalls& calls) {
  json inputs = json::array();
  for (const TensorShape& input : calls.inputs) inputs.push_back({input.dtype, input.sizes});
  return {{"operator", calls.name},
          {"module", calls.module},
          {"phase", std::string(phase_name(calls.phase))},
          {"inputs", std::move(inputs)},
          {"calls", calls.calls},
          {"self_s", calls.self_s},
          {"flops", calls.flops},
          {"bytes", calls.bytes}};
}

/// Reads members of an object that may hold anything; remembers whether all were as expected.
class Members {
 public:
  explicit Members(const json& object) : object_(object), is_good_(object.is_object()) {}

  /// Neither negative nor so large or small that sums and ratios are no numbers.
  void take(const char* name, double& value) {
    const json* found = find(name);
    if (found == nullptr || !found->is_number()) return fail();
    value = found->get<double>();
    if (value != 0 && !(value >= kMinNumber && value <= kMaxNumber)) fail();
  }
  void take(const char* name, int64_t& value) {
    const json* found = find(name);
    if (found == nullptr || !found->is_number_integer()) return fail();
    value = found->get<int64_t>();
    if (value < 0 || value > kMaxInteger) fail();
  }
  void take(const char* name, bool& value) {
    const json* found = find(name);
    if (found == nullptr || !found->is_boolean()) return fail();
    value = found->get<bool>();
  }
  /// Nothing that steers a terminal.
  void take(const char* name, std::string& value) {
    const json* found = find(name);
    if (found == nullptr || !found->is_string()) return fail();
    value = found->get<std::string>();
    const bool is_plain = std::ranges::none_of(
        value, [](unsigned char letter) { return letter < ' ' || letter == 0x7f; });
    if (!is_plain || value.size() > kLongestProfiledName) fail();
  }
  void take(const char* name, std::array<double, kPhaseCount>& seconds) {
    const json* found = find(name);
    if (found == nullptr) return fail();
    Members phases(*found);
    for (int i = 0; i < kPhaseCount; ++i) {
      const std::string phase(phase_name(static_cast<Phase>(i)));
      phases.take(phase.c_str(), seconds[static_cast<size_t>(i)]);
    }
    is_good_ &= phases.is_good_;
  }
  /// The list of that name; null where there is none of at most `most` entries.
  const json* list(const char* name, size_t most) {
    const json* found = find(name);
    if (found != nullptr && found->is_array() && found->size() <= most) return found;
    fail();
    return nullptr;
  }
  const json* find(const char* name) const {
    if (!is_good_) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  void fail() { is_good_ = false; }
  bool is_good() const { return is_good_; }

 private:
  const json& object_;
  bool is_good_;
};

std::optional<TensorShape> read_shape(const json& item) {
  TensorShape shape;
  const bool is_pair = item.is_array() && item.size() == 2 && item[0].is_string() &&
                       item[1].is_array() && item[1].size() <= kMaxShapes;
  if (!is_pair) return std::nullopt;
  shape.dtype = item[0].get<std::string>();
  if (shape.dtype.size() > 16) return std::nullopt;
  for (const json& size : item[1]) {
    if (!size.is_number_integer()) return std::nullopt;
    shape.sizes.push_back(size.get<int64_t>());
    if (shape.sizes.back() < 0 || shape.sizes.back() > kMaxInteger) return std::nullopt;
  }
  return shape;
}

std::optional<OperatorCalls> read_operator(const json& item) {
  OperatorCalls calls;
  Members members(item);
  std::string phase;
  members.take("operator", calls.name);
  members.take("module", calls.module);
  members.take("phase", phase);
  members.take("calls", calls.calls);
  members.take("self_s", calls.self_s);
  members.take("flops", calls.flops);
  members.take("bytes", calls.bytes);
  const json* inputs = members.list("inputs", kMaxShapes);
  if (inputs == nullptr || !members.is_good()) return std::nullopt;
  for (const json& input : *inputs) {
    auto shape = read_shape(input);
    if (!shape) return std::nullopt;
    calls.inputs.push_back(std::move(*shape));
  }
  for (int i = 0; i < kPhaseCount; ++i) {
    if (phase_name(static_cast<Phase>(i)) != phase) continue;
    calls.phase = static_cast<Phase>(i);
    return calls;
  }
  return std::nullopt;
}

bool read_peaks(const json* json, Peaks& peaks) {
  if (json == nullptr) return false;
  Members members(*json);
  members.take("bytes_per_s", peaks.bytes_per_s);
  members.take("call_s", peaks.call_s);
  const auto* flops = members.find("flops_per_s");
  if (flops == nullptr || !flops->is_object() || flops->size() > kMaxShapes) return false;
  Members formats(*flops);
  for (const auto& [dtype, value] : flops->items())
    formats.take(dtype.c_str(), peaks.flops_per_s[dtype]);
  return members.is_good() && formats.is_good();
}

}  // namespace

std::string OperatorCalls::product_format() const {
  if (inputs.empty()) return {};
  return (name.find("depthwise") == std::string::npos ? inputs.front() : inputs.back()).dtype;
}

json to_json(const StepProfile& profile) {
  json operators = json::array();
  for (const OperatorCalls& calls : profile.operators) operators.push_back(operator_json(calls));
  json forms = json::array();
  for (const FormChoice& form : profile.forms) {
    forms.push_back({{"operation", form.name},
                     {"fused_s", form.fused_s},
                     {"plain_s", form.plain_s},
                     {"is_fused", form.is_fused}});
  }
  json flops = json::object();
  for (const auto& [dtype, value] : profile.peaks.flops_per_s) flops[dtype] = value;
  return {{"recipe", profile.recipe},
          {"device", profile.device},
          {"precision", profile.precision},
          {"fused", profile.fused},
          {"steps", profile.steps},
          {"micro_batch", profile.micro_batch},
          {"global_batch", profile.global_batch},
          {"wall_s", profile.wall_s},
          {"phases_s", phases_json(profile.phase_s)},
          {"profiler_s", phases_json(profile.profiler_s)},
          {"operators", std::move(operators)},
          {"peaks",
           {{"flops_per_s", std::move(flops)},
            {"bytes_per_s", profile.peaks.bytes_per_s},
            {"call_s", profile.peaks.call_s}}},
          {"forms", std::move(forms)}};
}

std::optional<StepProfile> read_step_profile(const json& json) {
  StepProfile profile;
  Members members(json);
  members.take("recipe", profile.recipe);
  members.take("device", profile.device);
  members.take("precision", profile.precision);
  members.take("fused", profile.fused);
  members.take("steps", profile.steps);
  members.take("micro_batch", profile.micro_batch);
  members.take("global_batch", profile.global_batch);
  members.take("wall_s", profile.wall_s);
  members.take("phases_s", profile.phase_s);
  members.take("profiler_s", profile.profiler_s);
  const auto* operators = members.list("operators", kMaxOperators);
  const auto* forms = members.list("forms", kMaxOperators);
  if (!members.is_good() || !read_peaks(members.find("peaks"), profile.peaks)) return std::nullopt;
  for (const auto& item : *operators) {
    auto calls = read_operator(item);
    if (!calls) return std::nullopt;
    profile.operators.push_back(std::move(*calls));
  }
  for (const auto& item : *forms) {
    FormChoice form;
    Members of(item);
    of.take("operation", form.name);
    of.take("fused_s", form.fused_s);
    of.take("plain_s", form.plain_s);
    of.take("is_fused", form.is_fused);
    if (!of.is_good()) return std::nullopt;
    profile.forms.push_back(std::move(form));
  }
  return profile;
}

}  // namespace brim::telemetry
