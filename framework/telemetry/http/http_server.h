// A small HTTP server for texts, as monitoring systems and browsers fetch them. It lives in a
// thread of its own and bounds what clients can take of it: 16 connections with heads of 8 KiB, 5 s
// to send one and 5 s for every MiB of the answer, 50 requests a second. What is more waits in the
// kernel's queue, and takes the place of a client that has been silent for a second.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/listener.h"
#include "framework/telemetry/http/http_request.h"

namespace brim::telemetry {

struct HttpAnswer {
  std::string status = "200 OK";
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string fields = {};  // further fields of the head, each ended by "\r\n"
};

/// The answer whose text is the status itself: "404 Not Found".
HttpAnswer refusal(const std::string& status);

class HttpServer {
 public:
  /// The answer to a whole GET or HEAD request.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  /// Its thread calls `handler` at each request; what that throws becomes 500 Internal Server
  /// Error. `host` is a name or an address, `port` 0 any that is free. Throws Error(kResource)
  /// where it cannot listen there, as on a port that is in use.
  HttpServer(const std::string& host, int port, Handler handler);
  /// Leaves the clients where they are.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The one that it listens on.
  int port() const { return listener_.port; }

 private:
  struct Connection {
    int fd;
    double since_s, ends_s;   // by now_s()
    std::string in, out;      // the request's head; the answer
    size_t sent = 0;          // bytes of the answer
    bool is_read = false;     // the answer is known
    bool is_closing = false;  // the answer is sent
    size_t thrown_away = 0;   // bytes that came after it
    /// Waits for the client, who gets nothing from it now.
    bool is_idle() const { return !is_read || is_closing; }
  };
  void serve();
  int wait_ms(double now) const;
  double room_from_s() const;
  void make_room();
  void accept_clients(double now);
  /// False: done with it.
  bool go_on(Connection& connection);
  bool read_some(Connection& connection);
  std::string answer(const std::string& head) const;

  const Handler handler_;
  Listener listener_;
  int wake_ = -1;  // readable: the end
  std::vector<Connection> connections_;
  double second_s_ = 0;  // when the present second began
  int accepted_ = 0;     // in it
  std::thread thread_;
};

}  // namespace brim::telemetry
