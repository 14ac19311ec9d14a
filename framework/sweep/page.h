// A sweep as one HTML file: parallel coordinates, the metric of all trials over their steps, the
// best recipe to copy, the table. It needs no network and no other file.
#pragma once

#include <span>
#include <string>

#include "framework/sweep/store.h"

namespace brim::sweep {

/// `made_at` is shown at its end. Runs that can't be read are left out of the curves.
std::string make_page(const Store& store, std::span<const Trial> trials,
                      const std::string& made_at);

}  // namespace brim::sweep
