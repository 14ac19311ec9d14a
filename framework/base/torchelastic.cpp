#include "framework/base/torchelastic.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"

namespace brim {
namespace {

using nlohmann::json;

constexpr int64_t kFileLimit = 1 << 20;
constexpr size_t kMessageLimit = 2000;

/// A message is a string, or an object that holds one under the same name.
std::string message_of(const json& document) {
  const json& message = document.at("message");
  return (message.is_object() ? message.at("message") : message).get<std::string>();
}

}  // namespace

void write_torchelastic_error(const std::string& message, int status) noexcept {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    const json extra = {{"py_callstack", message},
                        {"timestamp", std::to_string(std::time(nullptr))}};
    const json inner = {{"message", message}, {"extraInfo", extra}, {"errorCode", status}};
    const json document = {{"message", inner}};
    write_file(path, document.dump(-1, ' ', true, json::error_handler_t::replace));
  } catch (const std::exception&) {  // said in the header
  }
}

std::string read_torchelastic_error(const std::string& path) noexcept {
  try {
    if (!std::filesystem::is_regular_file(path)) return "";
    const json document = json::parse(read_file(path, Exit::kResource, kFileLimit));
    const std::string message = message_of(document);
    return message.substr(0, std::min(message.find("\nException raised from "), kMessageLimit));
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace brim
