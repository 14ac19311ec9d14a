#include "framework/site/hold.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"
#include "framework/base/json.h"

namespace brim::site {
namespace fs = std::filesystem;
namespace {

using device::GpuLock;
using nlohmann::json;

constexpr std::string_view kPrefix = "held-";
constexpr size_t kMaxFileBytes = size_t{64} << 10;
constexpr size_t kMaxDevices = 1024;
constexpr int kMaxFiles = 10'000;

std::string to_text(const Devices& devices, const std::string& what) {
  json list = json::array();
  for (const Device& device : devices) {
    list.push_back(
        {{"word", device.word}, {"index", device.index ? json(*device.index) : json(nullptr)}});
  }
  const json record = {{"process", ::getpid()}, {"what", what}, {"devices", list}};
  return record.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Other users may write anything.
std::optional<Held> parse_held(const std::string& text) try {
  const json record =
      parse_json(text, "a file of devices that are held", {.bytes = kMaxFileBytes, .depth = 4});
  Held held;
  held.what = record.at("what").get<std::string>();
  held.process = record.at("process").get<int64_t>();
  for (const json& device : record.at("devices")) {
    Device one{.word = device.at("word").get<std::string>()};
    if (device.at("index").is_number_integer()) one.index = device.at("index").get<int>();
    held.devices.push_back(std::move(one));
  }
  if (held.devices.size() > kMaxDevices) return std::nullopt;
  return held;
} catch (const std::exception&) {
  return std::nullopt;
}

/// nullopt for a file that no living process holds, or that says nothing.
std::optional<Held> read_held(int folder, const std::string& name) {
  const Descriptor file(
      ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) {  // its process is gone
    if (status.st_uid == ::geteuid()) ::unlinkat(folder, name.c_str(), 0);
    return std::nullopt;
  }
  if (std::cmp_greater(status.st_size, kMaxFileBytes)) return std::nullopt;
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  std::optional<Held> held = parse_held(text);
  if (!held) return std::nullopt;
  held->user = status.st_uid;
  held->since = status.st_ctim;
  held->file = name;
  return held;
}

bool is_later(const std::timespec& a, const std::timespec& b) {
  return std::tie(a.tv_sec, a.tv_nsec) > std::tie(b.tv_sec, b.tv_nsec);
}

}  // namespace

std::string Held::shown() const {
  std::tm local{};
  ::localtime_r(&since.tv_sec, &local);
  return fmt::format("{} by {} (process {}) since {:02}:{:02}", site::shown(devices), what, process,
                     local.tm_hour, local.tm_min);
}

std::vector<Held> read_holds(const fs::path& folder) {
  std::vector<Held> all;
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return all;
  const Descriptor opened(GpuLock::open_lock_folder(folder));
  if (opened.get() < 0) return all;
  int seen = 0;
  fs::directory_iterator entry(folder, ignored);
  for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || ++seen > kMaxFiles) continue;
    if (auto held = read_held(opened.get(), name)) all.push_back(std::move(*held));
  }
  std::ranges::sort(all, [](const Held& a, const Held& b) { return is_later(b.since, a.since); });
  return all;
}

Hold::Hold(const Devices& devices, const std::string& what, fs::path folder)
    : folder_(std::move(folder)) {
  const Descriptor opened(GpuLock::open_lock_folder(folder_));
  if (opened.get() < 0) return;
  // Containers that share the folder number their processes alike.
  const std::string name = fmt::format("{}{}-{}-{}", kPrefix, ::geteuid(), ::getpid(),
                                       std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string hidden = "." + name;
  fd_ = ::openat(opened.get(), hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                 0644);
  if (fd_ < 0) return;
  const std::string text = to_text(devices, what);
  // Locked and whole before anyone sees it. The kernel's time of the rename is that of the hold.
  const bool is_whole = ::fchmod(fd_, 0644) == 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0 &&
                        std::cmp_equal(::write(fd_, text.data(), text.size()), text.size()) &&
                        ::renameat(opened.get(), hidden.c_str(), opened.get(), name.c_str()) == 0;
  if (is_whole) {
    file_ = name;
  } else {
    ::unlinkat(opened.get(), hidden.c_str(), 0);
  }
}

Hold::~Hold() {
  if (is_seen()) ::unlink((folder_ / file_).c_str());
  if (fd_ >= 0) ::close(fd_);
}

std::unique_ptr<Hold> take_hold(const Limits& limits, const Devices& devices,
                                const std::string& what) {
  limits.require(devices, devices, "");
  auto hold = std::make_unique<Hold>(devices, what);
  const std::vector<Held> all = read_holds();
  const auto own = std::ranges::find(all, hold->file(), &Held::file);
  const bool is_counted = std::ranges::any_of(limits.rules(), [](const Rule& rule) {
    return rule.at_most != std::numeric_limits<int64_t>::max();
  });
  if (is_counted && (!hold->is_seen() || own == all.end())) {
    throw Error(Exit::kResource,
                "{} limits how many devices {} holds, and none can be counted: no file can be made "
                "in {}; {}",
                limits.site().file.string(), limits.person().user, GpuLock::lock_folder().string(),
                limits.ask());
  }
  if (!is_counted) return hold;
  Devices held = devices;
  std::string says_held;
  for (const Held& other : all) {
    const bool is_earlier = other.file != hold->file() && !is_later(other.since, own->since);
    if (other.user != ::geteuid() || !is_earlier) continue;
    held.insert(held.end(), other.devices.begin(), other.devices.end());
    says_held += (says_held.empty() ? "" : ", ") + other.shown();
  }
  limits.require(devices, held, says_held);
  return hold;
}

}  // namespace brim::site
