// The tables of a report: key results, findings, recipe, environment.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/report_parts.h"
#include "framework/recipe/document.h"
#include "framework/recipe/text.h"

namespace brim::experiment {
namespace {

using nlohmann::json;
using Keys = std::map<std::string, std::string>;  // "batch.global": "64"

constexpr size_t kLongestValue = 400;

/// A value for a table.
std::string shown_value(const std::string& value) {
  std::string text = without_secrets(value);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + " …";
  return text;
}

// --- key results ---------------------------------------------------------------------------

struct Merit {
  std::string name;
  std::string text;
  std::string small = {};  // beside it, where there is room
  double value = std::numeric_limits<double>::quiet_NaN();
  int better = 0;  // 1: more is better, -1: less is
};

std::string text_in(const json& record, std::initializer_list<const char*> path) {
  const json* at = &record;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return "";
    at = &(*at)[key];
  }
  return at->is_string() ? at->get<std::string>() : at->is_number() ? at->dump() : "";
}

std::string milliseconds(double seconds) {
  return seconds < 1 ? fmt::format("{} ms", readable_number(seconds * 1e3))
                     : format_duration(seconds);
}

/// What the run's best checkpoint was chosen by comes first.
void add_evaluation(const RunData& run, std::vector<Merit>& all) {
  Merit top1{"best top1", ""}, lowest{"best loss", ""}, last{"evaluation loss", ""};
  const auto best = run.best_evaluation();
  const bool is_by_loss = best && best->metric == "loss";
  if (is_by_loss) {
    lowest = {"best loss", readable_number(best->value), "last " + readable_number(best->last),
              best->value, -1};
  } else if (best) {
    top1 = {"best top1", fmt::format("{:.2f} %", best->value),
            fmt::format("last {:.2f} %", best->last), best->value, 1};
  }
  const Series* loss = run.metric("eval_loss");
  if (loss != nullptr && !is_by_loss) {
    last = {"evaluation loss", readable_number(loss->last()),
            "lowest " + readable_number(loss->low()), loss->last(), -1};
  }
  all.insert(all.end(), {top1, lowest, last});
}

/// In the same order for every run; an empty text where it has none.
std::vector<Merit> merits(const RunData& run) {
  std::vector<Merit> all;
  add_evaluation(run, all);
  const Series* loss = run.metric("loss");
  const Series* speed = run.metric("samples_per_s");
  const Series* step = run.metric("step_s");
  const Series* peak = run.metric("memory/peak_bytes");
  all.push_back(loss == nullptr
                    ? Merit{"training loss", ""}
                    : Merit{"training loss", readable_number(loss->last()),
                            "lowest " + readable_number(loss->low()), loss->last(), -1});
  if (speed != nullptr) {
    const double usual = speed->quantiles().at(0.5);
    all.push_back({"samples/s, median", readable_number(usual),
                   "slowest 5 % under " + readable_number(speed->quantiles().at(0.05)), usual, 1});
  } else {
    all.push_back({"samples/s, median", ""});
  }
  if (step != nullptr) {
    const Quantiles& times = step->quantiles();
    all.push_back(
        {"step time, median", milliseconds(times.at(0.5)),
         fmt::format("p95 {}, p99 {}", milliseconds(times.at(0.95)), milliseconds(times.at(0.99))),
         times.at(0.5), -1});
  } else {
    all.push_back({"step time, median", ""});
  }
  const auto steps = static_cast<double>(run.steps());
  all.push_back({"steps", format_count(run.last_step()),
                 step == nullptr ? "" : "about " + format_duration(step->mean() * steps)});
  all.push_back(peak == nullptr
                    ? Merit{"peak memory", ""}
                    : Merit{"peak memory", format_bytes(static_cast<int64_t>(peak->high())), "",
                            peak->high(), -1});
  all.push_back(
      {"device", text_in(run.record, {"device"}), text_in(run.record, {"machine", "cpu"})});
  return all;
}

std::string tiles(const RunData& run) {
  std::string html = R"(<div class="tiles">)";
  for (const Merit& merit : merits(run)) {
    if (merit.text.empty()) continue;
    html += fmt::format(R"(<div class="tile"><span>{}</span><b>{}</b><small>{}</small></div>)",
                        escape_html(merit.name), escape_html(merit.text), escape_html(merit.small));
  }
  return html + "</div>";
}

/// No run is better, and one at least is worse.
bool is_best_of(const std::vector<std::vector<Merit>>& runs, size_t run, size_t column) {
  const Merit& own = runs[run][column];
  if (own.better == 0 || !std::isfinite(own.value)) return false;
  bool beats_one = false;
  for (const auto& other : runs) {
    const double lead = (own.value - other[column].value) * own.better;  // NaN: not known
    if (lead < 0) return false;
    beats_one |= lead > 0;
  }
  return beats_one;
}

std::string merits_table(const Shown& shown) {
  std::vector<std::vector<Merit>> all;
  for (const ReportRun& run : shown.runs) all.push_back(merits(run.data));
  std::string head = "<th>run</th>";
  std::vector<size_t> columns;
  for (size_t column = 0; column < all[0].size(); ++column) {
    const bool is_known = std::ranges::any_of(
        all, [&](const std::vector<Merit>& run) { return !run[column].text.empty(); });
    if (!is_known) continue;
    columns.push_back(column);
    head += fmt::format(R"(<th class="n">{}</th>)", escape_html(all[0][column].name));
  }
  std::string rows;
  for (size_t run = 0; run < all.size(); ++run) {
    rows += fmt::format(R"(<tr><td><i class="{}{}"></i> {}</td>)", Shown::colour(run),
                        Shown::is_dashed(run) ? " dashed" : "", escape_html(shown.labels[run]));
    for (const size_t column : columns) {
      const Merit& own = all[run][column];
      const bool is_best = is_best_of(all, run, column);
      rows += fmt::format(R"(<td class="n{}">{}</td>)", is_best ? " best" : "",
                          own.text.empty() ? "–" : escape_html(own.text));
    }
    rows += "</tr>";
  }
  return fmt::format(
      R"(<p></p><div class="card scroll" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>)",
      head, rows);
}

// --- recipe and environment ---------------------------------------------------------------------

std::string toml_text(const recipe::Value& value) {
  struct Visitor {
    std::string operator()(bool v) const { return recipe::value_text(v); }
    std::string operator()(int64_t v) const { return recipe::value_text(v); }
    std::string operator()(double v) const { return recipe::value_text(v); }
    std::string operator()(const std::string& v) const { return recipe::value_text(v); }
    std::string operator()(const recipe::Array& list) const {
      std::string text;
      for (const auto& element : list) text += (text.empty() ? "" : ", ") + toml_text(element);
      return "[" + text + "]";
    }
    std::string operator()(const recipe::Table&) const { return "{…}"; }
  };
  return std::visit(Visitor(), value.data);
}

void collect(const recipe::Value& value, const std::string& prefix, Keys& keys) {
  if (const auto* table = std::get_if<recipe::Table>(&value.data)) {
    for (const auto& [name, entry] : table->entries) {
      collect(entry, prefix.empty() ? name : prefix + "." + name, keys);
    }
  } else {
    keys[prefix] = shown_value(toml_text(value));
  }
}

Keys recipe_keys(const RunData& run) {
  Keys keys;
  if (run.recipe.empty()) return keys;
  try {
    collect(recipe::parse(run.recipe, "recipe.toml"), "", keys);
  } catch (const Error&) {
    return {};  // the text itself is shown all the same
  }
  return keys;
}

void collect(const json& value, const std::string& prefix, Keys& keys) {
  if (value.is_object()) {
    for (const auto& [name, entry] : value.items()) {
      if (prefix.empty() && (name.starts_with("earlier") || name == "verdict" || name == "tuning" ||
                             name == "classes" || name == "sample_predictions")) {
        continue;
      }
      collect(entry, prefix.empty() ? name : prefix + "." + name, keys);
    }
    return;
  }
  const auto plain = [](const json& entry) {
    return entry.is_string() ? entry.get<std::string>()
                             : entry.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::string text;
  if (value.is_array()) {
    for (const auto& entry : value) text += (text.empty() ? "" : " ") + plain(entry);
  } else if (prefix.ends_with("_bytes") && value.is_number_integer()) {
    text = format_bytes(value.get<int64_t>());
  } else {
    text = value.is_null() ? "none" : plain(value);
  }
  keys[prefix] = shown_value(text);
}

/// A row a key, a column a run; rows that differ are marked.
std::string keys_table(const Shown& shown, const std::vector<Keys>& runs, bool only_differences) {
  std::set<std::string> names;
  for (const Keys& run : runs) {
    for (const auto& [name, text] : run) names.insert(name);
  }
  std::string rows;
  for (const std::string& name : names) {
    std::string cells;
    bool differs = false;
    for (const Keys& run : runs) {
      const auto found = run.find(name);
      const auto first = runs[0].find(name);
      differs |= (found == run.end()) != (first == runs[0].end()) ||
                 (found != run.end() && found->second != first->second);
      cells += fmt::format("<td>{}</td>", found == run.end() ? "–" : escape_html(found->second));
    }
    if (only_differences && !differs) continue;
    rows += fmt::format("<tr{}><th>{}</th>{}</tr>",
                        differs && !only_differences ? R"( class="differs")" : "",
                        escape_html(name), cells);
  }
  if (rows.empty()) return "";
  std::string head;
  if (!shown.is_one()) {
    head = "<thead><tr><th></th>";
    for (size_t run = 0; run < shown.runs.size(); ++run) {
      head += fmt::format(R"(<th><i class="{}{}"></i> {}</th>)", Shown::colour(run),
                          Shown::is_dashed(run) ? " dashed" : "", escape_html(shown.labels[run]));
    }
    head += "</tr></thead>";
  }
  return fmt::format(
      R"(<div class="card scroll" tabindex="0"><table>{}<tbody>{}</tbody></table></div>)", head,
      rows);
}

}  // namespace

std::string summary(const Shown& shown) {
  return shown.is_one() ? tiles(shown.runs[0].data) : merits_table(shown);
}

std::string findings(const Shown& shown) {
  std::string html;
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const auto& found = shown.runs[run].findings;
    if (!found) continue;
    const std::string who = shown.is_one() ? "" : escape_html(shown.labels[run]) + ": ";
    if (found->empty()) {
      html += fmt::format(R"(<div class="card findings fine">{}nothing stands out.</div>)", who);
      continue;
    }
    html += fmt::format(R"(<div class="card findings"><h2>{}What to change</h2><ul>)", who);
    for (const std::string& finding : *found) {
      html += fmt::format("<li>{}</li>", escape_html(finding));
    }
    html += "</ul></div>";
  }
  return html;
}

