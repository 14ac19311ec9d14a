// A small HTTP server for one text, as monitoring systems fetch it. It lives in a thread of its own
// and bounds what clients can take of it: 16 connections of 8 KiB each, 5 s for any of them, 50
// requests a second. What is more waits in the kernel's queue.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/listener.h"

namespace brim::telemetry {

class TextEndpoint {
 public:
  /// Serves what `text` returns, which the thread calls at each request, at `path`. `host` is a
  /// name or an address, `port` 0 any that is free. Throws Error(kResource) where it cannot listen
  /// there, as on a port that is in use.
  TextEndpoint(const std::string& host, int port, std::string path, std::string content_type,
               std::function<std::string()> text);
  /// Leaves the clients where they are.
  ~TextEndpoint();
  TextEndpoint(const TextEndpoint&) = delete;
  TextEndpoint& operator=(const TextEndpoint&) = delete;

  /// The one that it listens on.
  int port() const { return listener_.port; }

 private:
  struct Connection {
    int fd;
    double ends_s;            // by now_s()
    std::string in, out;      // the request's head; what is still to be sent
    bool is_read = false;     // the answer is known
    bool is_closing = false;  // the answer is sent
    size_t thrown_away = 0;   // bytes that came after it
  };
  void serve();
  int wait_ms(double now) const;
  void accept_clients(double now);
  /// False: done with it.
  bool go_on(Connection& connection);
  bool read_some(Connection& connection);
  std::string answer(const std::string& head) const;

  const std::string path_, content_type_;
  const std::function<std::string()> text_;
  Listener listener_;
  int wake_ = -1;  // readable: the end
  std::vector<Connection> connections_;
  double second_s_ = 0;  // when the present second began
  int accepted_ = 0;     // in it
  std::thread thread_;
};

}  // namespace brim::telemetry
