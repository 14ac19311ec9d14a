#include "framework/base/user.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace brim {
namespace {

constexpr size_t kEnough = size_t{1} << 16;  // for an entry's texts; a group lists its members

std::string group_name(gid_t group) {
  std::vector<char> texts(kEnough);
  ::group entry{};
  ::group* found = nullptr;
  if (::getgrgid_r(group, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr) {
    return entry.gr_name;
  }
  return std::to_string(group);
}

}  // namespace

std::string user_name(uid_t user) {
  std::vector<char> texts(kEnough);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr) {
    return entry.pw_name;
  }
  return std::to_string(user);
}

std::vector<std::string> group_names() {
  const int count = std::max(0, ::getgroups(0, nullptr));
  std::vector<gid_t> groups(static_cast<size_t>(count));
  groups.resize(static_cast<size_t>(std::max(0, ::getgroups(count, groups.data()))));
  if (std::ranges::find(groups, ::getegid()) == groups.end()) groups.push_back(::getegid());
  std::vector<std::string> names;
  for (const gid_t group : groups) names.push_back(group_name(group));
  return names;
}

std::optional<uid_t> process_user(int64_t process) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", process).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace brim
