#include "framework/cli/devices_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <variant>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/units.h"
#include "framework/base/user.h"
#include "framework/cli/site_defaults.h"
#include "framework/device/gpus/device_list.h"
#include "framework/site/hold.h"
#include "framework/site/limits.h"

namespace brim::cli {
namespace {

using device::GpuReading;
using nlohmann::json;

constexpr double kIdleMinutes = 60;  // where no rule says
constexpr size_t kMaxIdleBytes = size_t{1} << 20;

json json_of(const recipe::Value& value) {
  return std::visit(
      [](const auto& data) -> json {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, recipe::Array>) {
          json list = json::array();
          for (const recipe::Value& element : data) list.push_back(json_of(element));
          return list;
        } else if constexpr (std::is_same_v<Data, recipe::Table>) {
          json table = json::object();
          for (const auto& [key, entry] : data.entries) table[key] = json_of(entry);
          return table;
        } else {
          return data;
        }
      },
      value.data);
}

json rules_json() {
  const site::Limits& limits = site::limits();
  if (limits.site().file.empty()) return nullptr;
  const recipe::Value* defaults = site_defaults();
  json rules = json::object();
  const json all = json_of(limits.site().document).value("rules", json::object());
  for (const site::Rule& rule : limits.rules()) {
    rules[rule.name] = all[rule.name];
    rules[rule.name]["line"] = recipe::place_of(limits.site().document, "rules." + rule.name).line;
  }
  return {{"file", limits.site().file.string()},
          {"contact", limits.site().contact},
          {"user", limits.person().user},
          {"rules", std::move(rules)},
          {"rules_for_others", limits.site().rules.size() - limits.rules().size()},
          {"runs", site_runs().string()},
          {"defaults", defaults != nullptr ? json_of(*defaults) : json::object()}};
}

std::string iso_time(std::time_t seconds) {
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[40];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local)};
}

json held_json(const std::vector<site::Held>& holds) {
  json list = json::array();
  for (const site::Held& held : holds) {
    json words = json::array();
    for (const site::Device& device : held.devices) words.push_back(device.word);
    list.push_back({{"user", user_name(held.user)},
                    {"since", iso_time(held.since.tv_sec)},
                    {"what", held.what},
                    {"process", held.process},
                    {"devices", std::move(words)},
                    {"shown", shown(held.devices)}});
  }
  return list;
}

/// {"GPU-…": {"since": seconds of the clock, "readings": n}} of GPUs at 0 % in all readings since.
json read_idle_times(const std::filesystem::path& file) {
  try {
    json known = parse_json(read_file(file, Exit::kResource, kMaxIdleBytes), file.string(),
                            {.bytes = kMaxIdleBytes, .depth = 4});
    if (known.is_object()) return known;
  } catch (const Error&) {  // not there, or damaged
  }
  return json::object();
}

/// With the reading at hand counted.
json count_idle_times(const std::vector<GpuReading>& gpus) {
  json idle = json::object();
  const std::filesystem::path folder = cache_folder("devices");
  if (gpus.empty() || folder.empty()) return idle;
  const json before = read_idle_times(folder / "idle.json");
  const std::time_t now = std::time(nullptr);
  for (const GpuReading& gpu : gpus) {
    if (!gpu.trouble.empty() || !gpu.busy_percent || *gpu.busy_percent > 0) continue;
    const std::string word = gpu.uuid.empty() ? std::to_string(gpu.index) : gpu.uuid;
    json entry = {{"since", now}, {"readings", 0}};
    const auto found = before.find(word);
    if (found != before.end() && found->is_object() && found->contains("since") &&
        (*found)["since"].is_number_integer() && (*found)["since"].get<int64_t>() <= now &&
        found->contains("readings") && (*found)["readings"].is_number_unsigned()) {
      entry = *found;
    }
    entry["readings"] = entry["readings"].get<int64_t>() + 1;
    idle[word] = std::move(entry);
  }
  try {
    make_folder(folder);
    write_file(folder / "idle.json", idle.dump() + "\n");
  } catch (const Error&) {  // then the next reading is the first
  }
  return idle;
}

