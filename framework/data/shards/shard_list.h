// Which shards a recipe's path stands for: a folder of *.tar, one tar, a pattern with braces, or
// any of the last two at an http(s) address.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace brim::data {

/// A file NAME.tar that is not hidden: ._NAME.tar is what macOS keeps beside a copy.
bool is_shard(const std::filesystem::path& file);

/// An address that begins with http:// or https://.
bool is_url(std::string_view address);

/// Expands {000..127} (leading zeros are kept) and {a,b}, several of them too, the last one
/// fastest; braces inside braces are not known. Throws Error(kRecipe) for unpaired braces and more
/// than a million results.
std::vector<std::string> expand_braces(const std::string& pattern);

/// The shards, in order: a folder's by name, a pattern's as it says. Throws Error(kData) for a
/// folder without shards.
std::vector<std::string> list_shards(const std::string& pattern);

}  // namespace brim::data
