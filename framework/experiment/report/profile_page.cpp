#include "framework/experiment/report/profile_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "framework/base/units.h"
#include "framework/experiment/profile/roofline.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/page.h"
#include "framework/experiment/report/roofline_plot.h"
#include "framework/experiment/report/treemap.h"

namespace brim::experiment {
namespace {

using telemetry::StepProfile;

constexpr double kShownPercent = 0.05;  // of the step
constexpr size_t kShownOperators = 25, kShownModules = 40, kShownForms = 100;

std::string profile_tile(const std::string& value, const std::string& name) {
  return fmt::format(R"(<div class="tile"><b>{}</b><span>{}</span></div>)", escape_html(value),
                     escape_html(name));
}

std::string profile_tiles(const StepProfile& profile) {
  std::string html = profile_tile(in_ms(profile.wall_s) + " ms", "a step");
  double flops = 0;
  for (const auto& calls : profile.operators) flops += calls.flops;
  html += profile_tile(format_number(1e-9 * flops), "GFLOP a step");
  if (profile.wall_s > 0)
    html += profile_tile(format_number(1e-9 * flops / profile.wall_s), "GFLOP/s over the step");
  for (const auto& [dtype, peak] : profile.peaks.flops_per_s) {
    html += profile_tile(format_number(1e-9 * peak), "GFLOP/s of large products, " + dtype);
  }
  html += profile_tile(format_number(1e-9 * profile.peaks.bytes_per_s), "GB/s of a large copy");
  return R"(<div class="tiles">)" + html + "</div>";
}

/// "transformer." where the names of all modules begin so, of which there are several.
std::string common_prefix(const std::vector<WorkRow>& modules) {
  std::string prefix;
  for (const WorkRow& row : modules) {
    if (row.name == "loss" || row.name == "input") continue;
    const std::string first = row.name.substr(0, row.name.find('.') + 1);
    if (first.empty() || (!prefix.empty() && prefix != first)) return "";
    prefix = first;
  }
  return prefix;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// "layer1.0" of "layer1.0.conv1", "conv1" of "conv1": up to the first number or the first dot.
std::string group_of(const std::string& module) {
  const size_t end = module.find('.');
  if (end == std::string::npos) return module;
  const size_t next = std::min(module.find('.', end + 1), module.size());
  return module.substr(0, is_number(module.substr(end + 1, next - end - 1)) ? next : end);
}

/// What fits into an area: not "3", but "layers.3".
std::string short_name(const std::string& module, const std::string& prefix) {
  if (prefix.empty() || !module.starts_with(prefix)) return module;
  const std::string rest = module.substr(prefix.size());
  return is_number(rest.substr(0, rest.find('.'))) ? module : rest;
}

std::string module_treemap(const StepProfile& profile) {
  std::vector<TreemapPart> parts;
  const auto share = [&](double seconds) {
    return fmt::format("{} ms, {:.1f} % of the step", in_ms(seconds),
                       percent_of(seconds, profile.wall_s));
  };
  const std::vector<WorkRow> modules = by_module(profile);
  const std::string prefix = common_prefix(modules);
  for (const WorkRow& row : modules) {
    const std::string name = short_name(row.name, prefix);
    parts.push_back({.group = group_of(name),
                     .name = name,
                     .value = row.work.self_s,
                     .details = fmt::format("{} (forward {}, backward {}), bound by {}",
                                            share(row.work.self_s), in_ms(row.forward_s),
                                            in_ms(row.backward_s), bound_name(row.work.bound()))});
  }
  for (const WorkRow& row : by_operator(profile)) {
    if (row.forward_s > 0 || row.backward_s > 0) continue;
    parts.push_back(
        {row.phase, row.phase + ": " + row.name, row.work.self_s, share(row.work.self_s)});
  }
  for (const Rest& rest : rest_of(profile)) {
    parts.push_back({"rest", rest.name, rest.seconds, share(rest.seconds)});
  }
  const std::string drawing = draw_treemap(std::move(parts));
  if (drawing.empty()) return "";
  return R"(<section class="card"><div class="caption"><h2>Where a step's time goes, by module</h2></div>)" +
         drawing +
         R"(<p class="note">An area is a share of the wall time; parts of a block have one colour. )"
         R"(What no module claims has its own: data, optimizer, the time between operators.</p></section>)";
}

std::string work_cells(const Work& work, double wall_s) {
  return fmt::format(
      R"(<td class="n">{:.1f}</td><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td>)"
      R"(<td class="n">{}</td><td class="n">{}</td><td class="n">{}</td>)",
      percent_of(work.self_s, wall_s), in_ms(work.self_s), format_number(work.calls),
      giga_per_s(work.flops, work.self_s), giga_per_s(work.bytes, work.self_s),
      work.flops > 0 || work.bytes > 0 ? fmt::format("{:.0f}", 100 * work.efficiency()) : "–",
      bound_name(work.bound()));
}

constexpr const char* kWorkHeads =
    R"(<th class="n">%</th><th class="n">ms</th><th class="n">calls</th><th class="n">GFLOP/s</th>)"
    R"(<th class="n">GB/s</th><th class="n">% of roofline</th><th class="n">bound by</th>)";

std::string profile_table(const std::string& title, const std::string& head,
                          const std::string& rows) {
  return fmt::format(
      R"(<h2>{}</h2><div class="card scroll" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>)",
      title, head, rows);
}

std::string operators_table(const StepProfile& profile) {
  std::string rows;
  const auto all = by_operator(profile);
  for (const WorkRow& row : std::span(all).first(std::min(all.size(), kShownOperators))) {
    rows +=
        fmt::format("<tr><td>{} <span class=\"soft\">{}</span></td>{}</tr>", escape_html(row.name),
                    escape_html(row.phase), work_cells(row.work, profile.wall_s));
  }
  for (const Rest& rest : rest_of(profile)) {
    if (percent_of(rest.seconds, profile.wall_s) < kShownPercent) continue;
    rows += fmt::format(
        R"(<tr><td class="soft">{}</td><td class="n">{:.1f}</td><td class="n">{}</td><td></td>)"
        R"(<td></td><td></td><td></td><td></td></tr>)",
        escape_html(rest.name), percent_of(rest.seconds, profile.wall_s), in_ms(rest.seconds));
  }
  return profile_table("Operators", std::string("<th>operator</th>") + kWorkHeads, rows);
}

std::string modules_table(const StepProfile& profile) {
  std::string rows;
  const auto all = by_module(profile);
  for (const WorkRow& row : std::span(all).first(std::min(all.size(), kShownModules))) {
    rows += fmt::format(R"(<tr><td>{}</td>{}<td class="n">{}</td><td class="n">{}</td></tr>)",
                        escape_html(row.name), work_cells(row.work, profile.wall_s),
                        in_ms(row.forward_s), in_ms(row.backward_s));
  }
  return profile_table("Modules",
                       std::string("<th>module</th>") + kWorkHeads +
                           R"(<th class="n">forward ms</th><th class="n">backward ms</th>)",
                       rows);
}

std::string forms_table(const StepProfile& profile) {
  if (profile.forms.empty()) return "";
  std::string rows;
  const auto count = std::min(profile.forms.size(), kShownForms);
  for (const telemetry::FormChoice& form : std::span(profile.forms).first(count)) {
    rows += fmt::format(
        R"(<tr><td>{}</td><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td></tr>)",
        escape_html(form.name), in_ms(form.fused_s), in_ms(form.plain_s),
        form.is_fused ? "fused" : "LibTorch's");
  }
  return profile_table(
      "Fused forms and LibTorch's",
      R"(<th>operation</th><th class="n">fused ms</th><th class="n">LibTorch ms</th>)"
      R"(<th class="n">taken</th>)",
      rows);
}

}  // namespace

std::string profile_section(const StepProfile& profile) {
  return profile_tiles(profile) + R"(<div class="stack">)" + module_treemap(profile) +
         draw_roofline(profile) + "</div>" + operators_table(profile) + modules_table(profile) +
         forms_table(profile);
}

std::string make_profile_page(const StepProfile& profile, const std::vector<std::string>& findings,
                              const std::string& made_at) {
  std::string items;
  for (const std::string& finding : findings) {
    items += fmt::format("<li>{}</li>", escape_html(finding));
  }
  const std::string advice =
      items.empty()
          ? R"(<div class="card findings fine">nothing stands out.</div>)"
          : R"(<div class="card findings"><h2>What to change</h2><ul>)" + items + "</ul></div>";
  const std::string title = escape_html(profile.recipe);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><title>{0}: profile</title>\n<style>{1}</style></head>\n<body><main>\n"
      "<header><p class=\"soft\">Brim profile</p><h1>{0}</h1><p class=\"soft\">{2} on {3} in {4}, "
      "micro-batch {5} of {6}</p>{7}</header>\n{8}\n<footer>Made {9} by trainer profile. Times are "
      "means of a step; an operator's is its own, without the operators that it calls.</footer>"
      "</main></body></html>\n",
      title, page_style(), format_plural(profile.steps, "step"), escape_html(profile.device),
      escape_html(profile.precision), profile.micro_batch, profile.global_batch, advice,
      profile_section(profile), escape_html(made_at));
}

}  // namespace brim::experiment
