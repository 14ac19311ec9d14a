// What the visitors do for the rest of Brim: fill a config struct from a document, print it back,
// and describe it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/recipe/document.h"
#include "framework/recipe/fields.h"

namespace brim::recipe {

/// Fills `config` from `document`; keys that are absent keep their defaults, and relative paths
/// become absolute. Throws Error(kRecipe) with every problem found: unknown section or key (nearest
/// valid name), wrong type, out of range, unknown word, NaN, missing required key.
/// A layer that chooses another component leaves keys of the old component behind in lower layers:
/// those are dropped, with a log line each. In the same or a higher layer they are unknown keys.
void read(const Value& document, Config& config);

/// The resolved recipe as TOML: every key with its value, paths absolute. read(parse(print(c)))
/// gives back an equal config.
std::string print(Config& config);

/// docs/recipe.md: a table for each section, then one for each registered component.
std::string reference_page(Config& config);

/// A JSON Schema (draft 2020-12) so that editors complete and check recipes. A file that sets few
/// of the required keys may be a layer for --config, and is not asked for the others. Where a file
/// has `library_key`, "model.library", its components may have names and keys that are not known
/// here.
std::string json_schema(Config& config, std::string_view library_key = "");

}  // namespace brim::recipe
