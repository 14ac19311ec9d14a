// The pages of a watched folder over HTTP. Requests name runs and sweeps that were found, never
// files; what runs say is text, and the answers' policy lets no script of theirs run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "framework/telemetry/http/http_server.h"
#include "framework/watch/pages.h"

namespace brim::watch {

class Site {
 public:
  /// `is_local`: only requests that name this machine as their host are answered, since a page from
  /// elsewhere could let its own name point here (DNS rebinding). Throws Error(kData) where there
  /// is no such folder.
  Site(const std::filesystem::path& folder, bool is_local) : folder_(folder), is_local_(is_local) {}

  /// "/": the run, or the table of the folder's runs; "/run/NAME", "/sweep/NAME": one of them. With
  /// "?have=VERSIONS" what has changed since.
  telemetry::HttpAnswer answer(const telemetry::HttpRequest& request);

 private:
  /// As it was made from a state that has not changed since, or not for long enough.
  struct Made {
    experiment::Page page;
    int64_t changes = 0;  // of the run
    double due_s = 0;     // of a sweep
  };
  const experiment::Page* find_page(std::string_view path);
  const experiment::Page& run_page(const WatchedRun& run);
  const experiment::Page& sweep_page(const std::string& name);

  WatchedFolder folder_;
  const bool is_local_;
  std::map<std::string, Made> made_;  // by place, few
  experiment::Page table_;
};

}  // namespace brim::watch
