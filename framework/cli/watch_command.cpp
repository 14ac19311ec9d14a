// trainer watch RUN|FOLDER: live pages of runs and sweeps, in a browser.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/telemetry/http/address.h"
#include "framework/telemetry/http/http_server.h"
#include "framework/watch/site.h"

namespace brim::cli {
namespace {

telemetry::Address address_option(const cxxopts::ParseResult& options) {
  const auto text = options["listen"].as<std::string>();
  std::string why;
  const auto address = telemetry::read_address(text, why);
  if (address) return *address;
  throw UsageError("--listen {}: {}; expected ADDRESS:PORT as in 127.0.0.1:8000, or :PORT", text,
                   why);
}

int watch_folder(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  const std::string folder = required_option(options, "watch", "folder");
  telemetry::Address address = address_option(options);
  const bool is_local = telemetry::is_loopback(address.host);
  watch::Site site(folder, is_local);
  std::unique_ptr<telemetry::HttpServer> server;
  try {
    server = std::make_unique<telemetry::HttpServer>(
        address.host, address.port,
        [&](const telemetry::HttpRequest& request) { return site.answer(request); });
  } catch (const Error& error) {
    throw Error(error.status(), "{}; choose another with --listen", error.what());
  }
  address.port = server->port();
  if (!is_local) {
    log::warning("{} reaches beyond this machine: whoever connects can read these runs",
                 address.host);
  }
  log::info("watching {} at {}/ until Ctrl-C", printable(folder), telemetry::url_of(address));
  while (sleep_unless_stopped(std::chrono::hours(1))) {
  }
  std::fflush(nullptr);
  std::_Exit(0);  // not held by a page that is still being made
}

}  // namespace

Command watch_command() {
  return {.name = "watch",
          .arguments = "RUN|FOLDER",
          .summary = "a live page of a run, a sweep or a folder of runs",
          .details =
              "Serves a page that follows a run while it trains, here or elsewhere on a shared "
              "folder: what trainer report shows, as it changes. Of a folder it shows a table of "
              "the runs and sweeps in it. It only reads files.",
          .add_options =
              [](cxxopts::Options& options) {
                using cxxopts::value;
                options.add_options()("folder", "the folder of a run, a sweep or several of them",
                                      value<std::string>(), "RUN|FOLDER")(
                    "listen",
                    "where the page is; :PORT is this machine alone, port 0 any that is free",
                    value<std::string>()->default_value("127.0.0.1:8000"), "ADDRESS:PORT");
              },
          .positional = {"folder"},
          .examples = {{"trainer watch runs/digits", "one run, at http://127.0.0.1:8000/"},
                       {"trainer watch runs", "all runs of a folder, in a table"},
                       {"trainer watch sweeps/lr --listen :0", "a sweep, at a port that is free"}},
          .run = watch_folder};
}

}  // namespace brim::cli
