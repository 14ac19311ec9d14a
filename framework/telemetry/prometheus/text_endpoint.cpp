#include "framework/telemetry/prometheus/text_endpoint.h"

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
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/telemetry/prometheus/http_request.h"

namespace brim::telemetry {
namespace {

constexpr size_t kMaxConnections = 16;
constexpr int kMaxPerSecond = 50;
constexpr double kLimitS = 5;  // of one connection
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

std::string response(const char* status, const std::string& type, const std::string& body,
                     bool has_body = true) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), has_body ? body : "");
}

std::string refusal(const char* status) {
  return response(status, "text/plain; charset=utf-8", std::string(status) + "\n");
}

bool is_later(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

TextEndpoint::TextEndpoint(const std::string& host, int port, std::string path,
                           std::string content_type, std::function<std::string()> text)
    : path_(std::move(path)),
      content_type_(std::move(content_type)),
      text_(std::move(text)),
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
      log::warning("port {} serves no metrics from here on: {}", listener_.port, error.what());
    }
  });
}

TextEndpoint::~TextEndpoint() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t sent = ::write(wake_, &one, sizeof(one));
  thread_.join();
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(wake_);
  ::close(listener_.fd);
}

void TextEndpoint::serve() {
  for (;;) {
    double now = now_s();
    if (now - second_s_ >= 1) {
      second_s_ = now;
      accepted_ = 0;
    }
    const bool has_room = connections_.size() < kMaxConnections && accepted_ < kMaxPerSecond;
    std::vector<pollfd> polled = {
        {.fd = wake_, .events = POLLIN, .revents = 0},
        {.fd = has_room ? listener_.fd : -1, .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections_) {
      const short events = connection.out.empty() ? POLLIN : POLLOUT;
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

/// Until the first connection runs out of time or new ones may come again; -1: for ever.
int TextEndpoint::wait_ms(double now) const {
  double ends_s = accepted_ >= kMaxPerSecond ? second_s_ + 1 : INFINITY;
  for (const Connection& connection : connections_) ends_s = std::min(ends_s, connection.ends_s);
  if (std::isinf(ends_s)) return -1;
  return static_cast<int>(std::ceil(1000 * std::max(0.0, ends_s - now)));
}

void TextEndpoint::accept_clients(double now) {
  while (connections_.size() < kMaxConnections && accepted_ < kMaxPerSecond) {
    const int fd = ::accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors, the listener stays readable: ask again in a second.
      if (!is_later(fd) && errno != ECONNABORTED) accepted_ = kMaxPerSecond;
      return;
    }
    ++accepted_;
    connections_.push_back({.fd = fd, .ends_s = now + kLimitS, .in = {}, .out = {}});
  }
}

bool TextEndpoint::go_on(Connection& connection) {
  if (!connection.is_read || connection.is_closing) return read_some(connection);
  const ssize_t sent =
      ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent < 0) return is_later(sent);
  connection.out.erase(0, static_cast<size_t>(sent));
  if (!connection.out.empty()) return true;
  // Closed at once, the kernel might throw the answer away where the client has sent more.
  connection.is_closing = true;
  return ::shutdown(connection.fd, SHUT_WR) == 0;
}

bool TextEndpoint::read_some(Connection& connection) {
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
  return true;
}

/// Empty: the head is not whole yet.
std::string TextEndpoint::answer(const std::string& head) const {
  const HttpRequest request = read_request(head);
  switch (request.state) {
    case HttpRequest::State::kUnfinished:
      return {};
    case HttpRequest::State::kTooLong:
      return refusal("431 Request Header Fields Too Large");
    case HttpRequest::State::kBad:
      return refusal("400 Bad Request");
    case HttpRequest::State::kWhole:
      break;
  }
  if (request.method != "GET" && request.method != "HEAD") return refusal("405 Method Not Allowed");
  if (request.path != path_) return refusal("404 Not Found");
  return response("200 OK", content_type_, text_(), request.method == "GET");
}

}  // namespace brim::telemetry
