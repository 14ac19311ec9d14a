#include "framework/telemetry/http/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr size_t kMaxConnections = 16;
constexpr int kMaxPerSecond = 50;
constexpr double kLimitS = 5;  // to send a head, and for every MiB of an answer
constexpr double kIdleS = 1;   // of it, where others wait for the place
constexpr size_t kMaxDiscarded = 1 << 16;

[[noreturn]] void refuse(const std::string& host, int port, const std::string& why) {
  throw Error(Exit::kResource, "cannot listen on {}:{}: {}", host, port, why);
}

/// Of a socket that never blocks.
Listener listen_without_blocking(const std::string& host, int port) {
  Listener listener = listen_on(host, port);
  if (listener.fd < 0) refuse(host, port, listener.problem);
  ::fcntl(listener.fd, F_SETFL, O_NONBLOCK);
  return listener;
}

std::string text_of(const HttpAnswer& answer, bool has_body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
      answer.status, answer.type, answer.body.size(), answer.fields, has_body ? answer.body : "");
}

bool is_later(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

HttpAnswer refusal(const std::string& status) { return {.status = status, .body = status + "\n"}; }

HttpServer::HttpServer(const std::string& host, int port, Handler handler)
    : handler_(std::move(handler)),
      listener_(listen_without_blocking(host, port)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) {
    const int code = errno;
    ::close(listener_.fd);
    refuse(host, port, errno_text(code));
  }
  thread_ = std::thread([this] {
    try {
      serve();
    } catch (const std::exception& error) {  // training continues
      log::warning("port {} is served no longer: {}", listener_.port, error.what());
    }
  });
}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t sent = ::write(wake_, &one, sizeof(one));
  thread_.join();
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(wake_);
  ::close(listener_.fd);
}

void HttpServer::serve() {
  for (;;) {
    double now = now_s();
    if (now - second_s_ >= 1) {
      second_s_ = now;
      accepted_ = 0;
    }
    const bool has_room = now >= room_from_s() && accepted_ < kMaxPerSecond;
    std::vector<pollfd> polled = {
        {.fd = wake_, .events = POLLIN, .revents = 0},
        {.fd = has_room ? listener_.fd : -1, .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections_) {
      const bool is_sending = connection.is_read && !connection.is_closing;
      const short events = is_sending ? POLLOUT : POLLIN;
      polled.push_back({.fd = connection.fd, .events = events, .revents = 0});
    }
    if (::poll(polled.data(), polled.size(), wait_ms(now)) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;

    now = now_s();
    std::vector<Connection> left;
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      const bool is_ready = polled[i + 2].revents != 0;
      if (now < connection.ends_s && (!is_ready || go_on(connection))) {
        left.push_back(std::move(connection));
      } else {
        ::close(connection.fd);
      }
    }
    connections_ = std::move(left);
    if (polled[1].revents != 0) accept_clients(now);
  }
}

/// When a new connection finds a place: at once, or when the oldest that is not being answered has
/// been idle for kIdleS.
double HttpServer::room_from_s() const {
  if (connections_.size() < kMaxConnections) return 0;
  const auto idle = std::ranges::find_if(connections_, &Connection::is_idle);
  return idle == connections_.end() ? INFINITY : idle->since_s + kIdleS;
}

/// Closes that one where all places are taken.
void HttpServer::make_room() {
  if (connections_.size() < kMaxConnections) return;
  const auto idle = std::ranges::find_if(connections_, &Connection::is_idle);
  ::close(idle->fd);
  connections_.erase(idle);
}

/// Until the first connection runs out of time or new ones may come again; -1: for ever.
int HttpServer::wait_ms(double now) const {
  double ends_s = accepted_ >= kMaxPerSecond ? second_s_ + 1 : INFINITY;
  if (now < room_from_s()) ends_s = std::min(ends_s, room_from_s());
  for (const Connection& connection : connections_) ends_s = std::min(ends_s, connection.ends_s);
  if (std::isinf(ends_s)) return -1;
  return static_cast<int>(std::ceil(1000 * std::max(0.0, ends_s - now)));
}

void HttpServer::accept_clients(double now) {
  while (accepted_ < kMaxPerSecond && now >= room_from_s()) {
    const int fd = ::accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors, the listener stays readable: ask again in a second.
      if (!is_later(fd) && errno != ECONNABORTED) accepted_ = kMaxPerSecond;
      return;
    }
    ++accepted_;
    make_room();
    connections_.push_back(
        {.fd = fd, .since_s = now, .ends_s = now + kLimitS, .in = {}, .out = {}});
  }
}

bool HttpServer::go_on(Connection& connection) {
  if (!connection.is_read || connection.is_closing) return read_some(connection);
  const std::string_view rest = std::string_view(connection.out).substr(connection.sent);
  const ssize_t sent = ::send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return is_later(sent);
  connection.sent += static_cast<size_t>(sent);
  if (connection.sent < connection.out.size()) return true;
  // Closed at once, the kernel might throw the answer away where the client has sent more.
  connection.is_closing = true;
  return ::shutdown(connection.fd, SHUT_WR) == 0;
}

bool HttpServer::read_some(Connection& connection) {
  std::array<char, 4096> block{};
  const ssize_t got = ::recv(connection.fd, block.data(), block.size(), 0);
  if (got <= 0) return is_later(got);
  if (connection.is_closing) {
    connection.thrown_away += static_cast<size_t>(got);
    return connection.thrown_away < kMaxDiscarded;
  }
  connection.in.append(block.data(), static_cast<size_t>(got));
  connection.out = answer(connection.in);
  connection.is_read = !connection.out.empty();
  constexpr double kMib = 1 << 20;
  if (connection.is_read) {
    connection.ends_s = now_s() + kLimitS * (1 + static_cast<double>(connection.out.size()) / kMib);
  }
  return true;
}

/// Empty: the head is not whole yet.
std::string HttpServer::answer(const std::string& head) const {
  const HttpRequest request = read_request(head);
  switch (request.state) {
    case HttpRequest::State::kUnfinished:
      return {};
    case HttpRequest::State::kTooLong:
      return text_of(refusal("431 Request Header Fields Too Large"), /*has_body=*/true);
    case HttpRequest::State::kBad:
      return text_of(refusal("400 Bad Request"), /*has_body=*/true);
    case HttpRequest::State::kWhole:
      break;
  }
  const bool is_get = request.method == "GET";
  if (!is_get && request.method != "HEAD") {
    return text_of(refusal("405 Method Not Allowed"), /*has_body=*/true);
  }
  try {
    return text_of(handler_(request), is_get);
  } catch (const std::exception& error) {
    log::warning("{}: {}", request.path, error.what());
    return text_of(refusal("500 Internal Server Error"), is_get);
  }
}

}  // namespace brim::telemetry
