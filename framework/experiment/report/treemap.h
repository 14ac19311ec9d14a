// Areas that show shares: a rectangle that is divided among named parts, and these among theirs.
// Squarified (Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000).
#pragma once

#include <string>
#include <vector>

namespace brim::experiment {

struct TreemapPart {
  std::string group;  // parts of one group lie together and have its colour
  std::string name;
  double value = 0.0;
  std::string details = {};  // shown under the pointer
};

/// A rectangle with sides in per cent of the whole.
struct Rectangle {
  double x = 0.0, y = 0.0, width = 100.0, height = 100.0;
};

/// Rectangles within `whole` with areas in proportion to the values, which fall.
std::vector<Rectangle> squarify(const std::vector<double>& values, const Rectangle& whole);

/// A <div> that is as wide as the page; "" where no part has a value. Texts are escaped.
std::string draw_treemap(std::vector<TreemapPart> parts);

}  // namespace brim::experiment
