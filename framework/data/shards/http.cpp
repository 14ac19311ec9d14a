#include "framework/data/shards/http.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/base/words.h"
#include "framework/data/shards/shard_list.h"

namespace brim::data {
namespace {

constexpr int64_t kProgressBytes = 1 << 20;  // of a try that counts as no failure
constexpr int64_t kMaxErrorTextBytes = 1 << 16;
constexpr double kLongestWait_s = 30;
constexpr double kLongFetch_s = 5;  // of which something is said
constexpr double kLongestRetryAfter_s = 120;

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// This thread's handle, its options at their defaults. It keeps connections from call to call.
CURL* handle() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  thread_local std::unique_ptr<CURL, CurlDeleter> curl(curl_easy_init());
  if (curl == nullptr) throw Error(Exit::kResource, "libcurl can't be started: out of memory");
  curl_easy_reset(curl.get());
  return curl.get();
}

/// Certificates of authorities: libcurl's own default, but where that isn't on this machine (a
/// package made on another distribution) one of the usual places. Null: the default.
const char* ca_bundle() {
  constexpr std::array<const char*, 5> kPlaces = {
      "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
      "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/cacert.pem"};
  for (const char* variable : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') return path;
  }
  for (const char* path : kPlaces) {
    if (::access(path, R_OK) == 0) return path;
  }
  return nullptr;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// The whole number that `text` begins with; -1 where there is none.
int64_t first_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code != std::errc() || value < 0 ? -1 : value;
}

/// Where an answer 206 begins and how long the whole object is: "bytes 100-199/200".
struct ContentRange {
  int64_t first = -1;
  int64_t total = -1;
};

ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return range;
  text.remove_prefix(6);
  range.first = first_number(text);
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  text.remove_prefix(slash + 1);
  range.total = first_number(text);
  return range;
}

/// What tells one version of an object from another.
struct Version {
  std::string etag;
  std::string modified;

  /// For If-Range, which takes no weak ETag (RFC 9110, 13.1.5); "": it can't be told.
  const std::string& condition() const {
    return !etag.empty() && !etag.starts_with("W/") ? etag : modified;
  }
  bool operator==(const Version&) const = default;
};

/// A file that is being fetched, over all tries.
class Transfer {
 public:
  Transfer(const std::string& url, int fd, const std::filesystem::path& path,
           const HttpLimits& limits)
      : url_(url),
        fd_(fd),
        path_(path),
        limits_(limits),
        body_limit_(limits.max_bytes, limits.disk, fd) {}

  Download run() {
    double wait_s = limits_.wait_s;
    int failures = 0;
    for (int tries = 1;; ++tries) {
      const int64_t before = have_;
      const ResponseState outcome = attempt();
      if (outcome == ResponseState::kDone) return Download::kDone;
      if (outcome == ResponseState::kMissing) return Download::kMissing;
      if (version_.condition().empty() && have_ > 0) {
        start_over();
        problem_ += ", without an ETag or Last-Modified by which to resume";
      }
      if (have_ - before >= kProgressBytes) {
        failures = 0;
        wait_s = limits_.wait_s;
      } else {
        ++failures;
      }
      if (std::max(failures, restarts_) >= limits_.tries) {
        throw Error(Exit::kData, "{}: {} ({} tries)", shown_address(url_), problem_, tries);
      }
      const double pause_s = std::max(wait_s, retry_after_s_);
      if (pause_s >= 1) {
        log::info("{}: {}; trying again in {}", shown_address(url_), problem_,
                  format_duration(pause_s));
      }
      if (!sleep_unless_stopped(std::chrono::duration<double>(pause_s))) stop();
      wait_s = std::min(2 * wait_s, kLongestWait_s);
    }
  }

 private:
  enum class ResponseState { kDone, kMissing, kRetry };

  [[noreturn]] void stop() const {
    throw Error(Exit::kStopped, "stopped while {} was fetched", shown_address(url_));
  }

  /// What was fetched counts no longer; a server can make us do so only a few times.
  void start_over() {
    have_ = 0;
    ++restarts_;
  }

