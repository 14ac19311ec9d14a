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

}  // namespace brim::distributed
