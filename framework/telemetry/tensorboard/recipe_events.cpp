#include "framework/telemetry/tensorboard/recipe_events.h"

#include <variant>

#include "framework/base/error.h"
#include "framework/recipe/document.h"
#include "framework/telemetry/tensorboard/protobuf.h"

namespace brim::telemetry {
namespace {

using namespace protobuf;

constexpr int64_t kSuccess = 1;  // Status.STATUS_SUCCESS

/// google.protobuf.Value; empty for what is none of number, word and truth value.
std::string value_message(const recipe::Value& value) {
  std::string message;
  if (const auto* truth = std::get_if<bool>(&value.data)) {
    put_int(message, 4, *truth ? 1 : 0);
  } else if (const auto* whole = std::get_if<int64_t>(&value.data)) {
    put_double(message, 2, static_cast<double>(*whole));
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    put_double(message, 2, *number);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    put_bytes(message, 3, *text);
  }
  return message;
}

/// Each leaf as an entry of SessionStartInfo.hparams, a map.
void put_hparams(std::string& out, const recipe::Value& value, const std::string& name) {
  if (const auto* table = std::get_if<recipe::Table>(&value.data)) {
    for (const auto& [key, inner] : table->entries) {
      put_hparams(out, inner, name.empty() ? std::string(key) : name + "." + std::string(key));
    }
    return;
  }
  const std::string message = value_message(value);
  if (message.empty()) return;
  std::string entry;
  put_bytes(entry, 1, name);
  put_bytes(entry, 2, message);
  put_bytes(out, 1, entry);
}

/// HParamsPluginData around one of its kinds.
std::string plugin_data(uint32_t kind, const std::string& message) {
  std::string data;
  put_int(data, 1, 0);  // version
  put_bytes(data, kind, message);
  return data;
}

}  // namespace

void add_recipe(EventFile& events, int64_t step, const std::string& recipe) {
  events.add_text("recipe", step, "```toml\n" + recipe + "\n```");
  std::string start;
  try {
    put_hparams(start, recipe::parse(recipe, "recipe.toml"), "");
  } catch (const Error&) {
    return;
  }
  put_double(start, 5, wall_time_s());
  events.add_hparams("_hparams_/session_start_info", step, plugin_data(3, start));
}

void add_recipe_end(EventFile& events, int64_t step) {
  std::string end;
  put_int(end, 1, kSuccess);
  put_double(end, 2, wall_time_s());
  events.add_hparams("_hparams_/session_end_info", step, plugin_data(4, end));
}

}  // namespace brim::telemetry
