#include "framework/site/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/base/user.h"
#include "framework/device/gpus/device_list.h"
#include "framework/device/memory/advice.h"

namespace brim::site {
namespace fs = std::filesystem;
namespace {

constexpr size_t kNameLength = 15;  // of a process, as the kernel keeps it

/// Follows the names of a rule's lists, those with "!" included.
class Names {
 public:
  template <class IsSo>
  void look(const std::vector<std::string>& names, IsSo is_so) {
    for (const std::string_view name : names) {
      const bool is_exception = name.starts_with('!');
      const bool is_found = is_so(name.substr(is_exception ? 1 : 0));
      is_excepted_ |= is_exception && is_found;
      has_names_ |= !is_exception;
      is_named_ |= !is_exception && is_found;
    }
  }
  bool selects() const { return !is_excepted_ && (is_named_ || !has_names_); }

 private:
  bool is_excepted_ = false, has_names_ = false, is_named_ = false;
};

bool binds(const Rule& rule, const Person& person) {
  Names names;
  names.look(rule.users, [&](std::string_view name) { return name == person.user; });
  names.look(rule.groups, [&](std::string_view name) {
    return std::ranges::find(person.groups, name) != person.groups.end();
  });
  return names.selects();
}

bool has_name(std::string_view process, std::string_view wanted) {
  return process == wanted.substr(0, kNameLength) && !process.empty();
}

/// A process of this machine but this one; on the CPU all of them are.
std::optional<int64_t> process_named(std::string_view wanted) {
  const Machine machine;
  std::error_code ignored;
  fs::directory_iterator entry(machine.path("proc"), ignored);
  for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string number = entry->path().filename().string();
    int64_t process = 0;
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), process);
    if (code != std::errc() || end != number.data() + number.size()) continue;
    const auto name = machine.line(fmt::format("proc/{}/comm", number));
    if (name && has_name(*name, wanted) && process != ::getpid()) return process;
  }
  return std::nullopt;
}

/// A process of that name with a context on the GPU.
std::optional<int64_t> process_on_gpu(std::string_view wanted, const Device& device,
                                      const Gpus& gpus) {
  for (const auto& gpu : gpus) {
    if (gpu.index != device.index || !gpu.processes) continue;
    for (const auto& process : *gpu.processes) {
      if (has_name(process.name, wanted) && process.pid != ::getpid()) return process.pid;
    }
  }
  return std::nullopt;
}

/// What is there of a rule's yields_to.
std::string present(const std::string& wanted, const Devices& devices, const Gpus& gpus) {
  if (wanted.starts_with('/')) {
    std::error_code ignored;
    return fs::exists(wanted, ignored) ? wanted + " is there" : "";
  }
  for (const Device& device : devices) {
    const auto process =
        device.is_cpu() ? process_named(wanted) : process_on_gpu(wanted, device, gpus);
    if (!process) continue;
    return fmt::format("{} (process {}) is on {}", wanted, *process, device.shown());
  }
  return "";
}

}  // namespace

Person current_person() { return {.user = user_name(::geteuid()), .groups = group_names()}; }

Limits::Limits(Site site, Person person) : site_(std::move(site)), person_(std::move(person)) {
  for (const Rule& rule : site_.rules) {
    if (binds(rule, person_)) rules_.push_back(rule);
  }
}

bool Limits::is_about(const Rule& rule, const Devices& devices) {
  return std::ranges::any_of(devices, [&](const Device& device) {
    Names names;
    names.look(rule.devices, [&](std::string_view name) { return device.is_named(name); });
    return names.selects();
  });
}

std::string Limits::forbids(const Device& device) const {
  for (const Rule& rule : rules_) {
    if (rule.at_most > 0 || !is_about(rule, {device})) continue;
    return fmt::format("{}: {} may not use {}; {}", site_.cite(rule, "at_most"), person_.user,
                       device.shown(), ask());
  }
  return "";
}

void Limits::require(const Devices& wanted, const Devices& held,
                     const std::string& says_held) const {
  for (const Device& device : wanted) {
    if (const std::string why = forbids(device); !why.empty()) throw Error(Exit::kResource, why);
  }
  for (const Rule& rule : rules_) {
    Devices counted;
    for (const Device& device : held) {
      if (is_about(rule, {device})) counted.push_back(device);
    }
    const auto count = static_cast<int64_t>(count_distinct(counted));
    if (count <= rule.at_most || !is_about(rule, wanted)) continue;
    throw Error(Exit::kResource,
                "{} gives {} at most {} at once{}: this run would make it {}{}. {}, or {}",
                site_.cite(rule, "at_most"), person_.user, format_plural(rule.at_most, "device"),
                rule.devices.empty() ? "" : " of those that it is about", count,
                says_held.empty() ? "" : "; held already: " + says_held,
                says_held.empty() ? "Take fewer" : "Wait or end one", ask());
  }
}

