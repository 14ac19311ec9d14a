// The door to Gloo, whose headers LibTorch's wheel lacks: no other file sees them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace brim::distributed {

/// Connects every rank with every other one, by the interface that has `address`. Throws LibTorch's
/// and Gloo's exceptions.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world, const std::string& address,
                                            std::chrono::milliseconds limit);

/// `backend`, which before each collective compares its kind, shapes and types with the other
/// ranks' over `gloo`, and throws LibTorch's exception, beginning with kMismatch, on all that find
/// another one. Messages from rank to rank are not compared.
c10::intrusive_ptr<c10d::Backend> with_checks(const c10::intrusive_ptr<c10d::Backend>& backend,
                                              const c10::intrusive_ptr<c10d::Backend>& gloo);
inline constexpr const char* kMismatch = "Detected mismatch between collectives";

}  // namespace brim::distributed
