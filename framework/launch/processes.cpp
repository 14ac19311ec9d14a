#include "framework/launch/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

constexpr double kGroupKillTimeout_s = 5;
constexpr int kPause_us = 5000;

/// Every process by its folder in /proc.
std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  std::error_code problem;
  for (fs::directory_iterator entry("/proc", problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [last, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad == std::errc() && last == name.data() + name.size()) result.push_back(pid);
  }
  return result;
}

/// The parent of a process; 0 where it is gone. In /proc/PID/stat the parent follows the name,
/// which may hold anything, and the state.
pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

/// The inode of the socket that listens on a port: the tables' columns are local address (HEX:PORT)
/// at 1, state at 3 (0A listens), inode at 9.
std::string listening_inode(const char* table, int port) {
  std::ifstream file(table);
  const std::string wanted = fmt::format(":{:04X}", port);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> columns;
    for (std::string word; words >> word;) columns.push_back(word);
    if (columns.size() > 9 && columns[1].ends_with(wanted) && columns[3] == "0A") return columns[9];
  }
  return "";
}

bool has_open(pid_t pid, const std::string& target) {
  std::error_code problem;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), problem), end;
       !problem && entry != end; entry.increment(problem)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) == target) return true;
  }
  return false;
}

}  // namespace

std::vector<pid_t> children(const std::vector<pid_t>& except) {
  std::vector<pid_t> result;
  for (const pid_t pid : all_processes()) {
    const bool is_wanted = std::ranges::find(except, pid) == except.end();
    if (is_wanted && parent_of(pid) == ::getpid()) result.push_back(pid);
  }
  return result;
}

std::vector<pid_t> end_children(double grace_s, const std::vector<pid_t>& except) {
  const double kill_at = now_s() + grace_s;
  int signal = grace_s > 0 ? SIGTERM : SIGKILL;
  while (true) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = children(except);
    const double now = now_s();
    if (left.empty() || now > kill_at + kGroupKillTimeout_s) return left;
    if (now >= kill_at)
      signal = SIGKILL;  // again each time: the killed leave children of their own
    for (const pid_t pid : left) {
      if (signal != 0) ::kill(pid, signal);
    }
    if (signal == SIGTERM) signal = 0;  // once
    ::usleep(kPause_us);
  }
}

std::string listener_of(int port) {
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return "";
  for (const pid_t pid : all_processes()) {
    if (!has_open(pid, "socket:[" + inode + "]")) continue;
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    return fmt::format("process {} ({})", pid, name);
  }
  return "";
}

}  // namespace brim::launch