  ResponseState attempt() {
    CURL* curl = handle();
    headers_.clear();
    begun_ = restart_ = false;
    refusal_.reset();
    error_text_bytes_ = 0;
    write_error_ = 0;
    retry_after_s_ = 0;
    status_ = 0;
    error_text_.fill('\0');
    set_options(curl);
    std::unique_ptr<curl_slist, CurlDeleter> list;
    const std::string range = fmt::format("{}-", have_);
    if (have_ > 0) {
      curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
      list.reset(curl_slist_append(nullptr, ("If-Range: " + version_.condition()).c_str()));
      curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list.get());
    }
    curl_ = curl;
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status_);
    if (code == CURLE_OK && !begun_) begin_body();  // an empty one
    if (write_error_ != 0) {
      throw Error(Exit::kResource, "{}: cannot write: {}", path_.string(),
                  errno_text(write_error_));
    }
    if (refusal_) {
      throw TooLargeError(refusal_->status, shown_address(url_) + ": " + refusal_->reason);
    }
    if (restart_) {
      start_over();
      problem_ = "the object changed on the server while it was fetched";
      return ResponseState::kRetry;
    }
    const bool is_answered = code == CURLE_OK || error_text_bytes_ > kMaxErrorTextBytes;
    return is_answered ? judge_status() : judge_error(code);
  }

  void set_options(CURL* curl) {
    curl_easy_setopt(curl, CURLOPT_URL, url_.c_str());
    const bool is_secure = url_.starts_with("https://");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https");
#else
    const long secure = CURLPROTO_HTTPS;
    const long both = CURLPROTO_HTTP | CURLPROTO_HTTPS;
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, both);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, is_secure ? secure : both);
#endif
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    if (const char* bundle = ca_bundle()) curl_easy_setopt(curl, CURLOPT_CAINFO, bundle);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "brim");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_s * 1000));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                     std::max(1L, static_cast<long>(limits_.stall_s)));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_text_.data());
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
  }

  /// libcurl calls it about once a second where nothing arrives. Not 0 ends the try.
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    static_cast<const Transfer*>(self)->say_progress();
    return stop_requested() ? 1 : 0;
  }

  /// Where a file takes long, at intervals that double over all files: a run waits for its first
  /// shard, and reads later ones ahead.
  void say_progress() const {
    static std::mutex mutex;
    static double said_s = 0, pause_s = kLongFetch_s;
    const double now = now_s();
    if (now - started_s_ < kLongFetch_s) return;
    const std::lock_guard lock(mutex);
    if (now - said_s < pause_s) return;
    pause_s *= 2;
    said_s = now;
    log::info("{}: {}{} fetched in {}", shown_address(url_), format_bytes(have_),
              total_ > 0 ? fmt::format(" of {}", format_bytes(total_)) : "",
              format_duration(now - started_s_));
  }

  static size_t on_header(char* data, size_t, size_t count, void* self) {
    auto& headers = static_cast<Transfer*>(self)->headers_;
    const std::string_view line(data, count);
    const size_t colon = line.find(':');
    if (line.starts_with("HTTP/")) {
      headers.clear();  // that of a redirect went before
    } else if (colon != std::string_view::npos) {
      headers[lower_case(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return count;
  }

  static size_t on_body(char* data, size_t, size_t count, void* self) {
    return static_cast<Transfer*>(self)->write({data, count}) ? count : 0;
  }

  /// False ends the try.
  bool write(std::string_view bytes) {
    if (!begun_ && !begin_body()) return false;
    if (status_ != 200 && status_ != 206) {
      error_text_bytes_ += static_cast<int64_t>(bytes.size());
      return error_text_bytes_ <= kMaxErrorTextBytes;
    }
    refusal_ = body_limit_.grow(have_ + static_cast<int64_t>(bytes.size()));
    if (refusal_) return false;
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), have_);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        write_error_ = written < 0 ? errno : ENOSPC;
        return false;
      }
      have_ += written;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  /// Looks at what the server answers before any of the body is taken.
  bool begin_body() {
    begun_ = true;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status_);
    const Version version = {headers_["etag"], headers_["last-modified"]};
    if (status_ == 200) {  // the whole object, whether or not a part was asked for
      if (have_ > 0) start_over();
      version_ = version;
      curl_off_t length = -1;
      curl_easy_getinfo(curl_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
      total_ = length;
      if (::ftruncate(fd_, 0) != 0) write_error_ = errno;
      refusal_ = body_limit_.begin(total_);
      return write_error_ == 0 && !refusal_;
    }
    if (status_ == 206) {
      const ContentRange range = parse_content_range(headers_["content-range"]);
      restart_ = have_ == 0 || range.first != have_ || (total_ >= 0 && range.total != total_) ||
                 version != version_;
      return !restart_;
    }
    return true;
  }

  ResponseState judge_status() {
    if (status_ == 200 || status_ == 206) {
      if (total_ < 0 || have_ == total_) return ResponseState::kDone;
      problem_ = fmt::format("the server sent {} of {} bytes", have_, total_);
      return ResponseState::kRetry;
    }
    problem_ = fmt::format("the server answers with status {}", status_);
    switch (status_) {
      case 400:
      case 403:
      case 404:
      case 405:
      case 409:
      case 410:
        return ResponseState::kMissing;
      case 416:  // there is nothing where the object broke off: it is another
        start_over();
        return ResponseState::kRetry;
      case 408:
      case 425:
      case 429:
      case 500:
      case 502:
      case 503:
      case 504: {
        curl_off_t seconds = 0;
        curl_easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &seconds);
        retry_after_s_ = std::min(static_cast<double>(seconds), kLongestRetryAfter_s);
        return ResponseState::kRetry;
      }
      default:
        throw Error(Exit::kData, "{}: {}", shown_address(url_), problem_);
    }
  }

  ResponseState judge_error(CURLcode code) {
    problem_ = error_text_[0] != '\0' ? error_text_.data() : curl_easy_strerror(code);
    switch (code) {
      case CURLE_ABORTED_BY_CALLBACK:
        stop();
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_CONNECT:
      case CURLE_OPERATION_TIMEDOUT:
      case CURLE_PARTIAL_FILE:
      case CURLE_GOT_NOTHING:
      case CURLE_SEND_ERROR:
      case CURLE_RECV_ERROR:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_HTTP2:
      case CURLE_HTTP2_STREAM:
        return ResponseState::kRetry;
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        throw Error(Exit::kData,
                    "{}: not to be trusted: {}; if it is, name the file with its authority's "
                    "certificate in the variable CURL_CA_BUNDLE",
                    shown_address(url_), problem_);
      default:
        throw Error(Exit::kData, "{}: cannot be fetched: {}", shown_address(url_), problem_);
    }
  }

  const std::string& url_;
  const int fd_;
  const std::filesystem::path& path_;
  const HttpLimits& limits_;
  BodyLimit body_limit_;
  const double started_s_ = now_s();

  // Of the object.
  int64_t have_ = 0;    // bytes in the file
  int64_t total_ = -1;  // -1: the server doesn't say
  Version version_;
  int restarts_ = 0;

  // Of a try.
  CURL* curl_ = nullptr;
  std::map<std::string, std::string> headers_;  // names in lower case
  long status_ = 0;
  bool begun_ = false;    // the answer was looked at
  bool restart_ = false;  // it is no continuation of what we have
  std::optional<BodyLimit::Refusal> refusal_;
  int write_error_ = 0;
  int64_t error_text_bytes_ = 0;
  double retry_after_s_ = 0;
  std::string problem_;
  std::array<char, CURL_ERROR_SIZE> error_text_{};
};

}  // namespace

Download download(const std::string& url, int fd, const std::filesystem::path& path,
                  const HttpLimits& limits) {
  return Transfer(url, fd, path, limits).run();
}

}  // namespace brim::data
