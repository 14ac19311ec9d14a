#include "framework/distributed/rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/host.h"

namespace brim::distributed {
namespace fs = std::filesystem;
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, uint16_t port, int socket_type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                 std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    throw Error(Exit::kDistributed, "the address \"{}\" can't be resolved: {}", host,
                ::gai_strerror(code));
  }
  return {list, &::freeaddrinfo};
}

/// The number of a socket's own address, and its port.
Address own_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(socket, address, &size) != 0 ||
      ::getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    throw Error(Exit::kDistributed, "a socket has no address: {}", errno_text(errno));
  }
  return {host.data(), static_cast<uint16_t>(std::strtoul(port.data(), nullptr, 10))};
}

/// /tmp is everyone's: whoever else could write to the folder in it could name a store of theirs.
bool is_in_tmp(const fs::path& folder) { return folder.parent_path() == "/tmp"; }

void require_own_folder(const fs::path& folder) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) {
    throw Error(Exit::kDistributed, "{}: can't be made: {}", folder.string(), errno_text(errno));
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::getuid() || (status.st_mode & 022) != 0) {
    throw Error(Exit::kDistributed,
                "{}: expected a folder that only this user can write to, where ranks find each "
                "other; remove it, or set MASTER_ADDR and MASTER_PORT instead",
                folder.string());
  }
}

struct RendezvousFile {
  Address address;
  std::string host;
  int64_t process = 0;
  uint64_t started = 0;
};

std::optional<RendezvousFile> parse(const std::string& text) {
  std::istringstream words(text);
  std::string magic;
  RendezvousFile file;
  int64_t port = 0;
  words >> magic >> file.address.host >> port >> file.host >> file.process >> file.started;
  if (!words || magic != "brim-rendezvous-1" || port < 1 || port > 65535 || file.process < 1) {
    return std::nullopt;
  }
  file.address.port = static_cast<uint16_t>(port);
  return file;
}

bool is_left_behind(const RendezvousFile& file) {
  return file.host == host_name() && start_time(file.process) != file.started;
}

/// Connects and hangs up. What stood against it; empty: nothing.
std::string try_to_connect(const addrinfo& item, std::chrono::milliseconds limit) {
  const int socket = ::socket(item.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return errno_text(errno);
  int code = ::connect(socket, item.ai_addr, item.ai_addrlen) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    pollfd polled = {socket, POLLOUT, 0};
    socklen_t size = sizeof code;
    if (::poll(&polled, 1, static_cast<int>(std::max<int64_t>(limit.count(), 0))) == 0) {
      code = ETIMEDOUT;
    } else {
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
    }
  }
  ::close(socket);
  return code == 0 ? std::string() : errno_text(code);
}

}  // namespace

Listener listen_for_ranks(const std::string& address, uint16_t port) {
  Listener listener = listen_on(address, port);
  if (listener.fd >= 0) return listener;
  const char* advice = listener.code == EADDRINUSE
                           ? "another program, perhaps another run, has that port; choose another "
                             "MASTER_PORT for every rank"
                           : "MASTER_ADDR must be an address of the machine that rank 0 is on";
  throw Error(Exit::kDistributed, "rank 0 can't listen on {}:{}: {}; {}", address, port,
              listener.problem, advice);
}

void write_rendezvous_file(const fs::path& file, const Address& address) {
  if (const fs::path folder = file.parent_path(); is_in_tmp(folder)) {
    ::mkdir(folder.c_str(), 0700);
    require_own_folder(folder);
  }
  try {
    write_file(file, fmt::format("brim-rendezvous-1 {} {} {} {} {}\n", address.host, address.port,
                                 host_name(), ::getpid(), start_time(::getpid()).value_or(0)));
  } catch (const Error& error) {
    throw Error(Exit::kDistributed, "the rendezvous file: {}", error.what());
  }
}

Address read_rendezvous_file(const fs::path& file, std::chrono::milliseconds limit) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  constexpr int64_t kMaxBytes = 4096;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) {
      if (is_in_tmp(file.parent_path())) require_own_folder(file.parent_path());
      const auto found = parse(read_file(file, Exit::kDistributed, kMaxBytes));
      if (found && !is_left_behind(*found)) return found->address;
    }
    std::this_thread::sleep_for(kPause);
  }
  throw Error(Exit::kDistributed,
              "rank 0 did not write where to meet into {} within {} s; did it start, and does this "
              "rank see the same file?",
              file.string(), limit.count() / 1000);
}

std::string wait_for_listener(const Address& address, std::chrono::milliseconds limit) {
  using std::chrono::milliseconds;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (milliseconds pause(10);; pause = std::min(pause * 2, milliseconds(500))) {
    std::string obstacle;
    const auto left = [&] {
      return std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    };
    try {
      const AddressList list = resolve(address.host, address.port, SOCK_STREAM);
      for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
        obstacle = try_to_connect(*item, left());
        if (obstacle.empty()) return obstacle;
      }
    } catch (const Error& error) {
      obstacle = error.what();
    }
    if (left() <= pause) return obstacle;
    std::this_thread::sleep_for(pause);
  }
}

std::optional<uint64_t> start_time(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream words(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string word;
  for (int field = 3; field <= 22 && words >> word; ++field) {
  }
  uint64_t ticks = 0;
  std::from_chars(word.data(), word.data() + word.size(), ticks);
  return ticks;
}

std::string address_towards(const std::string& host, uint16_t port) {
  const AddressList list = resolve(host, port, SOCK_DGRAM);
  for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
    const int socket = ::socket(item->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    // Sends nothing: it only asks the kernel for the way there.
    const bool has_way = ::connect(socket, item->ai_addr, item->ai_addrlen) == 0;
    const std::string address = has_way ? own_address(socket).host : std::string();
    ::close(socket);
    if (!address.empty()) return address;
  }
  return {};
}

std::string default_address() {
  // An address of no machine (RFC 5737), so that the default route is taken.
  return address_towards("192.0.2.1", 9);
}

}  // namespace brim::distributed
