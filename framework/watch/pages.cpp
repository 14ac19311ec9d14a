#include "framework/watch/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/doctor/report_run.h"
#include "framework/experiment/report/html.h"
#include "framework/sweep/page.h"
#include "framework/sweep/store.h"

namespace brim::watch {
namespace {

using experiment::escape_html;

constexpr size_t kMaxRows = 2000;
constexpr size_t kMaxLinks = 20;
constexpr const char* kStyle = R"css(
.sortable th, .sortable td { padding-right: 16px; }
.sortable th.n, .sortable td.n { padding: 5px 16px 5px 0; }
.sortable td:last-child { min-width: 15em; }
)css";
constexpr std::array<std::string_view, 4> kSweepFiles = {"sweep.db", "sweep.db-journal",
                                                         "sweep.db-wal", "trials"};

struct Head {
  const char* name;
  bool is_number = false;
};
constexpr Head kHeads[] = {{"run"},           {"best", true},  {"steps", true}, {"samples/s", true},
                           {"busy, %", true}, {"hours", true}, {"last line"},   {"started"},
                           {"user"},          {"host"},        {"model"},       {"verdict"}};

struct Cell {
  std::string html;
  bool is_number = false;
  std::string sorted_by = {};  // of a number; "" comes last
};

Cell text_cell(const std::string& text) { return {escape_html(text)}; }

Cell number_cell(const std::string& text, double value) {
  return {escape_html(text), true, fmt::format("{}", value)};
}

Cell number_cell(const std::optional<double>& value) {
  if (!value) return {"–", true};
  return number_cell(
      std::abs(*value) >= 1000 ? format_count(std::llround(*value)) : format_number(*value),
      *value);
}

std::string local_time(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  std::array<char, 32> text{};
  if (unix_s == 0 || ::localtime_r(&time, &parts) == nullptr) return "";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

/// In the order of kHeads.
std::vector<Cell> cells_of(const WatchedRun& run) {
  const history::PastRun& past = run.past;
  const std::string link =
      fmt::format(R"(<a href="{}">{}</a>)", place_of("run", run.name), escape_html(run.name));
  const std::string best = past.metric_name + " " + format_number(past.metric);
  std::string verdict = run.problem;
  if (verdict.empty() && !past.findings.empty()) verdict = past.findings.front().finding.message;
  return {{link},
          past.metric_name.empty() ? number_cell(std::nullopt) : number_cell(best, past.metric),
          number_cell(static_cast<double>(past.steps)),
          number_cell(past.samples_per_s),
          number_cell(past.busy_percent),
          number_cell(past.hours.total()),
          text_cell(local_time(run.versions[0].changed_ns / 1'000'000'000)),
          text_cell(past.started.substr(0, 16)),
          text_cell(past.user),
          text_cell(past.host),
          text_cell(past.model),
          text_cell(verdict)};
}

std::string row_of(const WatchedRun& run) {
  std::string html = "<tr>";
  for (const Cell& cell : cells_of(run)) {
    html += cell.is_number
                ? fmt::format(R"(<td class="n" data-sort="{}">{}</td>)", cell.sorted_by, cell.html)
                : "<td>" + cell.html + "</td>";
  }
  return html + "</tr>";
}

std::string table_of(const WatchedFolder& folder) {
  std::vector<const WatchedRun*> runs;
  for (const auto& [name, run] : folder.runs()) runs.push_back(&run);
  std::ranges::stable_sort(runs, std::greater<>{},
                           [](const auto* run) { return run->past.started_unix_s; });
  std::string heads, rows;
  for (const auto& [head, is_number] : kHeads) {
    heads += fmt::format(R"(<th{} aria-sort="none"><button type="button">{}</button></th>)",
                         is_number ? R"( class="n")" : "", head);
  }
  for (size_t i = 0; i < std::min(runs.size(), kMaxRows); ++i) rows += row_of(*runs[i]);
  const std::string note =
      runs.size() <= kMaxRows ? ""
                              : fmt::format(R"(<p class="note">The newest {} of {} runs.</p>)",
                                            format_count(kMaxRows), format_count(std::ssize(runs)));
  return fmt::format(
      R"(<section><h2>Runs</h2><div class="card scroll" tabindex="0"><table class="sortable">)"
      "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}</section>",
      heads, rows, note);
}

std::string notes_of(const std::set<std::filesystem::path>& links_outside) {
  std::string notes;
  size_t shown = 0;
  for (const auto& link : links_outside) {
    if (shown == kMaxLinks) break;
    notes += fmt::format(R"(<p class="note">{}</p>)", escape_html(describe_link_outside(link)));
    ++shown;
  }
  if (const size_t rest = links_outside.size() - shown; rest > 0) {
    notes += fmt::format(R"(<p class="note">{} more such {} left out.</p>)", rest,
                         rest == 1 ? "link is" : "links are");
  }
  return notes;
}

std::string name_of(const WatchedFolder& folder) { return folder.folder().filename().string(); }

}  // namespace

std::string place_of(std::string_view kind, std::string_view name) {
  constexpr std::string_view kPlain = "-_~/0123456789";
  std::string place = fmt::format("/{}/", kind);
  for (const char c : name) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || kPlain.find(c) != std::string_view::npos) {
      place += c;
    } else {
      place += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return place;
}

experiment::Page run_page(const WatchedRun& run) {
  if (run.reader == nullptr) throw Error(Exit::kData, run.problem);
  experiment::ReportRun shown = doctor::report_run(run.reader->data(), run.profile);
  if (!run.problem.empty()) shown.data.notices.push_back(run.problem);
  shown.log = run.log;
  std::vector<experiment::ReportRun> runs;
  runs.push_back(std::move(shown));
  return experiment::report_page(runs, "");
}

experiment::Page folder_page(const WatchedFolder& folder) {
  const std::string title = name_of(folder);
  std::string sweeps;
  for (const std::string& name : folder.sweeps()) {
    sweeps += fmt::format(R"(<p>Sweep: <a href="{}">{}</a></p>)", place_of("sweep", name),
                          escape_html(name.empty() ? title : name));
  }
  return {.title = title,
          .style = kStyle,
          .blocks = {
              {"head", fmt::format("<header><h1>{}</h1>{}</header>", escape_html(title), sweeps)},
              {"runs", table_of(folder) + notes_of(folder.links_outside())}}};
}

experiment::Page sweep_page(WatchedFolder& folder, const std::string& name) {
  const std::filesystem::path path = name.empty() ? folder.folder() : folder.folder() / name;
  folder.require_inside(path, kSweepFiles);
  sweep::Store store(path);
  std::vector<sweep::Trial> trials = store.trials();
  for (const sweep::Trial& trial : trials) {
    folder.require_inside(store.run_folder(trial), kRunFiles);
  }
  const auto find = [&](const std::filesystem::path& run) -> const experiment::RunData* {
    const WatchedRun* found = folder.find(run.lexically_relative(folder.folder()).string());
    return found == nullptr || found->reader == nullptr ? nullptr : &found->reader->data();
  };
  store.look_at_runs(trials, find);
  return sweep::sweep_page(store, trials, "",
                           [&](const std::filesystem::path& path,
                               const std::string& metric) -> std::optional<experiment::Series> {
                             const experiment::RunData* run = find(path);
                             if (run == nullptr) return std::nullopt;
                             const experiment::Series* series = run->metric(metric);
                             return series == nullptr ? std::nullopt : std::optional(*series);
                           });
}

}  // namespace brim::watch
