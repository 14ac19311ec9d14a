// How the evaluation's samples came out by class: a confusion matrix, or the hardest classes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "framework/base/units.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/report_parts.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr size_t kLargestMatrix = 25;  // classes, which a page still shows side by side
constexpr size_t kShownClasses = 20;
constexpr size_t kLongestHeading = 12;

struct Class {
  std::string name;
  int64_t samples = 0, correct = 0;
  std::map<std::string, int64_t> taken_for = {};  // samples by predicted class

  double share(int64_t count) const {
    return samples > 0 ? static_cast<double>(count) / static_cast<double>(samples) : 1;
  }
};

int64_t count_in(const json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_number_unsigned() ? found->get<int64_t>() : 0;
}

/// run.json's "classes", as far as they are what a run writes.
std::vector<Class> classes_of(const json& record) {
  std::vector<Class> classes;
  if (!record.is_object() || !record.contains("classes") || !record["classes"].is_array())
    return {};
  for (const json& entry : record["classes"]) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) return {};
    Class next{.name = entry["name"].get<std::string>(),
               .samples = count_in(entry, "samples"),
               .correct = count_in(entry, "correct")};
    if (entry.contains("taken_for") && entry["taken_for"].is_object()) {
      for (const auto& [name, count] : entry["taken_for"].items()) {
        if (count.is_number_unsigned()) next.taken_for[name] = count.get<int64_t>();
      }
    }
    classes.push_back(std::move(next));
  }
  return classes;
}

std::string heading(const std::string& name) {
  const std::string text =
      name.size() > kLongestHeading ? name.substr(0, kLongestHeading) + "…" : name;
  return fmt::format(R"(<th class="n" title="{}">{}</th>)", escape_html(name), escape_html(text));
}

/// Rows are labels, columns what the model took their samples for.
std::string matrix(const std::vector<Class>& classes) {
  std::string html = R"(<thead><tr><th>label</th>)";
  for (const Class& column : classes) html += heading(column.name);
  html += R"(<th class="n">correct</th></tr></thead><tbody>)";
  for (const Class& row : classes) {
    html += fmt::format("<tr><th>{}</th>", escape_html(row.name));
    for (const Class& column : classes) {
      const auto found = row.taken_for.find(column.name);
      const int64_t count = found == row.taken_for.end() ? 0 : found->second;
      const char* colour = &row == &column ? "--good" : "--p0";
      if (count == 0) {
        html += "<td class=\"n\"></td>";
        continue;
      }
      html += fmt::format(
          "<td class=\"n\" style=\"background:color-mix(in srgb,var({}) "
          "{:.0f}%,transparent)\">{}</td>",
          colour, 10 + 50 * std::min(1.0, row.share(count)), format_count(count));
    }
    html += fmt::format(R"(<td class="n">{:.1f} %</td></tr>)", 100 * row.share(row.correct));
  }
  return html + "</tbody>";
}

std::string hardest(std::vector<Class> classes) {
  std::ranges::stable_sort(classes, {}, [](const Class& c) { return c.share(c.correct); });
  std::string html =
      R"(<thead><tr><th>hardest of )" + format_count(std::ssize(classes)) +
      R"( classes</th><th class="n">samples</th><th class="n">correct</th></tr></thead><tbody>)";
  classes.resize(std::min(classes.size(), kShownClasses));
  for (const Class& row : classes) {
    html +=
        fmt::format(R"(<tr><td>{}</td><td class="n">{}</td><td class="n">{:.1f} %</td></tr>)",
                    escape_html(row.name), format_count(row.samples), 100 * row.share(row.correct));
  }
  return html + "</tbody>";
}

}  // namespace

std::string classes_section(const Shown& shown) {
  std::string html;
  for (size_t i = 0; i < shown.runs.size(); ++i) {
    const std::vector<Class> classes = classes_of(shown.runs[i].data.record);
    if (classes.empty()) continue;
    const bool has_matrix =
        classes.size() <= kLargestMatrix &&
        std::ranges::any_of(classes, [](const Class& c) { return !c.taken_for.empty(); });
    html += fmt::format(
        R"(<div class="card">{}<div class="scroll" tabindex="0"><table>{}</table></div>{}</div>)",
        shown.is_one() ? "" : "<h3>" + escape_html(shown.labels[i]) + "</h3>",
        has_matrix ? matrix(classes) : hardest(classes),
        has_matrix ? R"(<p class="note">Rows are labels, columns what their samples )"
                     R"(were taken for, in the run's last evaluation.</p>)"
                   : "");
  }
  return html;
}

}  // namespace brim::experiment
