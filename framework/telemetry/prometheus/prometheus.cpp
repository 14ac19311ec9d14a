#include "framework/telemetry/prometheus/prometheus.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr std::string_view kFile = "file:";
constexpr std::chrono::seconds kFileEvery(5);

[[noreturn]] void refuse(const std::string& text, std::string_view why) {
  throw Error(Exit::kRecipe,
              "[telemetry] prometheus = \"{}\": {}; expected \"ADDRESS:PORT\" as in "
              "\"127.0.0.1:9400\", \":PORT\", or \"file:/PATH.prom\"",
              text, why);
}

PrometheusTarget file_target(const std::string& text) {
  PrometheusTarget target{.address = {}, .file = text.substr(kFile.size())};
  if (!target.file.is_absolute()) refuse(text, "the file's path is not absolute");
  // node_exporter reads no other ones.
  if (target.file.extension() != ".prom") refuse(text, "the file's name does not end in .prom");
  return target;
}

}  // namespace

std::optional<PrometheusTarget> read_prometheus_target(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text.starts_with(kFile)) return file_target(text);
  std::string why;
  const auto address = read_address(text, why);
  if (!address) refuse(text, why);
  return PrometheusTarget{.address = *address, .file = {}};
}

Prometheus::Prometheus(PrometheusTarget target, const Labels& about,
                       const std::filesystem::path& folder)
    : target_(std::move(target)), metrics_(about) {
  if (!target_.file.empty()) {
    writer_ = std::jthread([this](const std::stop_token& stop) { write_files(stop); });
    return;
  }
  const std::string index =
      "/metrics has this run's newest metrics. A live page of it: trainer watch " +
      printable(folder.string()) + "\n";
  Address& address = target_.address;
  try {
    server_ = std::make_unique<HttpServer>(
        address.host, address.port, [this, index](const HttpRequest& request) {
          if (request.path == "/") return HttpAnswer{.body = index};
          if (request.path != "/metrics") return refusal("404 Not Found");
          return HttpAnswer{.type = kPrometheusType, .body = metrics_.text()};
        });
  } catch (const Error& error) {
    log::warning(
        "no metrics for Prometheus: {}; training continues without them. Choose another "
        "telemetry.prometheus for each run of a machine",
        error.what());
    return;
  }
  address.port = server_->port();
  log::info("metrics for Prometheus: {}/metrics", url_of(address));
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
