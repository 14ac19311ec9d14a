#include "framework/experiment/profile/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "framework/base/columns.h"
#include "framework/base/units.h"
#include "framework/experiment/profile/roofline.h"

namespace brim::experiment {
namespace {

using nlohmann::json;
using telemetry::StepProfile;

std::string cells_of(const Work& work, double wall_s) {
  return pad_left(fmt::format("{:.1f}", percent_of(work.self_s, wall_s)), 6) +
         pad_left(in_ms(work.self_s), 10) + pad_left(fmt::format("{:.4g}", work.calls), 8) +
         pad_left(giga_per_s(work.flops, work.self_s), 10) +
         pad_left(giga_per_s(work.bytes, work.self_s), 8) +
         pad_left(std::string(bound_name(work.bound())), 9);
}

constexpr const char* kColumns = "share%        ms   calls   GFLOP/s    GB/s   bound";

std::string operators_text(const StepProfile& profile, size_t most) {
  const std::vector<WorkRow> rows = by_operator(profile);
  std::string text =
      fmt::format("\noperators, by the time of their own, a step\n{}  operator\n", kColumns);
  for (const WorkRow& row : std::span(rows).first(std::min(most, rows.size()))) {
    text += fmt::format("{}  {} ({})\n", cells_of(row.work, profile.wall_s), row.name, row.phase);
  }
  if (rows.size() > most) {
    Work others;
    for (const WorkRow& row : std::span(rows).subspan(most)) others += row.work;
    text += fmt::format("{}  {} more\n", cells_of(others, profile.wall_s), rows.size() - most);
  }
  for (const Rest& rest : rest_of(profile)) {
    if (percent_of(rest.seconds, profile.wall_s) < 0.05) continue;
    text +=
        fmt::format("{}{}{:>35}  {}\n",
                    pad_left(fmt::format("{:.1f}", percent_of(rest.seconds, profile.wall_s)), 6),
                    pad_left(in_ms(rest.seconds), 10), "", rest.name);
  }
  return text;
}

std::string modules_text(const StepProfile& profile, size_t most) {
  const std::vector<WorkRow> rows = by_module(profile);
  std::string text = fmt::format(
      "\nmodules, forward and backward, a step\n{}   forward  backward  module\n", kColumns);
  for (const WorkRow& row : std::span(rows).first(std::min(most, rows.size()))) {
    text += fmt::format("{}{}{}  {}\n", cells_of(row.work, profile.wall_s),
                        pad_left(in_ms(row.forward_s), 10), pad_left(in_ms(row.backward_s), 10),
                        row.name);
  }
  if (rows.size() > most) text += fmt::format("and {} more; --json has all\n", rows.size() - most);
  return text;
}

std::string forms_text(const StepProfile& profile, size_t most) {
  if (profile.forms.empty()) return "";
  std::vector<telemetry::FormChoice> forms = profile.forms;
  std::ranges::stable_sort(forms, std::greater<>{}, [](const telemetry::FormChoice& form) {
    return std::abs(form.fused_s - form.plain_s);
  });
  std::string text =
      "\nfused forms and LibTorch's, measured forward and backward\n  fused ms  plain ms  taken\n";
  for (const auto& form : std::span(forms).first(std::min(most, forms.size()))) {
    text += fmt::format("{}{}  {:<6} {}\n", pad_left(in_ms(form.fused_s), 10),
                        pad_left(in_ms(form.plain_s), 10), form.is_fused ? "fused" : "plain",
                        form.name);
  }
  if (forms.size() > most)
    text += fmt::format("and {} more; --json has all\n", forms.size() - most);
  return text;
}

json work_json(const WorkRow& row, double wall_s) {
  const Work& work = row.work;
  const auto each_s = [&](double amount) { return work.self_s > 0 ? amount / work.self_s : 0; };
  return {{"self_s", work.self_s},
          {"share", wall_s > 0 ? work.self_s / wall_s : 0},
          {"calls", work.calls},
          {"flops", work.flops},
          {"bytes", work.bytes},
          {"flops_per_s", each_s(work.flops)},
          {"bytes_per_s", each_s(work.bytes)},
          {"bound", std::string(bound_name(work.bound()))},
          {"efficiency", work.efficiency()}};
}

}  // namespace

std::string describe(const StepProfile& profile, size_t most) {
  std::string text = fmt::format("{} of {} on {} in {}, micro-batch {} of {}: {} ms a step\n",
                                 format_plural(profile.steps, "step"), profile.recipe,
                                 profile.device, profile.precision, profile.micro_batch,
                                 profile.global_batch, in_ms(profile.wall_s));
  text += "peaks, measured: ";
  for (const auto& [dtype, flops] : profile.peaks.flops_per_s) {
    text += fmt::format("{} GFLOP/s in {}, ", format_number(1e-9 * flops), dtype);
  }
  text += fmt::format("{} GB/s, {} µs a call\n", format_number(1e-9 * profile.peaks.bytes_per_s),
                      format_number(1e6 * profile.peaks.call_s));
  for (int i = 0; i < kPhaseCount; ++i) {
    const double seconds = profile.phase_s[static_cast<size_t>(i)];
    if (percent_of(seconds, profile.wall_s) < 0.05) continue;
    text += fmt::format("{}{}  {}\n",
                        pad_left(fmt::format("{:.1f}", percent_of(seconds, profile.wall_s)), 6),
                        pad_left(in_ms(seconds), 10), phase_name(static_cast<Phase>(i)));
  }
  return text + operators_text(profile, most) + modules_text(profile, most) +
         forms_text(profile, most);
}

json summary_json(const StepProfile& profile) {
  json summary = to_json(profile);
  summary["by_operator"] = json::array();
  for (const WorkRow& row : by_operator(profile)) {
    json entry = work_json(row, profile.wall_s);
    entry["operator"] = row.name;
    entry["phase"] = row.phase;
    summary["by_operator"].push_back(std::move(entry));
  }
  summary["by_module"] = json::array();
  for (const WorkRow& row : by_module(profile)) {
    json entry = work_json(row, profile.wall_s);
    entry["module"] = row.name;
    entry["forward_s"] = row.forward_s;
    entry["backward_s"] = row.backward_s;
    summary["by_module"].push_back(std::move(entry));
  }
  summary["rest_s"] = json::object();
  for (const Rest& rest : rest_of(profile)) summary["rest_s"][rest.name] = rest.seconds;
  return summary;
}

}  // namespace brim::experiment