std::string recipe_section(const Shown& shown) {
  std::string html;
  if (!shown.is_one()) {
    std::vector<Keys> runs;
    for (const ReportRun& run : shown.runs) runs.push_back(recipe_keys(run.data));
    const std::string table = keys_table(shown, runs, /*only_differences=*/true);
    html += table.empty() ? R"(<p class="soft">All runs have the same recipe.</p>)"
                          : R"(<p class="soft">What differs:</p>)" + table;
  }
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const std::string& text = shown.runs[run].data.recipe;
    if (text.empty()) continue;
    html += fmt::format(
        R"(<details><summary>recipe.toml of {}</summary><div class="card"><pre>{}</pre></div></details>)",
        escape_html(shown.labels[run]), escape_html(without_secrets(text)));
  }
  return html;
}

std::string environment_section(const Shown& shown) {
  std::vector<Keys> runs;
  for (const ReportRun& run : shown.runs) {
    Keys keys;
    collect(run.data.record, "", keys);
    const auto earlier = run.data.record.find("earlier");
    if (earlier != run.data.record.end() && earlier->is_array() && !earlier->empty()) {
      const auto dropped = run.data.record.value("earlier_dropped", nlohmann::json());
      keys["resumed"] =
          fmt::format("{} times", static_cast<int64_t>(earlier->size()) +
                                      (dropped.is_number_integer() ? dropped.get<int64_t>() : 0));
    }
    runs.push_back(std::move(keys));
  }
  return keys_table(shown, runs, /*only_differences=*/false);
}

}  // namespace brim::experiment
