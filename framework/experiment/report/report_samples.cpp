// What a model made of single samples: the worst mistakes of the last evaluation and some samples
// at random, texts, and the run's log. Images lie in the run's folder; what run.json says of them
// is checked like anything else from a file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/units.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/report_parts.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr size_t kShownSamples = 24;             // of a kind
constexpr int64_t kLargestImageBytes = 1 << 17;  // a run's own have half as many
constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

struct ShownSample {
  std::string image;  // a PNG file
  std::string name, label, prediction;
  double confidence = 0;
};

/// "samples/worst-01.png": a name without any way out of the run's folder.
bool is_sample_file(std::string_view name) {
  constexpr std::string_view kFolder = "samples/";
  if (!name.starts_with(kFolder) || !name.ends_with(".png")) return false;
  name.remove_prefix(kFolder.size());
  return std::ranges::all_of(name.substr(0, name.size() - 4), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

/// Empty where there is none. A link may lead out of the folder: a run has none there.
std::string png_of(const std::filesystem::path& folder, const std::string& file) {
  if (!is_sample_file(file)) return "";
  try {
    if (is_symlink(folder / "samples") || is_symlink(folder / file)) return "";
    std::string bytes = read_file(folder / file, Exit::kData, kLargestImageBytes);
    return bytes.starts_with(kPngSignature) ? bytes : "";
  } catch (const std::exception&) {
    return "";
  }
}

std::string word_in(const json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

/// run.json's "sample_predictions"/`kind`, as far as they are what a run writes and have an image.
std::vector<ShownSample> samples_of(const RunData& run, const char* kind) {
  std::vector<ShownSample> samples;
  const auto all = run.record.find("sample_predictions");
  if (all == run.record.end() || !all->is_object()) return samples;
  const auto list = all->find(kind);
  if (list == all->end() || !list->is_array()) return samples;
  for (const json& entry : *list) {
    if (samples.size() == kShownSamples) break;
    if (!entry.is_object()) continue;
    ShownSample sample = {.image = png_of(run.folder, word_in(entry, "file")),
                          .name = word_in(entry, "sample"),
                          .label = word_in(entry, "label"),
                          .prediction = word_in(entry, "prediction")};
    const auto confidence = entry.find("confidence");
    if (confidence != entry.end() && confidence->is_number()) {
      sample.confidence = std::clamp(confidence->get<double>(), 0.0, 1.0);
    }
    if (!sample.image.empty()) samples.push_back(std::move(sample));
  }
  return samples;
}

std::string sample_html(const ShownSample& sample) {
  const bool is_right = sample.label == sample.prediction;
  const std::string label = escape_html(sample.label), guess = escape_html(sample.prediction);
  const std::string percent = fmt::format("{:.0f} %", 100 * sample.confidence);
  return fmt::format(
      R"(<li title="{}"><img src="data:image/png;base64,{}" alt="image labelled {}, predicted {} )"
      R"(with {} confidence"><span class="{}">{} {}</span><span class="soft">{}</span>)"
      R"(<span class="soft">label {}</span></li>)",
      escape_html(sample.name), base64(sample.image), label, guess, percent,
      is_right ? "right" : "wrong", is_right ? "✓" : "✗", guess, percent, label);
}

std::string card(const char* title, const std::string& note,
                 const std::vector<ShownSample>& samples) {
  std::string items;
  for (const ShownSample& sample : samples) items += sample_html(sample);
  return fmt::format(R"(<div class="card"><h3>{}</h3>{}<p class="note">{}</p></div>)", title,
                     items.empty() ? "" : R"(<ul class="samples">)" + items + "</ul>", note);
}

}  // namespace

std::string texts_section(const Shown& shown) {
  if (!shown.is_one()) return "";
  std::string html;
  const auto& texts = shown.runs[0].data.texts;
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) {  // the newest first
    html += fmt::format(R"(<div class="card"><h3>Step {}</h3><pre>{}</pre></div>)",
                        format_count(text->step), escape_html(text->text));
  }
  return html.empty() ? "" : R"(<div class="stack">)" + html + "</div>";
}

std::string log_section(const Shown& shown) {
  if (!shown.is_one() || shown.runs[0].log.empty()) return "";
  return fmt::format(R"(<div class="card"><pre class="log" tabindex="0">{}</pre></div>)",
                     escape_html(shown.runs[0].log));
}

std::string samples_section(const Shown& shown) {
  if (!shown.is_one()) return "";
  const RunData& run = shown.runs[0].data;
  const std::vector<ShownSample> worst = samples_of(run, "worst");
  const std::vector<ShownSample> random = samples_of(run, "random");
  if (worst.empty() && random.empty()) return "";
  return R"(<div class="stack">)" +
         card("Worst mistakes",
              worst.empty() ? "None: every sample was predicted as it is labelled."
                            : "Mistakes of the last evaluation with the highest loss, highest "
                              "first. Look for wrong labels here.",
              worst) +
         card("At random", "The same samples after every evaluation of this data set.", random) +
         "</div>";
}

}  // namespace brim::experiment
