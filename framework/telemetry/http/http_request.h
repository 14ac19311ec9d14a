// The head of an HTTP/1.x request, as far as a server needs it that only hands out texts. Syntax:
// RFC 9112.
#pragma once

#include <cstddef>
#include <string_view>

namespace brim::telemetry {

/// A head is no longer than this: request line and fields.
inline constexpr size_t kLongestHead = 8192;

struct HttpRequest {
  enum class State {
    kUnfinished,  // more bytes are to come
    kWhole,
    kTooLong,  // no end within kLongestHead
    kBad,      // no HTTP/1.x request
  };
  State state = State::kUnfinished;
  // Of a whole head; views of the bytes.
  std::string_view method;  // "GET"
  std::string_view path;    // "/metrics", as it was sent: nothing is decoded
  std::string_view query;   // what follows the path's '?'
  std::string_view host;    // the field Host; "" where there is none
};

/// Any bytes; what follows the head is not looked at.
HttpRequest read_request(std::string_view bytes);

}  // namespace brim::telemetry
