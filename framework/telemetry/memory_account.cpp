#include "framework/telemetry/memory_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr size_t kNamedModules = 3;  // in a sentence
constexpr size_t kLongestName = 256;

}  // namespace

int64_t MemoryAccount::activations_bytes() const {
  const int64_t known =
      parameters_bytes + gradients_bytes + optimizer_bytes + ema_bytes + checkpoint_bytes;
  return std::max<int64_t>(0, peak_bytes - known);
}

std::string MemoryAccount::state_text() const {
  std::string text =
      fmt::format("parameters {}, gradients {}, optimizer {}", format_bytes(parameters_bytes),
                  format_bytes(gradients_bytes), format_bytes(optimizer_bytes));
  if (ema_bytes > 0) text += fmt::format(", moving average {}", format_bytes(ema_bytes));
  if (checkpoint_bytes > 0) {
    text += fmt::format(", a checkpoint's copy {}", format_bytes(checkpoint_bytes));
  }
  return text;
}

std::string MemoryAccount::text() const {
  if (parameters_bytes == 0) {
    return fmt::format("the model itself did not fit, tensors had {} by then; the job may take {}",
                       format_bytes(peak_bytes), format_bytes(limit_bytes));
  }
  std::string text = state_text();
  text += fmt::format(", activations and workspace {}", format_bytes(activations_bytes()));
  std::string most;
  for (const auto& [module, bytes] :
       std::span(modules).first(std::min(modules.size(), kNamedModules))) {
    most += fmt::format("{}{} {}", most.empty() ? "" : ", ", module, format_bytes(bytes));
  }
  if (!most.empty()) {
    text += fmt::format(" (with gradients {}, most in {})",
                        format_bytes(gradients_bytes + activations_bytes()), most);
  }
  if (outside_bytes > 0) text += fmt::format(", beside tensors {}", format_bytes(outside_bytes));
  return text + fmt::format("; the job may take {}", format_bytes(limit_bytes));
}

std::string MemoryAccount::table() const {
  std::string result = "memory: " + text() + "\n";
  for (const auto& [module, bytes] : modules) {
    result += fmt::format("{:>12}  {}\n", format_bytes(bytes), module);
  }
  return result;
}

nlohmann::json to_json(const MemoryAccount& account) {
  nlohmann::json modules = nlohmann::json::array();
  for (const auto& [module, bytes] : account.modules) {
    modules.push_back({{"module", module}, {"bytes", bytes}});
  }
  nlohmann::json json = {{"parameters_bytes", account.parameters_bytes},
                         {"gradients_bytes", account.gradients_bytes},
                         {"optimizer_bytes", account.optimizer_bytes},
                         {"ema_bytes", account.ema_bytes},
                         {"checkpoint_bytes", account.checkpoint_bytes},
                         {"activations_bytes", account.activations_bytes()},
                         {"peak_bytes", account.peak_bytes},
                         {"outside_bytes", account.outside_bytes},
                         {"limit_bytes", account.limit_bytes},
                         {"modules", std::move(modules)}};
  if (!account.stage_peak_bytes.empty()) json["stage_peak_bytes"] = account.stage_peak_bytes;
  return json;
}

std::optional<MemoryAccount> read_memory_account(const nlohmann::json& json) {
  MemoryAccount account;
  const std::pair<const char*, int64_t*> metrics[] = {
      {"parameters_bytes", &account.parameters_bytes},
      {"gradients_bytes", &account.gradients_bytes},
      {"optimizer_bytes", &account.optimizer_bytes},
      {"ema_bytes", &account.ema_bytes},
      {"checkpoint_bytes", &account.checkpoint_bytes},
      {"peak_bytes", &account.peak_bytes},
      {"outside_bytes", &account.outside_bytes},
      {"limit_bytes", &account.limit_bytes}};
  const auto bytes_in = [](const nlohmann::json& object, const char* name, int64_t& bytes) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number_integer()) return false;
    bytes = found->get<int64_t>();
    return bytes >= 0 && bytes <= int64_t{1} << 50;  // no machine has a pebibyte
  };
  if (!json.is_object()) return std::nullopt;
  for (const auto& [name, bytes] : metrics) {
    if (!bytes_in(json, name, *bytes)) return std::nullopt;
  }
  const auto modules = json.find("modules");
  if (modules == json.end() || !modules->is_array()) return std::nullopt;
  for (const nlohmann::json& item : *modules) {
    const auto name = item.is_object() ? item.find("module") : item.end();
    ModuleBytes part;
    if (name == item.end() || !name->is_string() || !bytes_in(item, "bytes", part.bytes)) {
      return std::nullopt;
    }
    part.module = name->get<std::string>();
    const bool is_plain = std::ranges::none_of(part.module, [](unsigned char letter) {
      return letter < ' ' || letter == 0x7f;  // nothing that steers a terminal
    });
    if (!is_plain || part.module.size() > kLongestName) return std::nullopt;
    account.modules.push_back(std::move(part));
  }
  return account;
}

}  // namespace brim::telemetry
