#include "framework/telemetry/prometheus/prometheus.h"

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr std::string_view kFile = "file:";
constexpr int kMaxPort = 65535;
constexpr std::chrono::seconds kFileEvery(5);

[[noreturn]] void refuse(const std::string& text, std::string_view why) {
  throw Error(Exit::kRecipe,
              "[telemetry] prometheus = \"{}\": {}; expected \"ADDRESS:PORT\" as in "
              "\"127.0.0.1:9400\", \":PORT\", or \"file:/PATH.prom\"",
              text, why);
}

PrometheusTarget file_target(const std::string& text) {
  PrometheusTarget target{.host = {}, .port = 0, .file = text.substr(kFile.size())};
  if (!target.file.is_absolute()) refuse(text, "the file's path is not absolute");
  // node_exporter reads no other ones.
  if (target.file.extension() != ".prom") refuse(text, "the file's name does not end in .prom");
  return target;
}

}  // namespace

std::optional<PrometheusTarget> read_prometheus_target(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text.starts_with(kFile)) return file_target(text);
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse(text, "there is no port");
  PrometheusTarget target{.host = text.substr(0, colon), .port = -1, .file = {}};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data() + colon + 1, end, target.port);
  if (code != std::errc() || stop != end || target.port < 0 || target.port > kMaxPort) {
    refuse(text, "the port is not a number from 0 to 65535");
  }
  std::string& host = target.host;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.empty()) refuse(text, "the address is empty");
  } else if (host.find_first_of(":[]/ ") != std::string::npos) {
    refuse(text, "the address is none (IPv6 goes in brackets)");
  }
  if (host.empty()) host = "127.0.0.1";
  return target;
}

Prometheus::Prometheus(PrometheusTarget target, const Labels& about)
    : target_(std::move(target)), metrics_(about) {
  if (!target_.file.empty()) {
    writer_ = std::jthread([this](const std::stop_token& stop) { write_files(stop); });
    return;
  }
  try {
    endpoint_ = std::make_unique<TextEndpoint>(target_.host, target_.port, "/metrics",
                                               kPrometheusType, [this] { return metrics_.text(); });
  } catch (const Error& error) {
    log::warning(
        "no metrics for Prometheus: {}; training continues without them. Choose another "
        "telemetry.prometheus for each run of a machine",
        error.what());
    return;
  }
  const bool is_ipv6 = target_.host.find(':') != std::string::npos;
  log::info("metrics for Prometheus: http://{}{}{}:{}/metrics", is_ipv6 ? "[" : "", target_.host,
            is_ipv6 ? "]" : "", endpoint_->port());
}

Prometheus::~Prometheus() {
  if (!writer_.joinable()) return;
  writer_.request_stop();
  writer_.join();
  std::error_code ignored;
  std::filesystem::remove(target_.file, ignored);
}

void Prometheus::take(const nlohmann::json& line) { metrics_.take(line, now_s()); }

void Prometheus::write_files(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      write_file(target_.file, metrics_.text());
    } catch (const Error& error) {
      log::warning("no metrics for Prometheus from here on: {}", error.what());
      return;
    }
    std::unique_lock lock(mutex_);
    wakes_.wait_for(lock, stop, kFileEvery, [] { return false; });
  }
}

}  // namespace brim::telemetry