/// Who has the GPU, of Brim's runs and of all processes with a context on it.
std::vector<std::string> holders(const GpuReading& gpu, const site::Device& device,
                                 const std::vector<site::Held>& holds) {
  std::vector<std::string> all;
  std::vector<int64_t> named;
  for (const site::Held& held : holds) {
    const bool has_it = std::ranges::any_of(
        held.devices, [&](const site::Device& own) { return own.word == device.word; });
    if (!has_it) continue;
    named.push_back(held.process);
    all.push_back(
        fmt::format("{} (process {} of {})", held.what, held.process, user_name(held.user)));
  }
  for (const auto& process : gpu.processes.value_or(std::vector<device::GpuProcess>())) {
    if (std::ranges::find(named, process.pid) != named.end()) continue;
    const auto user = process_user(process.pid);
    all.push_back(fmt::format("{} (process {}{})", process.name.empty() ? "?" : process.name,
                              process.pid, user ? " of " + user_name(*user) : ""));
  }
  return all;
}

json idle_json(const std::vector<GpuReading>& gpus, const std::vector<site::Held>& holds) {
  json list = json::array();
  const json times = count_idle_times(gpus);
  for (const GpuReading& gpu : gpus) {
    const site::Device device{.word = gpu.uuid.empty() ? std::to_string(gpu.index) : gpu.uuid,
                              .index = gpu.index};
    const auto known = times.find(device.word);
    std::vector<std::string> by = holders(gpu, device, holds);
    if (known == times.end() || by.empty()) continue;
    const auto bound = site::limits().least(&site::Rule::idle_minutes, "idle_minutes", {device});
    const auto idle_s = std::time(nullptr) - (*known)["since"].get<int64_t>();
    if (static_cast<double>(idle_s) < 60 * (bound ? bound->value : kIdleMinutes)) continue;
    list.push_back({{"gpu", gpu.index},
                    {"memory_used_bytes", gpu.memory_used_bytes.value_or(0)},
                    {"idle_s", idle_s},
                    {"readings", (*known)["readings"]},
                    {"held_by", std::move(by)}});
  }
  return list;
}

std::string describe_rules(const json& site) {
  std::string text =
      fmt::format("rules  of {} for {}, which Brim's commands follow; whom to ask: {}\n",
                  site["file"].get<std::string>(), site["user"].get<std::string>(),
                  site["contact"].get<std::string>());
  for (const auto& [name, rule] : site["rules"].items()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : rule.items()) {
      if (key != "line") keys.push_back(fmt::format("{} = {}", key, value.dump()));
    }
    text += fmt::format("       {} (line {}): {}\n", name, rule["line"].get<int64_t>(),
                        fmt::join(keys, ", "));
  }
  if (const auto others = site["rules_for_others"].get<int64_t>(); others > 0) {
    text += fmt::format("       and {} for others\n", format_plural(others, "rule"));
  }
  return text;
}

}  // namespace

void add_sharing(json& record, const std::vector<GpuReading>& gpus) {
  const std::vector<site::Held> holds = site::read_holds();
  record["site"] = rules_json();
  record["held"] = held_json(holds);
  record["idle"] = idle_json(gpus, holds);
}

std::string describe_sharing(const json& record) {
  std::string text;
  if (record["site"].is_object()) text += describe_rules(record["site"]);
  for (const json& held : record["held"]) {
    text +=
        fmt::format("held   {} by {}: {}, process {}, since {}\n", held["shown"].get<std::string>(),
                    held["user"].get<std::string>(), held["what"].get<std::string>(),
                    held["process"].get<int64_t>(), held["since"].get<std::string>());
  }
  for (const json& idle : record["idle"]) {
    text +=
        fmt::format("idle   GPU {} while held: {} by {}; 0 % busy in all {} of the last {}\n",
                    idle["gpu"].get<int>(), format_bytes(idle["memory_used_bytes"].get<int64_t>()),
                    fmt::join(idle["held_by"].get<std::vector<std::string>>(), ", "),
                    format_plural(idle["readings"].get<int64_t>(), "reading"),
                    format_duration(static_cast<double>(idle["idle_s"].get<int64_t>())));
  }
  return text;
}

}  // namespace brim::cli
