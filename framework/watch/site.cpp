#include "framework/watch/site.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/telemetry/http/address.h"

namespace brim::watch {
namespace {

using telemetry::HttpAnswer;

constexpr size_t kMaxMade = 8;  // pages, each up to some MiB with its images
constexpr double kSweepEveryS = 1;
constexpr double kSweepRestPerWork = 20;  // making it takes at most one twentieth of a core
constexpr std::string_view kHave = "have=";

/// Without its port: "localhost:8000", "[::1]".
bool is_own_name(std::string_view host) {
  const bool is_ipv6 = host.starts_with('[');
  const size_t end = is_ipv6 ? host.find(']') : host.find(':');
  return telemetry::is_loopback(is_ipv6 ? host.substr(1, end - 1) : host.substr(0, end));
}

std::string random_word() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != std::ssize(bytes)) {
    throw Error(Exit::kResource, "no random numbers: {}", errno_text(errno));
  }
  std::string word;
  for (const unsigned char byte : bytes) word += fmt::format("{:02x}", byte);
  return word;
}

HttpAnswer page_answer(std::string body, const std::string& scripts) {
  return {.type = "text/html; charset=utf-8",
          .body = std::move(body),
          .fields = fmt::format(
              "Content-Security-Policy: default-src 'none'; script-src {}; style-src "
              "'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action "
              "'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n"
              "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
              "Cache-Control: no-store\r\n",
              scripts)};
}

}  // namespace

const experiment::Page& Site::run_page(const WatchedRun& run) {
  Made& made = made_[place_of("run", run.name)];
  if (made.changes != run.changes) made = {.page = watch::run_page(run), .changes = run.changes};
  return made.page;
}

const experiment::Page& Site::sweep_page(const std::string& name) {
  Made& made = made_[place_of("sweep", name)];
  const double begin_s = now_s();
  if (begin_s < made.due_s) return made.page;
  made.page = watch::sweep_page(folder_, name);
  made.due_s = now_s() + std::max(kSweepEveryS, kSweepRestPerWork * (now_s() - begin_s));
  return made.page;
}

/// Null where there is none.
const experiment::Page* Site::find_page(std::string_view path) {
  if (made_.size() > kMaxMade) made_.clear();
  if (path == "/" && folder_.is_run()) {
    const WatchedRun* run = folder_.find("");
    return run == nullptr ? nullptr : &run_page(*run);
  }
  folder_.refresh();
  if (path == "/") {
    table_ = folder_page(folder_);
    return &table_;
  }
  for (const std::string& name : folder_.sweeps()) {  // a copy: making the page may look for runs
    if (path == place_of("sweep", name)) return &sweep_page(std::string(name));
  }
  for (const auto& [name, run] : folder_.runs()) {
    if (path == place_of("run", name)) return &run_page(*folder_.find(name));
  }
  return nullptr;
}

HttpAnswer Site::answer(const telemetry::HttpRequest& request) {
  if (is_local_ && !is_own_name(request.host)) {
    HttpAnswer refused = telemetry::refusal("421 Misdirected Request");
    refused.body =
        "This is trainer watch on a loopback address: open it as localhost or 127.0.0.1, or start "
        "it "
        "with --listen and another address.\n";
    return refused;
  }
  try {
    const experiment::Page* page = find_page(request.path);
    if (page == nullptr) return telemetry::refusal("404 Not Found");
    if (request.query.starts_with(kHave)) {
      return page_answer(changes_of(*page, request.query.substr(kHave.size())), "'none'");
    }
    const std::string nonce = random_word();
    const bool is_first = request.path == "/";
    return page_answer(live_page(*page, nonce, is_first ? "" : "<a href=\"/\">All runs</a> · "),
                       "'nonce-" + nonce + "'");
  } catch (const Error& error) {
    HttpAnswer failed = telemetry::refusal("503 Service Unavailable");
    failed.body = std::string(error.what()) + "\n";
    return failed;
  }
}

}  // namespace brim::watch