std::string Limits::quiet(const Devices& devices, const std::tm& local) const {
  const Rule* longest = nullptr;
  for (const Rule& rule : rules_) {
    if (!rule.quiet || !rule.quiet->contains(local) || !is_about(rule, devices)) continue;
    const bool is_longer =
        longest == nullptr || rule.quiet->seconds_left(local) > longest->quiet->seconds_left(local);
    if (is_longer) longest = &rule;
  }
  if (longest == nullptr) return "";
  return fmt::format("{}: quiet hours {}; training may continue at {}, in {}",
                     site_.cite(*longest, "quiet_hours"), longest->quiet_hours,
                     longest->quiet->end(), format_duration(longest->quiet->seconds_left(local)));
}

std::string Limits::yields(const Devices& devices, const Gpus& gpus) const {
  for (const Rule& rule : rules_) {
    if (!is_about(rule, devices)) continue;
    Devices own;
    for (const Device& device : devices) {
      if (is_about(rule, {device})) own.push_back(device);
    }
    for (const std::string& wanted : rule.yields_to) {
      const std::string there = present(wanted, own, gpus);
      if (!there.empty()) return fmt::format("{}: {}", site_.cite(rule, "yields_to"), there);
    }
  }
  return "";
}

bool Limits::has_quiet_hours() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) { return rule.quiet.has_value(); });
}

bool Limits::has_yields(const Devices& devices) const {
  return std::ranges::any_of(
      rules_, [&](const Rule& rule) { return !rule.yields_to.empty() && is_about(rule, devices); });
}

std::optional<Bound> Limits::least(double Rule::*limit, std::string_view key,
                                   const Devices& devices) const {
  const Rule* strictest = nullptr;
  for (const Rule& rule : rules_) {
    if (!is_about(rule, devices) || rule.*limit == Rule::kNone) continue;
    if (strictest == nullptr || rule.*limit < strictest->*limit) strictest = &rule;
  }
  if (strictest == nullptr) return std::nullopt;
  return Bound{strictest->*limit, site_.cite(*strictest, key)};
}

void Limits::bound_idle(device::DeviceConfig& config, const Devices& devices) const {
  for (const Rule& rule : rules_) {
    if (!is_about(rule, devices)) continue;
    config.idle_utilisation = std::min(config.idle_utilisation, rule.idle_utilisation);
    config.idle_free_memory = std::max(config.idle_free_memory, rule.idle_free_memory);
  }
}

void Limits::bound_memory(device::DeviceConfig& config, const Devices& devices) const {
  const auto memory = least(&Rule::memory_gib, "memory_gib", devices);
  if (!memory) return;
  if (config.memory_gib > memory->value) {
    throw Error(Exit::kResource,
                "device.memory_gib = {} is more than {} gives: {}. Lower it, or {}",
                config.memory_gib, memory->rule, memory->value, ask());
  }
  config.max_memory_gib = memory->value;
  const bool may_ask_for_more = config.memory_gib > 0 && config.memory_gib < memory->value;
  if (may_ask_for_more) return;
  device::set_memory_rule(fmt::format("{} for more: {} gives a job at most {} GiB of a device",
                                      ask(), memory->rule, memory->value));
}

std::string Limits::keep_off(device::Census& census, bool is_training) const {
  std::string yielding;
  for (auto& gpu : census.gpus) {
    for (const auto& visible : device::visible_gpus({gpu}, nullptr)) {
      const Device device = device_of(visible);
      std::string why = forbids(device);
      if (why.empty() && is_training) {
        why = yields({device}, census.gpus);
        if (!why.empty()) yielding = why;
      }
      if (gpu.trouble.empty()) gpu.trouble = why;
    }
  }
  return yielding;
}

const Limits& limits() {
  static const Limits kLimits = [] {
    Site site = read_site();
    return site.file.empty() ? Limits() : Limits(std::move(site), current_person());
  }();
  return kLimits;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace brim::site
