// The parts of a report that are the same for every run: its style and the script that shows values
// under the pointer. Both are ours, and nothing is loaded from elsewhere.
#pragma once

#include <string_view>

namespace brim::experiment {

/// Light and dark by the reader's own choice, one column on a phone.
std::string_view page_style();

/// Without it the page shows the same, but no values under the pointer.
std::string_view page_script();

}  // namespace brim::experiment
